"""Wrong arguments: a clear error of its own type, and nothing is changed."""

import pytest

from hocket.errors import BadName, HocketError, OutOfRange, WrongType
from hocket.local import AcceptListener, ConnectListener, MessageListener
from tests.support.queues.listeners import Accepts, Connects, History
from tests.support.queues.worlds import KINDS, PORT, drain, numbered
from tests.support.threads import until

NOT_A_PORT = ["80", 80.0, None, True, b"80", [80]]
NOT_A_NAME = [b"bytes", None, 5, ["name"]]


def by_type(value):
    return type(value).__name__


@pytest.mark.parametrize("wrong", NOT_A_PORT, ids=by_type)
def test_a_port_that_is_not_an_int_is_a_wrong_type(world, wrong):
    client, server = world.brokers()
    with pytest.raises(WrongType):
        server.bind(wrong, Accepts())
    with pytest.raises(WrongType):
        server.unbind(wrong)
    with pytest.raises(WrongType):
        client.connect("server", wrong, Connects())
    assert client.queues == server.queues == []


def test_a_negative_port_is_out_of_range(world):
    client, server = world.brokers()
    with pytest.raises(OutOfRange):
        server.bind(-1, Accepts())
    with pytest.raises(OutOfRange):
        server.unbind(-1)
    with pytest.raises(OutOfRange):
        client.connect("server", -1, Connects())


@pytest.mark.parametrize("wrong", NOT_A_NAME, ids=by_type)
def test_a_name_that_is_not_a_str_is_a_wrong_type(world, wrong):
    client, _ = world.brokers()
    with pytest.raises(WrongType):
        world.broker(wrong)
    connects = Connects()
    with pytest.raises(WrongType):
        client.connect(wrong, PORT, connects)
    world.settle()
    assert connects.answers == []
    assert len(world.known()) == 2


def test_an_empty_name_is_a_bad_name(world):
    client, _ = world.brokers()
    with pytest.raises(BadName):
        world.broker("")
    with pytest.raises(BadName):
        client.connect("", PORT, Connects())


def test_no_listener_is_a_wrong_type_and_leaves_the_port_free(world):
    client, server = world.brokers()
    with pytest.raises(WrongType):
        server.bind(PORT, None)
    assert server.unbind(PORT) is False
    with pytest.raises(WrongType):
        client.connect("server", PORT, None)
    mine, theirs = world.connected(client, server)
    mine.send(b"x")
    assert theirs.receive_wait(timeout=10) == b"x"


@pytest.mark.parametrize("wrong", [None, "pump", 5, object()], ids=by_type)
def test_a_pump_that_is_not_a_pump_is_a_wrong_type(world, wrong):
    with pytest.raises(WrongType):
        KINDS[world.kind]("name", wrong, world.manager)
    assert world.find("name") is None


@pytest.mark.parametrize("limit", ["messages_max", "bytes_max"])
@pytest.mark.parametrize("wrong", ["10", 1.5, None, True], ids=by_type)
def test_a_limit_that_is_not_an_int_is_a_wrong_type(two_pumps, limit, wrong):
    with pytest.raises(WrongType):
        two_pumps.broker("name", **{limit: wrong})
    assert two_pumps.find("name") is None


@pytest.mark.parametrize("wrong", ["1", b"1", True, [1]], ids=by_type)
def test_a_timeout_that_is_not_a_number_is_a_wrong_type(world, wrong):
    mine, theirs = world.pair()
    with pytest.raises(WrongType):
        mine.send_wait(b"x", timeout=wrong)
    with pytest.raises(WrongType):
        theirs.receive_wait(timeout=wrong)
    mine.send(b"after")
    assert theirs.receive_wait(timeout=10) == b"after"
    assert theirs.receive() is None


def test_a_timeout_that_is_not_a_number_at_all_is_out_of_range(world):
    mine, theirs = world.pair()
    with pytest.raises(OutOfRange):
        mine.send_wait(b"x", timeout=float("nan"))
    assert theirs.receive() is None


def test_errors_of_wrong_arguments_are_also_the_built_in_ones():
    assert issubclass(WrongType, TypeError)
    assert issubclass(OutOfRange, ValueError)
    assert issubclass(BadName, ValueError)
    assert issubclass(WrongType, HocketError)


def test_the_base_classes_have_every_method_as_a_no_op(world):
    client, server = world.brokers()
    client.connect("nobody", PORT, ConnectListener())
    server.bind(PORT, AcceptListener())
    client.connect("server", PORT, ConnectListener())
    until(lambda: client.queues and server.queues)
    (mine,), (theirs,) = client.queues, server.queues
    mine.set_listener(MessageListener())
    for message in numbered(3):
        mine.send(message)
    assert drain(theirs, 3) == numbered(3)
    history = History()
    theirs.set_listener(history)
    theirs.send(b"not for a listener that does nothing with it")
    assert drain(mine, 1) == [b"not for a listener that does nothing with it"]
    theirs.close()
    until(lambda: history.reasons)
    assert [event[0] for event in history.events] == ["sent", "closed"]
