"""A listener that raises, is slow, or acts from inside its own calls harms only itself."""

import threading

import pytest

from tests.support.queues.listeners import Accepts, Connects, Echo, History, Source
from tests.support.queues.worlds import PORT, drain, numbered
from tests.support.threads import until

END = ("closed", None)


def received(messages):
    return [("received", message) for message in messages]


def complain(*facts):
    raise LookupError(*facts)


def test_a_listener_that_raises_in_received_gets_the_next_message_too(world):
    mine, theirs, my_history, _ = world.heard_pair()
    history = History(on_received=complain)
    theirs.set_listener(history)
    for message in numbered(5):
        mine.send(message)
    mine.close()
    until(lambda: history.reasons and my_history.reasons)
    assert history.events == [*received(numbered(5)), END]
    assert my_history.events == [*(("sent", message) for message in numbered(5)), END]
    errors = world.take_errors(5)
    assert [type(error) for error in errors] == [LookupError] * 5
    assert [error.args for error in errors] == [(message,) for message in numbered(5)]


def test_a_listener_that_raises_in_sent_is_told_of_the_next(world):
    mine, theirs = world.pair()
    history = History(on_sent=complain)
    mine.set_listener(history)
    for message in numbered(5):
        mine.send(message)
    assert drain(theirs, 5) == numbered(5)
    errors = world.take_errors(5)
    assert [error.args for error in errors] == [(message,) for message in numbered(5)]
    assert history.events == [("sent", message) for message in numbered(5)]


def test_a_listener_that_raises_in_writable_is_called_again_after_the_next_refusal(full_event):
    mine, theirs = full_event.pair(messages_max=2)
    history = History(on_writable=complain)
    mine.set_listener(history)
    for rounds in range(1, 4):
        taken = 0
        while mine.send(b"x"):
            taken += 1
        drain(theirs, taken)
        until(lambda rounds=rounds: history.writables == rounds)
    full_event.take_errors(3)


@pytest.mark.parametrize("end", ["close", "abort"])
def test_a_listener_that_raises_in_closed_is_reported_and_the_other_side_ends_too(world, end):
    mine, theirs = world.pair()
    my_history, their_history = History(on_closed=complain), History(on_closed=complain)
    mine.set_listener(my_history)
    theirs.set_listener(their_history)
    getattr(mine, end)()
    until(lambda: my_history.reasons and their_history.reasons)
    errors = world.take_errors(2)
    assert [type(error) for error in errors] == [LookupError] * 2
    assert len(my_history.events) == len(their_history.events) == 1
    until(lambda: not any(world.find(name).queues for name in ("client", "server")))


def test_a_broken_listener_does_not_disturb_the_other_queues_of_its_pump(world):
    client, server = world.brokers()
    broken_mine, broken_theirs = world.connected(client, server)
    mine, theirs = world.connected(client, server)
    broken_theirs.set_listener(History(on_received=complain))
    history = History()
    theirs.set_listener(history)
    for message in numbered(20):
        broken_mine.send(message)
        mine.send(message)
    until(lambda: len(history.messages) == 20)
    assert history.messages == numbered(20)
    world.take_errors(20)


def test_a_slow_listener_holds_up_only_its_own_pump(two_pumps):
    world = two_pumps
    client, server = world.brokers()
    other = world.broker("other", world.pump("other-pump"))
    slow_mine, slow_theirs = world.connected(client, server)
    mine, theirs = world.connected(client, other)
    go_on = threading.Event()
    stuck = History(on_received=lambda message: go_on.wait(20))
    history = History()
    slow_theirs.set_listener(stuck)
    theirs.set_listener(history)
    slow_mine.send(b"slow")
    until(lambda: stuck.messages)
    for message in numbered(50):
        assert slow_mine.send(message) is True
        assert mine.send(message) is True
    until(lambda: len(history.messages) == 50)
    assert history.messages == numbered(50)
    assert stuck.messages == [b"slow"]
    go_on.set()
    until(lambda: len(stuck.messages) == 51)
    assert stuck.messages == [b"slow", *numbered(50)]


def test_a_slow_listener_makes_its_sender_see_a_full_queue(two_pumps):
    mine, theirs = two_pumps.pair(messages_max=4)
    go_on = threading.Event()
    history = History(on_received=lambda message: go_on.wait(20))
    theirs.set_listener(history)
    sent = []
    while mine.send(message := b"%08d" % len(sent) + bytes(1 << 20)):
        sent.append(message)
        assert len(sent) < 20
    go_on.set()
    until(lambda: len(history.messages) == len(sent))
    assert history.messages == sent


def test_send_from_inside_received_reaches_the_other_side(world):
    mine, theirs = world.pair()
    my_history = History()
    mine.set_listener(my_history)
    results = []
    theirs.set_listener(History(on_received=lambda m: results.append(theirs.send(b"re:" + m))))
    for message in numbered(30):
        mine.send(message)
    until(lambda: len(my_history.messages) == 30)
    assert my_history.messages == [b"re:" + message for message in numbered(30)]
    until(lambda: results == [True] * 30)  # the last one may have come before its `send` returned


def test_send_and_close_from_inside_received_delivers_both_ways(world):
    mine, theirs = world.pair()
    my_history = History()
    mine.set_listener(my_history)

    def answer_and_close(message):
        theirs.send(b"bye")
        theirs.close()

    their_history = History(on_received=answer_and_close)
    theirs.set_listener(their_history)
    mine.send(b"hello")
    until(lambda: my_history.reasons and their_history.reasons)
    assert my_history.what("received", "closed") == [("received", b"bye"), END]
    assert their_history.what("received", "closed") == [("received", b"hello"), END]


def test_a_listener_that_closes_and_raises_ends_gracefully(world):
    mine, theirs, my_history, _ = world.heard_pair()

    def close_and_raise(message):
        theirs.close()
        complain(message)

    history = History(on_received=close_and_raise)
    theirs.set_listener(history)
    mine.send(b"x")
    until(lambda: my_history.reasons and history.reasons)
    assert history.events == [("received", b"x"), END]
    (error,) = world.take_errors(1)
    assert error.args == (b"x",)


def test_a_listener_may_connect_and_bind_from_inside_its_calls(world):
    client, server = world.brokers()
    second = Accepts()
    connects = Connects()

    def more(message):
        server.bind(PORT + 7, second)
        server.connect("server", PORT + 7, connects)

    mine, theirs = world.connected(client, server)
    theirs.set_listener(History(on_received=more))
    mine.send(b"go")
    until(lambda: second.queues and connects.queues)
    assert len(server.queues) == 3


@pytest.mark.parametrize("polite", [True, False], ids=["polite", "greedy"])
def test_an_echo_server_under_full_queues_does_not_deadlock(world, polite):
    mine, theirs = world.pair(messages_max=2, bytes_max=1 << 16)
    echo = Echo(theirs, polite=polite)
    theirs.set_listener(echo)
    messages = [b"%d:" % n + bytes(n % 7 * 3000) for n in range(400)]
    source = Source(mine, messages)
    mine.pause()
    source.start(world.client_pump)
    until(lambda: source.refusals and echo.held_most)  # now it is full both ways
    mine.resume()
    until(lambda: len(source.messages) == 400, timeout=20)
    assert source.messages == messages
    assert echo.messages == messages
    assert not echo.held
    if polite:
        assert echo.held_most == 1


def test_echoes_at_both_ends_play_more_balls_than_fit(world):
    mine, theirs = world.pair(messages_max=2)
    balls = numbered(20)
    here, there = Echo(mine), Echo(theirs)
    mine.set_listener(here)
    theirs.set_listener(there)
    here.held.extend(balls)
    world.client_pump.post(here.flush)
    until(lambda: len(here.messages) > 500 and len(there.messages) > 500, timeout=20)
    for echo in (here, there):
        assert echo.messages[:500] == [balls[number % 20] for number in range(500)]
    mine.abort()
    until(lambda: here.reasons and there.reasons)
    world.settle()
    still = [*here.held, *there.held, *here.reason.undelivered, *here.reason.unread]
    assert sorted(still, key=int) == balls


def test_threads_flooding_both_ends_of_a_full_queue_do_not_deadlock(two_pumps):
    world = two_pumps
    mine, theirs = world.pair(messages_max=2)
    messages = [b"%d:" % n + bytes(20_000) for n in range(150)]

    def send(queue):
        for message in messages:
            queue.send_wait(message, timeout=20)

    workers = [world.thread(send, queue) for queue in (mine, theirs)]
    readers = [world.thread(drain, queue, 150) for queue in (mine, theirs)]
    for worker in workers:
        worker.result()
    assert [reader.result() for reader in readers] == [messages, messages]
