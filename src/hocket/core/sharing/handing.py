"""How far the consumers of a shared index have handed messages out, as far as they tell.

A consumer hands out what it was sent in the order of the Sends, and turns from one partition to the
next. It tells from time to time which message of a partition it hands out next; what comes before
that one in the partition was handed out, or dropped. When it dies, the deliveries of messages that
were handed out count, and that of the next one, which it may have died of. All others are in doubt:
see `core.sharing.state`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from hocket.core.sharing.consumer import Consumer
from hocket.core.sharing.leases import Leases
from hocket.core.sharing.ranges import clipped

WAITING_MAX = 1_000  # Sends that wait in a partition; with more, those that are settled are dropped
_FAR = 1 << 64  # behind every offset


def sent(
    consumer: Consumer, number: int, leases: Leases, ranges: Sequence[tuple[int, int, int]]
) -> None:
    """These messages of the partition go to the consumer, with one Send."""
    consumer.deliveries += 1
    waiting = consumer.waiting.setdefault(number, deque())
    waiting.append((consumer.deliveries, [(first, last) for first, last, _ in ranges]))
    if len(waiting) > max(WAITING_MAX, consumer.waiting_max):
        consumer.waiting[number] = deque(
            each
            for each in waiting
            if any(leases.first_of(consumer.number, *run) >= 0 for run in each[1])
        )
        consumer.waiting_max = 2 * len(consumer.waiting[number])


def told(
    consumer: Consumer, leases: Mapping[int, Leases], handed: Sequence[tuple[int, int, int]]
) -> set[int]:
    """The consumer tells (partition, Send, offset): see `CreditGiven`.

    Returns the partitions of which something may have changed.
    """
    known = [each for each in handed if each[0] in leases]
    for number, send, offset in known:
        leases[number].handed_out(consumer.number, consumer.passed(number, send, offset))
    if not known:
        return set()
    turn = known[0][0]
    waiting = consumer.waiting.get(turn)
    if not waiting or consumer.is_next != (turn, waiting[0][1][0][0]):
        consumer.turn = turn if waiting else -1
        consumer.is_next = None
    return {number for number, _, _ in known} | point_out(consumer, leases)


def point_out(consumer: Consumer, leases: Mapping[int, Leases]) -> set[int]:
    """Of what waits in the consumer, let the delivery of what is handed out next count.

    Returns the partition of which a count may have changed, if there is one.
    """
    if consumer.is_next is not None:
        number, offset = consumer.is_next
        if leases[number].is_handed_out(consumer.number, offset):
            return set()
    consumer.is_next = None
    for number in consumer.in_order():
        of_partition, waiting = leases[number], consumer.waiting[number]
        while waiting:
            send, runs = waiting[0]
            first = of_partition.first_of(consumer.number, *runs[0])
            if first < 0 and len(runs) > 1:
                firsts = (of_partition.first_of(consumer.number, *run) for run in runs[1:])
                first = next((at for at in firsts if at >= 0), -1)
            if first >= 0:
                if first > runs[0][0]:
                    waiting[0] = send, clipped(runs, first, _FAR)
                of_partition.is_next(first)
                consumer.turn, consumer.is_next = number, (number, first)
                return {number}
            waiting.popleft()  # all of it is settled
    consumer.turn = -1
    return set()
