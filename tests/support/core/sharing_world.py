"""The world around a dispatcher of shared indexes, and the plain story it must agree with.

Every message is an object that says what has become of it, and every rule is a loop over all of
them. The world reads, scans and logs for the dispatcher, plays its clients, and after each event
looks whether all that was done was right, and whether all was done that could be.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from hocket.core.sharing import (
    keys as share_keys,
    leases,
    ledger as share_ledger,
    maps as share_map,
    portions,
    state as share_state,
)
from hocket.core.sharing.dispatcher import Dispatcher
from hocket.core.sharing.events import (
    Advanced,
    Answer,
    Closing,
    CreditGiven,
    DeadLettered,
    Effect,
    EndConsumer,
    Event,
    Fetch,
    FetchDamaged,
    Fetched,
    FetchFailed,
    Joined,
    Left,
    PartitionAdded,
    Record,
    Reset,
    Revive,
    Revived,
    Scan,
    ScanFailed,
    Scanned,
    Send,
    Settle,
    Tick,
    Widened,
)
from hocket.core.sharing.leases import Leases
from hocket.core.sharing.state import (
    DOUBT,
    HELD,
    SUSPECT,
    ShareChange,
    ShareSettings,
    ShareState,
)

LEASE_US, GRACE_US = 100, 30
DEAD_LOG = 77  # the number of the log that has the dead letters
IN_FLIGHT_MAX, SPAN_MAX, GAP_MAX, FETCH_MAX = 14, 40, 4, 6
RECORD_BYTES, BATCH = 10, 3
# What holds already when it is said again, by what has become of the message.
HOLDING = {("ack", "settled"), ("reject", "settled"), ("reject", "dying")}
KEYS = [0, 1, 2, 1 + (1 << 16), 1 << 15, 40_000 + (1 << 40), 65_535]  # two of them in one slot


@pytest.fixture
def small_limits(monkeypatch):
    """Limits that a test of forty steps runs into."""
    for module in (leases, share_keys):
        monkeypatch.setattr(module, "GAP_MAX", GAP_MAX)
    monkeypatch.setattr(portions, "FETCH_MESSAGES_MAX", FETCH_MAX)
    monkeypatch.setattr(share_map, "COMPACT_MIN", 4)
    monkeypatch.setattr(share_ledger, "UNIT_MAX", 2)
    monkeypatch.setattr(share_ledger, "TIMERS_MAX", 6)
    monkeypatch.setattr(share_state, "HOLDERS_MAX", 3)
    monkeypatch.setattr(share_keys, "LOOKAHEAD", 10)
    monkeypatch.setattr(share_keys, "LEASABLE_MIN", 3)
    monkeypatch.setattr(share_keys, "FURTHER", 4)


@dataclass(slots=True)
class Message:
    key: int
    state: str = "available"  # reserved ones too: what is under way is in World.fetches
    count: int = 0
    holder: int = 0
    deadline: int = 0
    reason: str = ""  # of its death
    before: str = ""  # "settled" or "dying", if it was when this life of the broker began
    mark: str = ""  # "held" or "doubt" while it is with a consumer: whether that delivery counts
    suspect: bool = False  # it was with a consumer that died
    rest: int = 0  # before this time it is not delivered again: the delay of its last nack
    who: bytes = b""  # the identity of the consumer that it was last given to


@dataclass(slots=True)
class Log:
    """One partition."""

    messages: list[Message] = field(default_factory=list)  # by offset
    log_start: int = 0
    begin: int = 0  # the log start, or where the index was put
    begin_before: int = 0  # where it was when this life of the broker began, or was put since
    state: ShareState = field(default_factory=lambda: ShareState(0))  # as logged
    taken: list[tuple[str, int, list[tuple[Any, ...]]]] = field(default_factory=list)
    durable: int = 0  # so many of `taken` have been promised to somebody
    letters: int = 0  # how many dead letters there were

    @property
    def end(self) -> int:
        return len(self.messages)

    def open(self) -> Iterator[tuple[int, Message]]:
        for offset in range(self.begin, self.end):
            if self.messages[offset].state != "settled":
                yield offset, self.messages[offset]

    @property
    def start(self) -> int:
        return next((offset for offset, _ in self.open()), self.end)


@dataclass(slots=True)
class Client:
    identity: bytes
    partitions: tuple[int, ...] = ()
    number: int = 0  # 0: not connected
    credit_bytes: int = 0
    credit_messages: int = 0
    life_us: int = 0
    stalled: bool = False
    sated_until: int = 0
    served: int = 0
    was_here: bool = False  # in this life of the broker
    lost: set[tuple[int, int]] = field(default_factory=set)  # with a link, and not got back
    tells: bool = False
    deliveries: int = 0
    # (number of the delivery, partition, offset) that it has not told to be handed out
    sent: list[tuple[int, int, int]] = field(default_factory=list)
    turn: int = -1
    next: tuple[int, int] | None = None


class World:
    def __init__(
        self, mode: str, *, partitions: int, settings: ShareSettings, immortal: bool
    ) -> None:
        self.mode, self.settings, self.immortal = mode, settings, immortal
        self.now_us = 1_000
        self.logs = {number: Log() for number in range(partitions)}
        self.clients = [Client(bytes((n,)) * 16) for n in range(3)]
        self.vanished: dict[bytes, int] = {}
        self.last_number = 0
        self.last_token = 0
        self.seen: Counter[str] = Counter()
        for log in self.logs.values():
            log.state.apply(ShareChange(settings=settings, clean=True))
            self.remember(log)
        self.open()

    def open(self) -> None:
        """The index is attached to, for the first time in this life of the broker."""
        self.sharing = Dispatcher(self.mode)
        self.fetches: dict[int, tuple[Fetch, list[int]]] = {}
        self.scans: list[Scan] = []
        self.resting: set[int] = set()
        self.closing = False
        effects: list[Effect] = []
        for number, log in self.logs.items():
            made = Leases(
                log.state,
                end=log.end,
                now_us=self.now_us,
                immortal=self.immortal,
                grace_us=GRACE_US,
                in_flight_max=IN_FLIGHT_MAX,
                span_max=SPAN_MAX,
            )
            log.state.apply(ShareChange())
            effects += self.sharing.step(PartitionAdded(number, made))
        self.hear(effects)

    # --- the story -------------------------------------------------------------------------------

    def end_lease(self, message: Message, why: str, until: int = 0) -> None:
        message.holder = 0
        if message.count >= self.settings.max_deliveries and not self.immortal:
            message.state = "dying"
            message.reason = f"{message.count} deliveries, the last one {why}"
        elif until:
            message.state, message.deadline = "resting", until
            message.rest = until
        else:
            message.state = "available"

    def pass_time(self, partitions: Any) -> None:
        for number in partitions:
            for _, message in self.logs[number].open():
                if message.deadline > self.now_us:
                    continue
                if message.state == "leased":
                    self.note_silence(message.holder, message.deadline)
                    message.suspect = self.is_dead(message.holder, message.deadline)
                    self.seen["suspected"] += message.suspect
                    self.without_doubt(message)
                    self.end_lease(message, "not acknowledged in time")
                    self.seen["expired"] += 1
                elif message.state == "resting":
                    message.state = "available"
                elif message.state == "withheld":
                    if message.mark == "held":
                        message.suspect = True
                        self.seen["suspected at a restart"] += 1
                    self.without_doubt(message)
                    self.end_lease(message, "not acknowledged before the broker restarted")

    def without_doubt(self, message: Message) -> None:
        """It is with nobody now, and nobody said that it was handed out if it is in doubt."""
        if message.mark == "doubt":
            message.count -= 1
            self.seen["not counted"] += 1
        message.mark = ""

    def is_dead(self, number: int, deadline: int) -> bool:
        return all(
            client.number != number or client.life_us <= deadline - self.settings.lease_us
            for client in self.clients
        )

    def note_silence(self, number: int, deadline: int) -> None:
        for client in self.clients:
            if client.number == number and client.life_us <= deadline - self.settings.lease_us:
                client.stalled = True
                self.seen["stalled"] += 1

    def leases_of(self, number: int) -> list[Message]:
        return [
            message
            for log in self.logs.values()
            for _, message in log.open()
            if message.state == "leased" and message.holder == number
        ]

    # --- clients ---------------------------------------------------------------------------------

    def join(
        self,
        client: Client,
        partitions: tuple[int, ...],
        credit: int,
        held: list[Any],
        *,
        tells: bool = False,
    ) -> None:
        self.pass_time(self.logs)
        if client.number:
            self.break_link(client)
        former = client.number or self.vanished.pop(client.identity, 0)
        for number, fetch in list(self.fetches.items()):
            if fetch[0].consumer == former:
                del self.fetches[number]
        self.last_number += 1
        claimed = {(p, offset) for p, start, end in held for offset in range(start, end)}
        if former:
            self.seen["came back"] += 1
        for p, log in self.logs.items():
            for offset, message in log.open():
                if former and message.state == "leased" and message.holder == former:
                    if (p, offset) in claimed:
                        message.holder, message.mark = self.last_number, "held"
                        message.deadline = self.now_us + self.settings.lease_us
                    else:
                        message.state, message.holder, message.mark = "available", 0, ""
                        message.count -= 1
        for p, log in self.logs.items():
            for offset, message in log.open():
                room = IN_FLIGHT_MAX - self.in_flight(p)
                near = offset < log.start + SPAN_MAX
                if message.state == "withheld" and (p, offset) in claimed and room and near:
                    message.state, message.holder = "leased", self.last_number
                    message.deadline = self.now_us + self.settings.lease_us
                    message.count, message.mark = max(1, message.count), "held"
                    message.who = client.identity
                    self.seen["claimed"] += 1
        for p, log in self.logs.items():
            for offset, message in log.open():
                was_its_own = message.mark and message.who == client.identity
                if message.state == "withheld" and was_its_own and (p, offset) not in claimed:
                    self.seen[f"{message.mark} by one that outlived the broker"] += 1
                    message.state, message.mark = "available", ""
                    message.count -= 1
        client.lost -= {
            (p, offset)
            for p, log in self.logs.items()
            for offset, message in log.open()
            if message.state == "leased" and message.holder == self.last_number
        }
        replaced = client.number
        client.number, client.partitions = self.last_number, partitions
        client.credit_bytes, client.credit_messages = credit * RECORD_BYTES, credit
        client.life_us, client.stalled, client.sated_until = self.now_us, False, 0
        client.served = 0
        client.tells, client.deliveries = tells, 0
        client.sent, client.turn, client.next = [], -1, None
        effects = self.sharing.step(
            Joined(
                client.number,
                client.identity,
                partitions,
                client.credit_bytes,
                credit,
                held,
                self.now_us,
                tells,
            )
        )
        ended = [effect.consumer for effect in effects if isinstance(effect, EndConsumer)]
        assert ended == ([replaced] if replaced else [])
        self.hear([effect for effect in effects if not isinstance(effect, EndConsumer)])
        if replaced:  # as the broker does when it has ended the older one
            self.step(Left(replaced, True, self.now_us))

    def leave(self, client: Client, graceful: bool) -> None:
        for fetch, (effect, _) in list(self.fetches.items()):
            if effect.consumer == client.number:
                del self.fetches[fetch]
        for message in self.leases_of(client.number):
            if graceful:
                message.mark, message.suspect = "", False
                self.end_lease(message, "not acknowledged before its consumer closed")
            else:
                message.deadline = min(message.deadline, self.now_us + GRACE_US)
        if not graceful:
            self.vanished[client.identity] = client.number
            self.break_link(client)
        else:
            client.was_here, client.lost = False, set()
        number, client.number = client.number, 0
        self.step(Left(number, graceful, self.now_us))

    def widen(self, client: Client, partition: int) -> None:
        if partition not in client.partitions:
            client.partitions = (*client.partitions, partition)
        self.step(Widened(client.number, partition))

    def give_credit(self, client: Client, messages: int, handed: Any = ()) -> None:
        client.credit_messages += messages
        client.credit_bytes += messages * RECORD_BYTES
        client.sated_until = 0 if messages else client.sated_until
        self.shows_life(client)
        self.tell(client, [each for each in handed if each[0] in self.logs])
        self.step(
            CreditGiven(client.number, messages * RECORD_BYTES, messages, self.now_us, handed),
        )

    def tell(self, client: Client, handed: list[tuple[int, int, int]]) -> None:
        for at, number, offset in handed:
            for each in list(client.sent):
                n, p, o = each
                if p == at and (n, o) < (number, offset):
                    client.sent.remove(each)
                    if self.has(client, p, o):
                        self.seen["told"] += self.logs[p].messages[o].mark == "doubt"
                        self.logs[p].messages[o].mark = "held"
        if handed:
            turn = handed[0][0]
            left = [(p, o) for _, p, o in client.sent if p == turn]
            if client.next not in left[:1]:
                client.turn = turn if left else -1
                client.next = None
            self.point_out(client)

    def has(self, client: Client, p: int, offset: int) -> bool:
        log = self.logs[p]
        message = log.messages[offset]
        there = offset >= log.begin and message.state == "leased"
        return there and message.holder == client.number

    def point_out(self, client: Client) -> None:
        """The delivery of what the client hands out next counts."""
        if client.next and self.has(client, *client.next):
            p, offset = client.next
            if self.logs[p].messages[offset].mark == "held":
                return
        partitions = list(dict.fromkeys(p for _, p, _ in client.sent))
        for p in sorted(partitions, key=lambda p: p != client.turn):
            for each in [each for each in client.sent if each[1] == p]:
                if self.has(client, p, each[2]):
                    self.logs[p].messages[each[2]].mark = "held"
                    client.turn, client.next = p, (p, each[2])
                    return
                client.sent.remove(each)
        client.turn, client.next = -1, None

    def shows_life(self, client: Client) -> None:
        client.life_us, client.stalled = self.now_us, False

    def settle(
        self,
        client: Client,
        action: str,
        ranges: list[Any],
        duration: int = 0,
        reason: str = "",
        again: bool = False,
    ) -> None:
        self.shows_life(client)
        if action == "release" and ranges:
            client.sated_until = self.now_us + self.settings.lease_us
        self.pass_time({p for p, _, _ in ranges})
        refused = []
        held = set()  # partitions in which something holds already
        for p, start, end in ranges:
            log = self.logs[p]
            for offset in range(start, end):
                message = log.messages[offset] if log.begin <= offset < log.end else None
                state = "settled" if offset < log.begin else message and message.state
                if (
                    again
                    and (action, state) in HOLDING
                    and (state == "dying" or self.has_settled(client, action, p, offset))
                ):
                    held.add(p)
                    self.seen[f"{action} holds, {state}"] += 1
                elif message is None or (message.state, message.holder) != (
                    "leased",
                    client.number,
                ):
                    refused.append((p, offset))
                else:
                    self.settle_one(message, action, duration, reason)
        self.point_out(client)
        self.last_token += 1
        effects = self.sharing.step(
            Settle(
                client.number, self.last_token, action, ranges, duration, reason, self.now_us, again
            )
        )
        (answer,) = [effect for effect in effects if isinstance(effect, Answer)]
        records = [effect for effect in effects if isinstance(effect, Record)]
        assert [effect.token for effect in records] == [self.last_token] * answer.waits_for
        logged = {effect.partition for effect in records}
        assert held <= logged, "the answer says what holds before the log may have it"
        assert (answer.consumer, answer.token) == (client.number, self.last_token)
        answered = [(p, offset) for p, low, high in answer.refused for offset in range(low, high)]
        if again:  # what is named twice is named once in the answer
            answered, refused = list(set(answered)), list(set(refused))
        assert sorted(answered) == sorted(refused), "refused exactly what it does not hold"
        self.seen["refused"] += len(refused)
        self.hear([effect for effect in effects if effect is not answer])
        for p in {p for p, _, _ in ranges}:
            self.logs[p].durable = len(self.logs[p].taken)

    def has_settled(self, client: Client, action: str, p: int, offset: int) -> bool:
        """Whether it may be the first telling of this client by which the message is settled."""
        log = self.logs[p]
        if client.was_here:
            return (p, offset) not in client.lost
        before = ("settled", "dying") if action == "reject" else ("settled",)
        return offset < log.begin_before or log.messages[offset].before in before

    def break_link(self, client: Client) -> None:
        client.was_here = True
        for p, log in self.logs.items():
            for offset, message in log.open():
                if message.state == "leased" and message.holder == client.number:
                    client.lost.add((p, offset))

    def settle_one(self, message: Message, action: str, duration: int, reason: str) -> None:
        self.seen[action] += 1
        self.seen[f"{action} of a suspect"] += message.suspect
        if action == "ack":
            message.state, message.holder, message.suspect = "settled", 0, False
        elif action == "nack":
            until = self.now_us + duration if duration else 0
            message.mark, message.suspect = "", False
            self.end_lease(message, "refused by its consumer", until)
        elif action == "extend":
            message.deadline = self.now_us + (duration or self.settings.lease_us)
        elif action == "reject":
            message.state, message.holder, message.reason = "dying", 0, reason
            message.suspect = False
        else:
            message.state, message.holder, message.mark = "available", 0, ""
            message.count -= 1

    # --- the partition ---------------------------------------------------------------------------

    def append(self, p: int, keys: list[int]) -> None:
        log = self.logs[p]
        log.messages += [Message(key) for key in keys]
        self.step(Advanced(p, log.log_start, log.end))

    def move_log_start(self, p: int, offset: int) -> None:
        log = self.logs[p]
        for message in log.messages[log.begin : offset]:
            message.state, message.holder, message.count = "settled", 0, 0
            message.suspect = False
        log.log_start, log.begin = offset, max(log.begin, offset)
        log.state.log_start_moved(offset)
        self.remember(log)
        self.step(Advanced(p, offset, log.end))

    def reset(self, p: int, offset: int) -> None:
        log = self.logs[p]
        log.begin = log.begin_before = offset
        for o in range(offset, log.end):
            log.messages[o] = Message(log.messages[o].key)
        for fetch, (effect, _) in list(self.fetches.items()):
            if effect.partition == p:
                del self.fetches[fetch]
        self.scans = [scan for scan in self.scans if scan.partition != p]
        for client in self.clients:
            client.sent = [each for each in client.sent if each[1] != p]
        self.step(Reset(p, offset))

    def dead_letter(self, p: int, start: int, end: int) -> None:
        log = self.logs[p]
        for offset in range(max(start, log.begin), min(end, log.end)):
            if log.messages[offset].state == "dying":
                log.messages[offset].state = "settled"
                self.seen["buried"] += 1
        self.step(DeadLettered(p, start, end))

    def revive(self, p: int, offsets: list[int], *, again: bool) -> None:
        """Deliver these again, by new dead letters, or `again` by some that are used up."""
        log = self.logs[p]
        used_up = log.state.revived_to.get(DEAD_LOG, 0)
        letters = [(offset, log.letters + at) for at, offset in enumerate(offsets)]
        if again:
            letters = [(offset, used_up - 1) for offset in offsets[:used_up]]
        if not letters:
            return
        log.letters = max(log.letters, letters[-1][1] + 1)
        back = [] if again else [o for o in offsets if log.messages[o].state == "settled"]
        for offset in back:
            log.messages[offset] = Message(log.messages[offset].key)
        if back and self.mode == "key_shared":
            self.scans = [scan for scan in self.scans if scan.partition != p]
        self.seen["not revived again" if again else "revived" if back else "not revived"] += 1
        self.revived = back
        self.step(Revive(p, letters, DEAD_LOG, 1))
        assert log.state.revived_to[DEAD_LOG] > letters[-1][1], "it would be revived once more"

    def tick(self, passed: int) -> None:
        self.now_us += passed
        self.resting.clear()
        for client in self.clients:
            client.sated_until = client.sated_until if client.sated_until > self.now_us else 0
        self.pass_time(self.logs)
        self.vanished = {
            identity: number for identity, number in self.vanished.items() if self.leases_of(number)
        }
        self.step(Tick(self.now_us))

    # --- the driver ------------------------------------------------------------------------------

    def fetched(self, number: int, *, lost: int = 0) -> None:
        """As the log reads it: whole batches, the first one even if it is too large."""
        fetch, reserved = self.fetches.pop(number)
        log, client = self.logs[fetch.partition], self.client(fetch.consumer)
        end = size = 0
        at = first = max(fetch.start + lost, log.begin) // BATCH * BATCH
        while at < fetch.end and (not size or size + BATCH * RECORD_BYTES <= fetch.bytes_max):
            end, size = min(at + BATCH, fetch.end), size + BATCH * RECORD_BYTES
            at += BATCH
        start = 0 if not lost else max(fetch.start + lost, first)
        gone = [offset for offset in reserved if log.begin <= offset < start]
        for offset in gone:
            log.messages[offset].state, log.messages[offset].suspect = "settled", False
        read = [offset for offset in reserved if max(start, log.begin) <= offset < end]
        if not read and start <= fetch.start:
            self.resting.add(fetch.partition)
        if read:
            client.credit_bytes -= size
            client.credit_messages -= len(read)
        effects = self.sharing.step(Fetched(number, end, size, self.now_us, start))
        sends = [effect for effect in effects if isinstance(effect, Send)]
        assert len(sends) == bool(read)
        for send in sends:
            self.check_send(send, fetch, read)
        self.hear([effect for effect in effects if not isinstance(effect, Send)])

    def check_send(self, send: Send, fetch: Fetch, read: list[int]) -> None:
        client = self.client(send.consumer)
        assert (send.fetch, send.consumer) == (fetch.fetch, fetch.consumer)
        sent = [(offset, n) for low, high, n in send.ranges for offset in range(low, high)]
        assert [offset for offset, _ in sent] == read, "what was reserved and read, in order"
        for offset, count in sent:
            message = self.logs[fetch.partition].messages[offset]
            assert message.state == "available", f"{offset} is {message.state}, and was leased"
            message.state, message.holder = "leased", send.consumer
            message.who = client.identity
            client.lost.discard((fetch.partition, offset))
            message.deadline = self.now_us + self.settings.lease_us
            message.count += 1
            message.mark = "doubt" if client.tells else "held"
            assert count == message.count, "the count that is sent"
        client.deliveries += 1
        if client.tells:
            client.sent += [(client.deliveries, fetch.partition, offset) for offset in read]
            self.point_out(client)
        suspects = [message for message in self.leases_of(client.number) if message.suspect]
        if any(self.logs[fetch.partition].messages[offset].suspect for offset in read):
            assert len(read) == 1
            assert send.alone
            self.seen["leased alone"] += 1
        assert suspects or not send.alone
        self.seen["leased"] += len(sent)

    def nothing_fetched(self, number: int, failed: bool) -> None:
        fetch, _ = self.fetches.pop(number)
        self.resting.add(fetch.partition)
        if failed:
            self.step(FetchFailed(number))
        else:
            self.step(Fetched(number, fetch.start, 0, self.now_us))

    def damaged(self, number: int, before: int, behind: int) -> None:
        """The first message of the fetch is damaged, and so many before and behind it."""
        fetch, reserved = self.fetches.pop(number)
        start, end = max(0, fetch.start - before), fetch.start + 1 + behind
        log = self.logs[fetch.partition]
        for offset in reserved:
            if start <= offset < end and offset >= log.begin:
                log.messages[offset].state, log.messages[offset].suspect = "dying", False
                log.messages[offset].reason = "damaged"
                self.seen["damaged"] += 1
        self.step(FetchDamaged(number, start, end, "damaged"))

    def scanned(self, which: int, limit: int) -> None:
        scan = self.scans.pop(which % len(self.scans))
        keys = [m.key for m in self.logs[scan.partition].messages[scan.start : scan.end]]
        self.step(Scanned(scan.partition, scan.start, keys[:limit]))

    def scan_failed(self, which: int) -> None:
        self.step(ScanFailed(self.scans.pop(which % len(self.scans)).partition))

    # --- lives and deaths of the broker ----------------------------------------------------------

    def close(self) -> None:
        self.closing = True
        self.fetches.clear()
        self.step(Closing())

    def restart(self, lost: int) -> None:
        """The log keeps all that was promised, and perhaps more; the rest of what was is gone."""
        clean = self.closing
        for log in self.logs.values():
            keep = max(log.durable, len(log.taken) - (0 if clean else lost), 1)
            snapshot, begin, told = log.taken[keep - 1]
            log.begin = max(begin, log.log_start)
            del log.taken[keep:]
            log.durable = min(log.durable, keep)
            log.state = ShareState.restore(json.loads(snapshot))
            log.state.log_start_moved(log.begin)
            log.begin_before = log.begin
            lent = [o for low, high in log.state.lent for o in range(low, high)]
            for offset in range(log.begin, log.end):
                message = log.messages[offset]
                was = message.state
                unknown = ("available", 0, "", "", False, 0, b"")
                (
                    then, message.count, message.reason, message.mark, message.suspect,
                    message.rest, message.who,
                ) = told[offset] if offset < len(told) else unknown  # fmt: skip
                self.seen["suspect still"] += message.suspect
                message.holder, message.deadline = 0, self.now_us + GRACE_US
                message.before = then if then in ("settled", "dying") else ""
                if then in ("settled", "dying"):
                    message.state = then
                    continue
                assert clean <= log.state.clean
                if message.rest > self.now_us:
                    message.state, message.deadline = "resting", message.rest
                    self.seen["rests still"] += 1
                elif offset in lent or not (log.state.clean or self.settings.failover == "fast"):
                    message.state = "withheld"
                else:
                    self.without_doubt(message)
                    self.end_lease(message, "not acknowledged before the broker restarted")
                if clean and was in ("leased", "withheld"):
                    assert message.state == "withheld"
        for client in self.clients:
            client.number, client.was_here, client.lost = 0, False, set()
        self.vanished.clear()
        self.seen["restarted cleanly" if clean else "crashed"] += 1
        self.open()

    def remember(self, log: Log) -> None:
        told = [
            (
                message.state,
                message.count,
                message.reason,
                message.mark,
                message.suspect,
                message.rest,
                message.who,
            )
            for message in log.messages
        ]
        log.taken.append((json.dumps(log.state.snapshot()), log.begin, told))

    # --- what the dispatcher does ----------------------------------------------------------------

    def step(self, event: Event) -> None:
        self.hear(self.sharing.step(event))

    def hear(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Record):
                self.logged(effect)
            elif isinstance(effect, Revived):
                found = [offset for low, high in effect.ranges for offset in range(low, high)]
                assert found == sorted(self.revived)
            elif isinstance(effect, Scan):
                assert self.mode == "key_shared"
                assert effect.partition not in [scan.partition for scan in self.scans]
                assert effect.start < effect.end <= self.logs[effect.partition].end
                assert effect.end <= self.logs[effect.partition].start + SPAN_MAX
                self.scans.append(effect)
            else:
                assert isinstance(effect, Fetch), f"unexpected: {effect}"
                self.check_fetch(effect)
        self.check()

    def logged(self, record: Record) -> None:
        log = self.logs[record.partition]
        change = ShareChange.decode(json.loads(json.dumps(record.change.encode())))
        log.state.apply(change)
        self.remember(log)

    def check_fetch(self, fetch: Fetch) -> None:
        p, client = fetch.partition, self.client(fetch.consumer)
        assert not self.closing
        assert p in client.partitions
        assert p not in self.resting
        assert all(
            (f.consumer, f.partition) != (fetch.consumer, p) for f, _ in self.fetches.values()
        )
        runs = self.sharing._fetches[fetch.fetch].runs
        reserved = [offset for low, high in runs for offset in range(low, high)]
        eligible = self.eligible(client, p)
        room = IN_FLIGHT_MAX - self.in_flight(p)
        assert reserved == eligible[: len(reserved)], "the lowest that it may have"
        assert (fetch.start, fetch.end) == (reserved[0], reserved[-1] + 1)
        gaps = [later - earlier - 1 for earlier, later in pairwise(reserved)]
        assert max(gaps, default=0) < GAP_MAX
        assert 0 < fetch.bytes_max <= self.bytes_left(client)
        assert 0 < len(reserved) <= min(self.messages_left(client), room, FETCH_MAX)
        self.check_fair(client, p, len(reserved), min(room, len(self.free(p))))
        self.fetches[fetch.fetch] = fetch, reserved
        client.served = fetch.fetch

    def check_fair(self, client: Client, p: int, count: int, available: int) -> None:
        rivals = [each for each in self.clients if self.could_fetch(each, p)]
        assert client in rivals
        for rival in rivals:
            if (rival.stalled, rival.served) < (client.stalled, client.served):
                assert not self.eligible(rival, p), "another one has waited longer"
        if client.stalled:
            assert count == 1
        else:
            ready = sum(not rival.stalled for rival in rivals)
            if self.mode == "shared":
                assert count <= -(-available // ready), "more than an even share"

    def could_fetch(self, client: Client, p: int) -> bool:
        """Whether it is ready for this partition; what there is for it is another matter."""
        if (
            not client.number
            or p not in client.partitions
            or p in self.resting
            or client.sated_until
        ):
            return False
        under_way = [f.partition for f, _ in self.fetches.values() if f.consumer == client.number]
        if client.stalled and (under_way or self.leases_of(client.number)):
            return False
        return p not in under_way and self.bytes_left(client) > 0 and self.messages_left(client) > 0

    def eligible(self, client: Client, p: int) -> list[int]:
        """What of this partition it may have now, by brute force."""
        under_way = [
            self.logs[fetch.partition].messages[offset]
            for fetch, some in self.fetches.values()
            for offset in some
            if fetch.consumer == client.number and offset >= self.logs[fetch.partition].begin
        ]
        in_hand = self.leases_of(client.number)
        if any(message.suspect for message in in_hand + under_way):
            return []
        is_free = not in_hand and all(
            fetch.consumer != client.number for fetch, _ in self.fetches.values()
        )
        waits = False  # a suspect of another partition
        for q in client.partitions:
            found = self.may_have(client, q)
            if q in self.resting or self.in_flight(q) >= IN_FLIGHT_MAX or not found:
                continue
            if self.logs[q].messages[found[0]].suspect:
                if q == p:
                    return found[:1] if is_free else []
                waits = True
        if waits:
            return []
        found = self.may_have(client, p)
        messages = self.logs[p].messages
        suspects = [at for at, offset in enumerate(found) if messages[offset].suspect]
        return found[: suspects[0]] if suspects else found

    def free(self, p: int) -> dict[int, bool]:
        taken = self.reserved(p)
        limit = self.logs[p].start + SPAN_MAX
        return {
            offset: True
            for offset, message in self.logs[p].open()
            if message.state == "available" and offset not in taken and offset < limit
        }

    def may_have(self, client: Client, p: int) -> list[int]:
        """The same, if no message were suspect."""
        log = self.logs[p]
        taken = self.reserved(p)
        free = self.free(p)
        if self.mode == "shared":
            return list(free)
        order = self.sharing._leases[p].keys
        assert order is not None
        if any(m.state == "leased" and o >= order.scanned for o, m in log.open()):
            assert not order.is_ready, "a key that is not known may be with somebody else"
        if not order.is_ready:
            return []
        waiting: set[int] = set()  # keys of which an earlier one rests, dies or is withheld
        elsewhere = {
            log.messages[offset].key % 65_536
            for fetch, reserved in self.fetches.values()
            for offset in reserved
            if fetch.partition == p and fetch.consumer != client.number and offset >= log.begin
        } | {m.key % 65_536 for _, m in log.open() if m.holder not in (0, client.number)}
        found = []
        for offset, message in log.open():
            if offset >= order.scanned:
                break
            mine = order._slots.owner(message.key % 65_536) == client.number
            if offset in free:
                allowed = mine and message.key % 65_536 not in elsewhere
                if not message.key or (allowed and message.key not in waiting):
                    found.append(offset)
            elif message.state != "leased" and offset not in taken:
                waiting.add(message.key)
        return found

    def reserved(self, p: int) -> set[int]:
        return {o for fetch, some in self.fetches.values() if fetch.partition == p for o in some}

    def in_flight(self, p: int) -> int:
        log = self.logs[p]
        leased = sum(message.state == "leased" for _, message in log.open())
        return leased + sum(offset >= log.begin for offset in self.reserved(p))

    def bytes_left(self, client: Client) -> int:
        return client.credit_bytes - sum(
            f.bytes_max for f, _ in self.fetches.values() if f.consumer == client.number
        )

    def messages_left(self, client: Client) -> int:
        return client.credit_messages - sum(
            len(some) for f, some in self.fetches.values() if f.consumer == client.number
        )

    def client(self, number: int) -> Client:
        (found,) = [client for client in self.clients if client.number == number]
        return found

    # --- what is always so -----------------------------------------------------------------------

    def check(self) -> None:
        for p, log in self.logs.items():
            self.check_state(log)
            assert self.sharing.leased(p) == sum(m.state == "leased" for _, m in log.open())
            in_flight = self.in_flight(p)
            assert in_flight <= IN_FLIGHT_MAX
            if self.closing or in_flight == IN_FLIGHT_MAX:
                continue
            for client in self.clients:
                if self.could_fetch(client, p):
                    left = self.eligible(client, p)
                    assert not left, f"{left} of {p} are left, and {client} is ready"

    def check_state(self, log: Log) -> None:
        """What was logged is what has become of the messages."""
        state = log.state
        done, counts = state.maps()
        marks = state.marks()
        assert state.start == max(log.start, log.begin)
        dying = {o: unit for unit in state.dying for o in range(unit.start, unit.end)}
        holders = {o: who for start, end, who in state.holders() for o in range(start, end)}
        for offset, message in log.open():
            at = offset - state.start
            assert not done[at : at + 1].strip(b"\0"), f"{offset} is settled in the log only"
            if message.state == "dying":
                assert offset in dying, f"the log does not know that {offset} is dying"
                unit = dying.pop(offset)
                assert (unit.deliveries, unit.reason) == (message.count, message.reason)
            else:
                assert counts[at : at + 1].strip(b"\0") == bytes([message.count]).strip(b"\0")
                mark = {"": 0, "held": HELD, "doubt": DOUBT}[message.mark]
                mark |= SUSPECT if message.suspect else 0
                assert marks[at : at + 1].strip(b"\0") == bytes([mark]).strip(b"\0")
                assert holders.get(offset) == (message.who if message.mark else None)
        settled = sum(m.state == "settled" for m in log.messages[state.start :])
        assert state.ahead() == settled, "settled in the story only"
        assert not dying

    # --- to the end ------------------------------------------------------------------------------

    def drain(self) -> None:
        """Everybody works: everything there is must be settled before long."""
        if self.closing:
            return
        everything = tuple(self.logs)
        if not any(client.number for client in self.clients):
            self.join(self.clients[0], everything, 5, [])
        for client in self.clients:
            for p in everything if client.number else ():
                self.widen(client, p)
        for _ in range(200):
            if all(log.start == log.end for log in self.logs.values()):
                return
            self.work()
            self.tick(LEASE_US // 4)
        raise AssertionError(f"not settled: {[list(log.open()) for log in self.logs.values()]}")

    def work(self) -> None:
        while self.scans:
            self.scanned(0, 100)
        for number in list(self.fetches):
            if number in self.fetches:
                self.fetched(number)
        for p, log in self.logs.items():
            for offset, message in list(log.open()):
                if message.state == "dying":
                    self.dead_letter(p, offset, offset + 1)
        for client in self.clients:
            if client.number:
                held = [
                    (p, offset, offset + 1)
                    for p, log in self.logs.items()
                    for offset, message in log.open()
                    if message.state == "leased" and message.holder == client.number
                ]
                nacked = [
                    each
                    for each in held
                    if each[1] % 2 and self.logs[each[0]].messages[each[1]].suspect
                ]  # so they are no suspects any more
                self.settle(client, "nack", nacked)
                self.settle(client, "ack", [each for each in held if each not in nacked])
                # Whatever debt there is is paid, and there is a little more.
                self.give_credit(
                    client,
                    max(0, 5 - min(client.credit_messages, client.credit_bytes // RECORD_BYTES)),
                )
