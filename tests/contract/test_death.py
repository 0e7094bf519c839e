"""A side whose broker or pump dies looks like an abort to the other."""

import pytest

from hocket.errors import Aborted, Closed, HocketError
from tests.support.queues.listeners import Accepts, Connects, History
from tests.support.queues.worlds import PORT, World, drain, numbered
from tests.support.threads import until


@pytest.fixture(params=["full-event", "mixed"])
def one_pump(request):
    with World(request.param, 1) as made:
        yield made


def aborted(history):
    until(lambda: history.reasons)
    assert type(history.reason) is Aborted
    return history.reason


@pytest.mark.parametrize("side", ["client", "server"])
def test_closing_a_broker_aborts_its_live_queues(world, side):
    client, server = world.brokers()
    mine, theirs = world.connected(client, server)
    for message in numbered(5):
        mine.send(message)
        theirs.send(message)
    assert drain(theirs, 2) == numbered(2)
    my_history, their_history = History(), History()
    (client if side == "client" else server).close()
    mine.set_listener(my_history)
    theirs.set_listener(their_history)
    at_mine, at_theirs = aborted(my_history), aborted(their_history)
    assert at_mine.undelivered == at_theirs.unread == numbered(3, start=2)
    assert at_mine.unread == at_theirs.undelivered == numbered(5)
    assert mine.closed
    assert theirs.closed
    until(lambda: client.queues == server.queues == [])


def test_closing_a_broker_leaves_the_queues_of_others_alone(world):
    client, server = world.brokers()
    bystander = world.broker("bystander", world.server_pump)
    mine, theirs = world.connected(client, server)
    other_mine, other_theirs = world.connected(client, bystander)
    history = History()
    mine.set_listener(history)
    server.close()
    aborted(history)
    other_mine.send(b"there")
    other_theirs.send(b"back")
    assert other_theirs.receive_wait(timeout=10) == b"there"
    assert other_mine.receive_wait(timeout=10) == b"back"
    assert client.queues == [other_mine]
    assert theirs.closed


def test_a_broker_may_be_closed_from_inside_a_listener(world):
    client, server = world.brokers()
    mine, theirs = world.connected(client, server)
    their_history = History(on_received=lambda message: server.close())
    theirs.set_listener(their_history)
    my_history = History()
    mine.set_listener(my_history)
    mine.send(b"last words")
    aborted(my_history)
    aborted(their_history)
    assert [event[0] for event in their_history.events] == ["received", "closed"]
    assert world.find("server") is None


def test_a_pump_that_stops_delivers_what_was_sent_and_then_aborts(two_pumps):
    world = two_pumps
    mine, theirs, my_history, their_history = world.heard_pair()
    messages = numbered(200)
    for message in messages:
        mine.send_wait(message, timeout=10)
    world.server_pump.stop(drain=True)
    at_mine = aborted(my_history)
    at_theirs = aborted(their_history)
    if world.shares_objects:  # else: what was still on its way is reported instead
        assert their_history.messages == messages
    assert their_history.messages + at_mine.undelivered == messages
    assert at_theirs.unread == at_mine.undelivered
    assert their_history.events[-1] == ("closed", at_theirs)
    assert mine.closed
    assert theirs.closed
    assert mine.send(b"x") is False


def test_a_pump_that_stops_without_draining_reports_what_it_left(two_pumps):
    world = two_pumps
    mine, theirs = world.pair()
    my_history = History()
    mine.set_listener(my_history)
    messages = numbered(50)
    for message in messages:
        mine.send(message)
    got = drain(theirs, 10)
    world.server_pump.stop(drain=False)
    assert got + aborted(my_history).undelivered == messages
    assert theirs.closed


def test_a_pump_that_stops_with_nobody_reading_reports_everything_to_the_other_side(two_pumps):
    world = two_pumps
    mine, theirs = world.pair()
    my_history = History()
    mine.set_listener(my_history)
    for message in numbered(5):
        mine.send(message)
        theirs.send(message)
    until(lambda: len(my_history.messages) == 5)
    world.server_pump.stop()
    reason = aborted(my_history)
    assert reason.undelivered == numbered(5)
    assert reason.unread == []


def test_a_pump_that_stops_itself_from_a_listener_aborts_its_queues(two_pumps):
    world = two_pumps
    mine, theirs = world.pair()
    their_history = History(on_received=lambda message: world.server_pump.stop(drain=True))
    theirs.set_listener(their_history)
    my_history = History()
    mine.set_listener(my_history)
    assert mine.send(b"stop") is True
    assert aborted(my_history).undelivered == []
    aborted(their_history)
    assert their_history.messages == [b"stop"]


def test_both_ends_on_a_pump_that_stops_hear_of_the_end(one_pump):
    world = one_pump
    mine, theirs, my_history, their_history = world.heard_pair()
    for message in numbered(20):
        mine.send(message)
        theirs.send(message)
    world.client_pump.stop(drain=True)
    at_mine, at_theirs = aborted(my_history), aborted(their_history)
    assert their_history.messages + at_mine.undelivered == numbered(20)
    assert my_history.messages + at_theirs.undelivered == numbered(20)
    assert at_mine.undelivered == at_theirs.unread
    assert at_theirs.undelivered == at_mine.unread


def test_threads_that_wait_on_a_queue_are_woken_when_its_pump_stops(two_pumps):
    world = two_pumps
    mine, theirs = world.pair()
    here = world.thread(theirs.receive_wait, 20).parked()
    there = world.thread(mine.receive_wait, 20).parked()
    world.server_pump.stop()
    for waiting in (here, there):
        assert type(waiting.failure(Closed).__cause__) is Aborted


def test_a_stopped_pump_takes_no_broker_and_no_connect(two_pumps):
    world = two_pumps
    client, server = world.brokers()
    server.bind(PORT, Accepts())
    world.server_pump.stop()
    with pytest.raises(Closed):
        world.broker("late", world.server_pump)
    assert world.find("late") is None
    with pytest.raises(Closed):
        server.connect("client", PORT, Connects())
    connects = Connects()
    assert client.connect("server", PORT, connects) is True
    until(lambda: connects.answers)
    assert isinstance(connects.answers[0], HocketError)
    assert client.queues == []
    server.close()


def test_a_broker_on_a_pump_that_has_not_started_begins_with_it(two_pumps):
    world = two_pumps
    late = world.pump("late", start=False)
    client = world.broker("client")
    server = world.broker("server", late)
    accepts, connects = Accepts(), Connects()
    assert server.bind(PORT, accepts) is True
    client.connect("server", PORT, connects)
    world.settle()
    assert accepts.queues == []
    late.start()
    until(lambda: accepts.queues and connects.queues)
    connects.queues[0].send(b"x")
    assert accepts.queues[0].receive_wait(timeout=10) == b"x"
