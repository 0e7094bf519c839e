"""`close` is graceful: everything arrives, both ways, then `closed(None)` once on both sides."""

import threading
import time

import pytest

from hocket.errors import Aborted, Closed
from tests.support.queues.listeners import History, Source
from tests.support.queues.worlds import drain, numbered
from tests.support.threads import until


def received(messages):
    return [("received", message) for message in messages]


def sent(messages):
    return [("sent", message) for message in messages]


END = ("closed", None)


def test_what_was_sent_before_the_close_arrives_and_then_both_sides_end_once(world):
    mine, theirs, my_history, their_history = world.heard_pair()
    messages = numbered(100)
    for message in messages:
        mine.send(message)
    mine.close()
    until(lambda: my_history.reasons and their_history.reasons)
    world.settle()
    assert their_history.events == [*received(messages), END]
    assert my_history.events == [*sent(messages), END]
    assert mine.closed
    assert theirs.closed


def test_a_close_with_nothing_in_transit_ends_both_sides(world):
    _mine, theirs, my_history, their_history = world.heard_pair()
    theirs.close()
    until(lambda: my_history.reasons and their_history.reasons)
    world.settle()
    assert my_history.events == their_history.events == [END]


def test_after_close_send_returns_false_and_sends_nothing(world):
    mine, theirs, my_history, their_history = world.heard_pair()
    mine.send(b"before")
    mine.close()
    assert mine.closed
    assert mine.send(b"after") is False
    until(lambda: my_history.reasons and their_history.reasons)
    assert mine.send(b"long after") is False
    assert theirs.send(b"from the other side") is False
    world.settle()
    assert their_history.messages == [b"before"]
    assert my_history.events == [*sent([b"before"]), END]  # and no writable for those refusals


def test_the_other_end_learns_of_the_close_after_the_messages_before_it(world):
    mine, theirs = world.pair()
    my_history = History()
    mine.set_listener(my_history)
    for message in numbered(3):
        mine.send(message)
    mine.close()
    world.settle()
    assert not theirs.closed  # three messages stand before the news
    assert drain(theirs, 2) == numbered(2)
    world.settle()
    assert not theirs.closed
    assert theirs.send(b"sent before it learned of the close") is True
    assert theirs.receive_wait(timeout=10) == b"2"
    until(lambda: theirs.closed)
    assert theirs.send(b"sent after") is False
    until(lambda: my_history.reasons)
    assert my_history.messages == [b"sent before it learned of the close"]
    assert my_history.what("received", "closed")[-1] == END
    until(lambda: ended(theirs))


def ended(queue):
    try:
        assert queue.receive() is None
    except Closed:
        return True
    return False


def test_the_side_that_closed_still_takes_what_was_on_its_way(world):
    mine, theirs = world.pair()
    their_history = History()
    theirs.set_listener(their_history)
    for message in numbered(3):
        theirs.send(message)
    mine.close()
    until(lambda: theirs.closed)
    world.settle()
    assert their_history.reasons == []  # unread messages hold the end back
    assert drain(mine, 3) == numbered(3)
    until(lambda: their_history.reasons == [None])
    until(lambda: ended(mine))
    with pytest.raises(Closed) as caught:
        mine.receive_wait(timeout=10)
    assert caught.value.__cause__ is None


def test_unread_messages_at_the_other_end_hold_the_end_back(world):
    mine, theirs = world.pair()
    my_history = History()
    mine.set_listener(my_history)
    mine.send(b"unread")
    mine.close()
    world.settle()
    assert my_history.reasons == []
    assert theirs.receive_wait(timeout=10) == b"unread"
    until(lambda: my_history.reasons == [None])


def test_a_listener_set_late_gets_the_messages_and_then_the_end(world):
    mine, theirs = world.pair()
    for message in numbered(5):
        mine.send(message)
    mine.close()
    history = History()
    theirs.set_listener(history)
    until(lambda: history.reasons)
    assert history.events == [*received(numbered(5)), END]


def test_the_end_reaches_a_paused_listener_when_nothing_is_unread(world):
    mine, theirs, my_history, their_history = world.heard_pair()
    theirs.pause()
    mine.close()
    until(lambda: my_history.reasons and their_history.reasons)
    assert their_history.events == my_history.events == [END]


def test_full_queues_in_both_directions_drain_after_a_close(world):
    mine, theirs = world.pair(messages_max=4)
    there, back = [], []
    while mine.send(message := b"there%08d" % len(there) + bytes(1 << 20)):
        there.append(message)
    while theirs.send(message := b"back%08d" % len(back) + bytes(1 << 20)):
        back.append(message)
    mine.close()
    my_history, their_history = History(), History()
    mine.set_listener(my_history)
    theirs.set_listener(their_history)
    until(lambda: my_history.reasons and their_history.reasons)
    assert my_history.what("received", "closed") == [*received(back), END]
    assert their_history.what("received", "closed") == [*received(there), END]


def test_both_sides_closing_at_once_lose_nothing_and_end_once(two_pumps):
    world = two_pumps
    client, server = world.brokers()
    for round_number in range(40):
        mine, theirs = world.connected(client, server)
        my_history, their_history = History(), History()
        mine.set_listener(my_history)
        theirs.set_listener(their_history)
        start = threading.Barrier(2)

        def work(queue, start=start, count=round_number):
            start.wait(10)
            accepted = [m for m in numbered(count) if queue.send(m)]
            queue.close()
            return accepted

        at_mine, at_theirs = world.thread(work, mine), world.thread(work, theirs)
        there, back = at_mine.result(), at_theirs.result()
        until(lambda a=my_history, b=their_history: a.reasons and b.reasons)
        world.settle()
        assert their_history.what("received", "closed") == [*received(there), END]
        assert my_history.what("received", "closed") == [*received(back), END]
    assert client.queues == server.queues == []


def test_closing_again_or_aborting_after_the_end_changes_nothing(world):
    mine, theirs, my_history, their_history = world.heard_pair()
    mine.send(b"x")
    mine.close()
    mine.close()
    until(lambda: my_history.reasons and their_history.reasons)
    for queue in (mine, theirs):
        queue.close()
        queue.abort()
        queue.close()
    world.settle()
    assert my_history.events == [*sent([b"x"]), END]
    assert their_history.events == [*received([b"x"]), END]


def test_closing_both_sides_one_after_the_other_drains_both(world):
    mine, theirs = world.pair()
    for message in numbered(3):
        mine.send(message)
        theirs.send(message)
    mine.close()
    theirs.close()
    assert mine.closed
    assert theirs.closed
    assert drain(mine, 3) == drain(theirs, 3) == numbered(3)
    until(lambda: ended(mine) and ended(theirs))


def test_an_abort_after_a_close_tells_what_the_close_could_not_deliver(world):
    mine, theirs, my_history, their_history = world.heard_pair()
    theirs.pause()
    world.settle()
    for message in numbered(3):
        mine.send(message)
    mine.close()
    world.settle()
    mine.abort()
    until(lambda: my_history.reasons and their_history.reasons)
    world.settle()
    assert type(my_history.reason) is type(their_history.reason) is Aborted
    assert my_history.reason.undelivered == numbered(3)
    assert their_history.reason.unread == numbered(3)
    assert their_history.messages == []


def test_close_from_inside_received_lets_the_rest_arrive(world):
    mine, theirs = world.pair()
    their_history = History(on_received=lambda message: theirs.close())
    my_history = History()
    mine.set_listener(my_history)
    for message in numbered(5):
        mine.send(message)
    theirs.set_listener(their_history)
    until(lambda: my_history.reasons and their_history.reasons)
    assert their_history.events == [*received(numbered(5)), END]
    assert my_history.events == [*sent(numbered(5)), END]


def test_closing_on_the_pump_right_after_sending_loses_nothing(world):
    mine, _theirs, my_history, their_history = world.heard_pair()

    def work():
        accepted = [mine.send(message) for message in numbered(10)]
        mine.close()
        return accepted

    assert world.on_pump(world.client_pump, work) == [True] * 10
    until(lambda: my_history.reasons and their_history.reasons)
    assert their_history.events == [*received(numbered(10)), END]


def test_send_and_receive_inside_closed_find_the_end(world):
    mine, theirs = world.pair()
    found = []

    def look(reason):
        found.append((reason, mine.closed, mine.send(b"too late"), ended(mine)))

    mine.set_listener(History(on_closed=look))
    theirs.close()
    until(lambda: found)
    assert found == [(None, True, False, True)]


def test_a_source_refused_by_a_full_queue_that_closes_gets_no_answer_but_the_end(full_event):
    mine, theirs = full_event.pair(messages_max=2)
    source = Source(mine, numbered(50))
    source.start(full_event.client_pump)
    until(lambda: source.refusals == 1)
    mine.close()
    history = History()
    theirs.set_listener(history)
    until(lambda: source.reasons)
    full_event.settle()
    accepted = 50 - len(source.waiting)
    assert history.events == [*received(numbered(accepted)), END]
    assert source.reasons == [None]


@pytest.mark.parametrize("seed", range(5))
def test_sends_racing_with_a_close_either_arrive_or_return_false(two_pumps, seed):
    world = two_pumps
    mine, theirs, my_history, their_history = world.heard_pair()
    senders = 4
    begun = threading.Barrier(senders + 1)

    def work(sender):
        begun.wait(10)
        results = []
        while not results or results[-1][1] or not mine.closed:
            message = b"%d:%d" % (sender, len(results))
            results.append((message, mine.send(message)))
            if not results[-1][1]:
                time.sleep(0.005)  # refused threads that only yield starve the pumps
        return results

    workers = [world.thread(work, sender) for sender in range(senders)]
    begun.wait(10)
    until(lambda: len(their_history.messages) > 20 * seed)
    (theirs if seed % 2 else mine).close()
    results = [worker.result() for worker in workers]
    until(lambda: my_history.reasons and their_history.reasons)
    world.settle()
    for sender, outcome in enumerate(results):
        accepted = [message for message, taken in outcome if taken]
        got = [m for m in their_history.messages if m.startswith(b"%d:" % sender)]
        assert got == accepted
    assert their_history.reasons == my_history.reasons == [None]
    assert their_history.events[-1] == END
