"""Channels whose two ends are at brokers of two managers: level 1 over sockets, by every way."""

import asyncio

import pytest

from hocket.errors import Closed, Disconnected, NameInUse, Timeout, UnknownBroker
from hocket.local import Broker, Task
from hocket.local.channel import inbound_of
from tests.support.remote.served import ServedNode
from tests.support.threads import Running, noise, until


@pytest.fixture
def sides(way, certificates):
    with (
        ServedNode(way, certificates if way == "tls" else None) as node,
        node.manager() as one,
        node.manager() as other,
        Broker("here", one, buffer_bytes=5000) as here,
        Broker("there", other, buffer_bytes=7000) as there,
    ):
        yield here, there


def meet(here, there, port=1):
    met = []
    with Task(lambda: met.append(there.accept(port, timeout=30))):
        mine = here.connect(there.name, port, timeout=30)
    return mine, met.pop()


def test_bytes_go_both_ways_in_order_and_the_way_is_shown(sides, way):
    mine, theirs = meet(*sides)
    with mine, theirs:
        mine.write_all(b"there")
        theirs.write_all(b"and back")
        assert theirs.read_exactly(5, timeout=30) == b"there"
        assert mine.read_exactly(8, timeout=30) == b"and back"
        assert mine.way == theirs.way == ("node" if way == "node" else "direct")


def test_far_more_than_the_buffers_hold_arrives_whole(sides):
    mine, theirs = meet(*sides)
    data = noise(3_000_000)
    with mine, theirs:
        for writer, reader in ((mine, theirs), (theirs, mine)):
            with Task(lambda writer=writer: writer.write_all(data, timeout=60)):
                assert reader.read_exactly(len(data), timeout=60) == data


def test_a_writer_waits_for_a_reader_that_does_not_read(sides):
    mine, theirs = meet(*sides)
    with mine, theirs:
        with pytest.raises(Timeout) as cut_short:
            mine.write_all(bytes(100_000), timeout=0.5)
        written = cut_short.value.written
        assert 7000 <= written <= 5000 + 7000 + 7000
        assert theirs.read_exactly(written, timeout=30) == bytes(written)


def test_after_a_disconnect_the_other_side_reads_what_is_there_and_only_then_is_disconnected(sides):
    mine, theirs = meet(*sides)
    mine.write_all(b"last words")
    mine.disconnect()
    with pytest.raises(Disconnected):
        mine.write(b"x")
    assert theirs.read_exactly(4, timeout=30) == b"last"
    assert not theirs.disconnected
    with pytest.raises(Disconnected) as cut_short:
        theirs.read_exactly(10, timeout=30)
    assert cut_short.value.partial == b" words"
    until(lambda: theirs.disconnected)
    with pytest.raises(Disconnected):
        theirs.write(b"nobody will read this")


def test_who_leaves_when_the_other_side_has_no_room_left_is_heard_and_goes(sides):
    """All that was written is sent, and nothing of it was read: no other byte has room."""
    mine, theirs = meet(*sides)
    there_bytes = 7000
    mine.write_all(bytes(there_bytes), timeout=30)
    until(lambda: len(inbound_of(theirs)) == there_bytes)
    with Running(mine.disconnect) as leaving:
        leaving.result()
    assert theirs.read_exactly(there_bytes, timeout=30) == bytes(there_bytes)
    with pytest.raises(Disconnected):
        theirs.read_exactly(1, timeout=30)


def test_calls_that_wait_are_woken_when_the_other_side_leaves(sides):
    mine, theirs = meet(*sides)
    with Running(theirs.read, bytearray(1)) as reading:
        reading.parked()
        mine.disconnect()
        reading.failure(Disconnected)


def test_whoever_comes_first_waits_at_the_accepting_broker(sides):
    here, there = sides
    with Running(here.connect, "there", 5, 30) as connecting:
        until(lambda: [(each.side, each.port) for each in there.rendezvous] == [("connect", 5)])
        with there.accept(5, timeout=30) as theirs, connecting.result() as mine:
            assert mine.way == theirs.way != "local"
            mine.write_all(b"x")
            assert theirs.read_exactly(1, timeout=30) == b"x"
    assert there.rendezvous == []


def test_a_connect_that_gives_up_leaves_the_list(sides):
    here, there = sides
    with pytest.raises(Timeout):
        here.connect("there", 5, timeout=0.3)
    until(lambda: there.rendezvous == [])


def test_closing_the_accepting_broker_wakes_connects_with_closed(sides):
    here, there = sides
    with Running(here.connect, "there", 5, 30) as connecting:
        until(lambda: there.rendezvous)
        there.close()
        connecting.failure(Closed)
    with pytest.raises(UnknownBroker):
        here.connect("there", 5, timeout=30)


def test_a_name_is_of_one_broker_in_the_cluster(sides):
    here, there = sides
    with pytest.raises(NameInUse):
        Broker("there", here.manager)
    there.close()
    Broker("there", here.manager).close()


def test_a_thread_at_one_end_and_a_coroutine_at_the_other(sides):
    here, there = sides

    def thread_side():
        with there.accept(9, timeout=30) as channel:
            channel.write_all(b"from a thread")
            assert channel.read_exactly(3, timeout=30) == b"bye"

    async def coroutine_side():
        with await here.connect_async("there", 9, timeout=30) as channel:
            heard = await channel.read_exactly_async(13, timeout=30)
            await channel.write_all_async(b"bye")
            return heard

    with Task(thread_side):
        assert asyncio.run(coroutine_side()) == b"from a thread"
