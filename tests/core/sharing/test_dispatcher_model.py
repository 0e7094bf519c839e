"""Dispatcher, ledger and durable state of shared indexes against a plain story of every message."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from hocket.core.sharing import handing, keys as share_keys, leases, ledger
from hocket.core.sharing.absence import Absences
from hocket.core.sharing.consumer import Consumer
from hocket.core.sharing.dispatcher import Dispatcher
from hocket.core.sharing.keys import Key, KeyOrder
from hocket.core.sharing.leases import Leases
from hocket.core.sharing.ledger import Ledger
from hocket.core.sharing.maps import ALONE, AVAILABLE, LEASED, RESTING, RUNS_OF
from hocket.core.sharing.portions import Portions
from hocket.core.sharing.state import ShareSettings, ShareState
from tests.support.core.sharing_lives import live
from tests.support.core.sharing_world import (
    GRACE_US,
    HOLDING,
    KEYS,
    LEASE_US,
    World,
    small_limits,
)
from tests.support.threads import LONG

some = st.integers(0, 5)
spots = st.lists(st.tuples(some, st.integers(0, 40), st.integers(1, 6)), min_size=1, max_size=5)


class SharingAgainstStory(RuleBasedStateMachine):
    mode = "shared"

    @initialize(
        partitions=st.integers(1, 2),
        most=st.sampled_from([1, 2, 3, 3]),
        failover=st.sampled_from(["safe", "safe", "fast"]),
        immortal=st.sampled_from([False, False, False, True]),
    )
    def begin(self, partitions: int, most: int, failover: str, immortal: bool) -> None:
        self.world = World(
            self.mode,
            partitions=partitions,
            settings=ShareSettings(LEASE_US, most, failover),
            immortal=immortal,
        )

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.drain()

    def partition(self, which: int) -> int:
        return which % len(self.world.logs)

    def near(self, p: int, offset: int) -> int:
        """Most numbers drawn should mean something: count them from the oldest message on."""
        return max(0, self.world.logs[p].start - 3) + offset

    # --- the partition ---------------------------------------------------------------------------

    @rule(which=some, keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=25))
    def append(self, which: int, keys: list[int]) -> None:
        p = self.partition(which)
        if self.world.logs[p].end < self.world.logs[p].start + 45:  # a little more than the span
            self.world.append(p, keys)

    @rule(which=some, removed=st.integers(1, 12))
    def log_start(self, which: int, removed: int) -> None:
        p = self.partition(which)
        log = self.world.logs[p]
        self.world.move_log_start(p, min(log.log_start + removed, log.end))

    @rule(which=some, fraction=st.sampled_from([0.0, 0.5, 1.0]), really=st.integers(0, 3))
    def reset(self, which: int, fraction: float, really: int) -> None:
        p = self.partition(which)
        if not really and not self.world.closing:
            log = self.world.logs[p]
            low = max(log.log_start, log.end - 30)
            self.world.reset(p, low + int(fraction * (log.end - low)))

    # --- clients ---------------------------------------------------------------------------------

    @rule(
        who=st.integers(0, 2),
        narrow=st.integers(0, 3),
        credit=st.integers(0, 12),
        held=spots,
        tells=st.booleans(),
    )
    def join(self, who: int, narrow: int, credit: int, held: list, tells: bool) -> None:
        world = self.world
        wanted = tuple(world.logs) if narrow else (0,)
        mine = [
            (p, offset, offset + 1)
            for p, log in world.logs.items()
            for offset, message in log.open()
            if message.holder and message.holder % 3 == who
        ]
        claims = [(p, s, s + n) for p, s, n in self.ranges(held)]
        held = mine if narrow == 1 else claims
        world.join(world.clients[who], wanted, credit, held, tells=tells)

    def ranges(self, held: list) -> list:
        spots = ((self.partition(which), offset, count) for which, offset, count in held)
        return [(p, self.near(p, offset), count) for p, offset, count in spots]

    def anyone(self, who: int):
        here = [client for client in self.world.clients if client.number]
        return here[who % len(here)] if here else None

    @rule(who=some, graceful=st.booleans())
    def leave(self, who: int, graceful: bool) -> None:
        client = self.anyone(who)
        if client:
            self.world.leave(client, graceful)

    @rule(who=some)
    def die(self, who: int) -> None:
        client = self.anyone(who)
        if client:
            self.world.leave(client, graceful=False)
            self.world.tick(GRACE_US)

    @rule(who=some, messages=st.integers(0, 15), far=st.integers(-3, 12))
    def give_credit(self, who: int, messages: int, far: int) -> None:
        client = self.anyone(who)
        if client:
            self.world.give_credit(client, messages, self.handed(client, far))

    def handed(self, client: Any, far: int) -> list[tuple[int, int, int]]:
        """It has handed out that many of what it was sent; or it tells nothing, or nonsense."""
        if far < 0:
            return [] if far < -1 else [(9, 1, 1), (0, client.deliveries, 7), (0, 1 << 40, 0)]
        left = client.sent[far:]
        firsts = {p: (p, number, offset) for number, p, offset in reversed(left)}
        told = [firsts.pop(left[0][1])] if left else []
        for p in self.world.logs:
            if not told or p != told[0][0]:
                told.append(firsts.get(p, (p, client.deliveries + 1, 0)))
        return told

    @rule(who=some, which=some)
    def widen(self, who: int, which: int) -> None:
        client = self.anyone(who)
        if client:
            self.world.widen(client, self.partition(which))

    @rule(
        who=some,
        action=st.sampled_from(["ack", "ack", "nack", "extend", "reject", "release"]),
        spots=spots,
        duration=st.sampled_from([0, 0, 20, 150]),
        honest=st.integers(0, 3),
        again=st.booleans(),
    )
    def settle(
        self, who: int, action: str, spots: list, duration: int, honest: int, again: bool
    ) -> None:
        client, world = self.anyone(who), self.world
        if client is None:
            return
        ranges = [(p, start, start + count) for p, start, count in self.ranges(spots)]
        held = [
            (p, offset, offset + 1)
            for p, log in world.logs.items()
            for offset, message in log.open()
            if message.state == "leased" and message.holder == client.number
        ]
        over = [
            (p, offset, offset + 1)
            for p, log in world.logs.items()
            for offset, message in enumerate(log.messages)
            if message.state in ("settled", "dying") or offset < log.begin
        ]
        if again and over:
            ranges += (over[-(offset * 7 + n) % len(over)] for _, offset, n in spots)
        elif suspects := [
            (p, start, end) for p, start, end in held if world.logs[p].messages[start].suspect
        ]:
            ranges = suspects
        elif honest and held:
            picked = [held[(offset * 7 + n) % len(held)] for _, offset, n in spots]
            ranges = picked if honest == 1 else held[:: len(spots)]
        world.settle(client, action, ranges, duration, "poison", again)

    # --- the driver ------------------------------------------------------------------------------

    @precondition(lambda self: self.world.fetches)
    @rule(which=some, lost=st.sampled_from([0, 0, 0, 0, 0, 0, 2]))
    def fetched(self, which: int, lost: int) -> None:
        fetches = sorted(self.world.fetches)
        self.world.fetched(fetches[which % len(fetches)], lost=lost)

    @precondition(lambda self: self.world.fetches)
    @rule(which=some, failed=st.booleans())
    def nothing_fetched(self, which: int, failed: bool) -> None:
        fetches = sorted(self.world.fetches)
        self.world.nothing_fetched(fetches[which % len(fetches)], failed)

    @precondition(lambda self: self.world.fetches)
    @rule(which=some, before=st.integers(0, 3), behind=st.integers(0, 5))
    def damaged(self, which: int, before: int, behind: int) -> None:
        fetches = sorted(self.world.fetches)
        self.world.damaged(fetches[which % len(fetches)], before, behind)

    @rule(which=some, units=st.booleans())
    def dead_lettered(self, which: int, units: bool) -> None:
        p = self.partition(which)
        dying = self.world.logs[p].state.dying
        if dying:
            unit = dying[which % len(dying)]
            self.world.dead_letter(p, unit.start, unit.end if units else unit.start + 1)

    @rule(
        which=some,
        spots=st.lists(st.integers(0, 40), min_size=1, max_size=4),
        again=st.sampled_from([False, False, False, True]),
    )
    def revive(self, which: int, spots: list[int], again: bool) -> None:
        p, world = self.partition(which), self.world
        log = world.logs[p]
        known = [
            offset
            for offset in range(log.begin, log.end)
            if world.sharing.reaches(p, offset) and not world.sharing.is_dying(p, offset)
        ]
        settled = [offset for offset in known if log.messages[offset].state == "settled"]
        picked = [
            some[-1 - spot % len(some)]
            for spot in spots
            if (some := settled if spot % 8 else known)
        ]
        world.revive(p, list(dict.fromkeys(picked)), again=again)

    @rule(passed=st.sampled_from([1, 20, 30, 60, 100]))
    def tick(self, passed: int) -> None:
        self.world.tick(passed)

    # --- the broker ------------------------------------------------------------------------------

    @rule(lost=st.integers(0, 4), really=st.integers(0, 2))
    def crash(self, lost: int, really: int) -> None:
        if not really and not self.world.closing:
            self.world.restart(lost)

    @rule(really=st.integers(0, 3))
    def close(self, really: int) -> None:
        if not really:
            self.world.close()

    @precondition(lambda self: self.world.closing)
    @rule()
    def restart(self) -> None:
        self.world.restart(0)


class KeySharingAgainstStory(SharingAgainstStory):
    mode = "key_shared"

    @precondition(lambda self: self.world.scans)
    @rule(which=some, limit=st.sampled_from([0, 3, 100, 100, 100]))
    def scanned(self, which: int, limit: int) -> None:
        self.world.scanned(which, limit)

    @precondition(lambda self: self.world.scans)
    @rule(which=some)
    def scan_failed(self, which: int) -> None:
        self.world.scan_failed(which)


LENGTH = settings(
    max_examples=2_000 if LONG else 15, stateful_step_count=40, report_multiple_bugs=False
)


@pytest.mark.usefixtures(small_limits.__name__)
class TestShared(SharingAgainstStory.TestCase):
    settings = LENGTH


@pytest.mark.usefixtures(small_limits.__name__)
class TestKeyShared(KeySharingAgainstStory.TestCase):
    settings = LENGTH


# --- whole lives, and whether the story would notice ---------------------------------------------

MACHINES = {"shared": SharingAgainstStory, "key_shared": KeySharingAgainstStory}
LIVES, STEPS = (3_000, 120) if LONG else (40, 80)


def all_lives(mode: str) -> Counter[str]:
    seen: Counter[str] = Counter()
    for seed in range(LIVES):
        try:
            seen += live(MACHINES[mode](), seed, STEPS)
        except Exception as error:
            error.add_note(f"in the life of seed {seed}, {STEPS} steps, mode {mode}")
            raise
    return seen


@pytest.mark.parametrize("mode", MACHINES)
def test_lives_are_eventful_and_as_the_story_has_it(mode, small_limits):
    seen = all_lives(mode)
    actions = {"ack", "nack", "extend", "reject", "release"}
    others = {"leased", "expired", "stalled", "buried", "refused", "came back", "claimed"}
    others |= {f"{action} holds, {state}" for action, state in HOLDING}
    others |= {f"{action} of a suspect" for action in ("ack", "nack")}
    others |= {"told", "not counted", "suspected", "suspected at a restart", "suspect still"}
    others |= {"leased alone", "revived", "not revived", "not revived again"}
    if mode == "shared":
        others |= {f"{mark} by one that outlived the broker" for mark in ("held", "doubt")}
        others |= {"rests still"}
    missing = (actions | others | {"crashed", "restarted cleanly"}) - set(seen)
    assert not missing, f"these lives never saw {missing}"


def without(function: Callable[..., Any], change: Callable[..., Any]) -> Callable[..., Any]:
    """The function, and `change(self)` behind it."""

    @functools.wraps(function)
    def changed(self, *arguments, **named):
        result = function(self, *arguments, **named)
        change(self)
        return result

    return changed


def low_is_forgotten(function: Callable[..., Any]) -> Callable[..., Any]:
    def turn(self, *arguments):
        low = self._low
        function(self, *arguments)
        self._low = low

    return turn


def one_too_many(function: Callable[..., Any]) -> Callable[..., Any]:
    def end(self, *arguments):
        settings = self.settings
        self.settings = settings._replace(max_deliveries=settings.max_deliveries + 1)
        function(self, *arguments)
        self.settings = settings

    return end


def anybody_may(function: Callable[..., Any]) -> Callable[..., Any]:
    """Settle what is asked for, whoever holds it."""

    def settle(self, consumer, action, ranges, **named):
        for start, end in ranges:
            for run in self._maps.runs(RUNS_OF[LEASED], start, end):
                for low, high, holder in self._maps.by_holder(*run):
                    self._hand_over(low, high, holder, consumer, [(low, high)], 0)
        return function(self, consumer, action, ranges, **named)

    return settle


def holds_all(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, consumer, identity, former, _held, now_us: function(
        self, consumer, identity, former, [(0, 1 << 40)], now_us
    )


def moved_unnoticed(self, consumers):
    self._slots.spread(consumers)
    self._heaps = {consumer: self._heaps.get(consumer, []) for consumer in consumers}


NOTHING = lambda *_arguments: None  # noqa: E731
SAME = bytes(range(256))
NOT_YET = Leases._not_yet
RESTORE = ShareState.restore
REVIVE = Ledger.revive
RESTS = ShareState.rests
WELCOME = Leases.welcome

# name: (mode, where, attribute, what stands there instead)
MUTANTS: dict[str, tuple[str, Any, str, Any]] = {
    "a delivery is not counted": ("shared", leases, "_ONE_MORE", SAME),
    "a release counts as a delivery": ("shared", leases, "ONE_LESS", SAME),
    "neighbours are counted": ("shared", ledger, "ONE_LESS", SAME),
    "what is next does not count": ("shared", handing, "point_out", lambda *_: set()),
    "what was told does not count": ("shared", Consumer, "passed", lambda *_: []),
    "nobody is suspect": ("shared", ledger, "SUSPECTED", bytes(256)),
    "a suspect is not alone": ("shared", Leases, "has_suspect", lambda *_: False),
    "a suspect is leased with others": ("shared", Leases, "suspect_is_next", lambda *_: False),
    "a suspect goes to who has others": ("shared", Portions, "_holds", lambda *_: False),
    "a suspect's key goes on without it": (
        "key_shared", Leases, "suspect_is_next", lambda *_: False,
    ),
    "an outlived suspect stays one": ("shared", leases, "OUTLIVED", ledger.NOT_HELD),
    "suspicion is lost at a restart": (
        "shared", ShareState, "marks", lambda self: self.maps()[1].translate(bytes(256)),
    ),
    "nobody is suspect after a crash": ("shared", ledger, "UNCLAIMED", ledger.NOT_HELD),
    "who outlived the broker is taken for dead": (
        "shared", Leases, "welcome",
        lambda self, number, _identity, *others: WELCOME(self, number, b"?", *others),
    ),
    "who died with the broker is taken for alive": (
        "shared", Leases, "welcome",
        lambda self, number, identity, *others: (
            self._had.update({identity: [run for runs in self._had.values() for run in runs]}),
            WELCOME(self, number, identity, *others)),
    ),
    "a lease does not say whose it is": (
        "shared", ShareState, "_hold", NOTHING,
    ),
    "marks are not in snapshots": (
        "shared", ShareState, "restore", staticmethod(lambda taken: RESTORE(
            {name: each for name, each in taken.items() if name != "marks"})),
    ),
    "the delay of a nack is lost at a restart": ("shared", ShareState, "rests", lambda _self: []),
    "a delay that is over is waited for again": (
        "shared", ShareState, "rests",
        lambda self: [(start, end, until + 1_000_000) for start, end, until in RESTS(self)],
    ),
    "anybody may settle": ("shared", Leases, "settle", anybody_may(Leases.settle)),
    "what holds already is refused": (
        "shared", Leases, "_not_yet", lambda _self, _action, refused, _lost: refused,
    ),
    "what holds already is not logged again": (
        "shared", Leases, "_not_yet",
        without(Leases._not_yet, lambda self: self._change.settled.clear()),
    ),
    "what another one settled holds, too": (
        "shared", Leases, "_not_yet",
        lambda self, action, refused, _lost: NOT_YET(self, action, refused, []),
    ),
    "what was lost is forgotten": ("shared", Absences, "note", NOTHING),
    "an ack is not logged": (
        "shared", Leases, "_ack",
        without(Leases._ack, lambda self: self._change.settled.clear()),
    ),
    "a death is not logged": (
        "shared", Ledger, "_die", without(Ledger._die, lambda self: self._change.dying.clear()),
    ),
    "one delivery too many": ("shared", Ledger, "_end", one_too_many(Ledger._end)),
    "leases do not end": ("shared", Ledger, "_expire", NOTHING),
    "what comes back is forgotten": ("shared", Ledger, "_turn", low_is_forgotten(Ledger._turn)),
    "timers are thrown away": (
        "shared", Ledger, "_renew_timers", lambda self: self._timers.clear()
    ),
    "who vanished keeps its leases": ("shared", Leases, "vanish", NOTHING),
    "who closed keeps its leases": ("shared", Leases, "leave", NOTHING),
    "who comes back has all it had": ("shared", Leases, "welcome", holds_all(Leases.welcome)),
    "nothing is withheld": (
        "shared", Leases, "_open", without(Leases._open, lambda self: self.pass_time(1 << 60)),
    ),
    "no limit on what is in flight": ("shared", Leases, "_in_flight_max", property(
        lambda _self: 1_000, NOTHING)),
    "credit of messages is overdrawn": ("shared", Consumer, "messages_left", 1_000),
    "who was served goes first": ("shared", Consumer, "rank", property(
        lambda self: (self.stalled, -self.served, self.number))),
    "who released is served again": ("shared", Consumer, "sated_until_us", property(
        lambda _self: 0, NOTHING)),
    "nobody is ever stalled": ("shared", Dispatcher, "_set_stalled", NOTHING),
    "a failed read keeps what it reserved": ("shared", Leases, "give_back", NOTHING),
    "what is damaged stays reserved": ("shared", Leases, "bury", NOTHING),
    "the end is not in good order": (
        "shared", Dispatcher, "_closed", lambda _self, _leases, change: change,
    ),
    "a dead letter is used twice": (
        "shared", Ledger, "revive",
        lambda self, letters, log: REVIVE(self, letters, (self.revived_to.clear(), log)[1]),
    ),
    "what is not settled is revived": ("shared", Ledger, "_is_settled", lambda *_: True),
    "a revival is not logged": (
        "shared", Leases, "_revive",
        without(Leases._revive, lambda self: self._change.revived.clear()),
    ),
    "keys that are in flight are forgotten": ("key_shared", KeyOrder, "claimed", NOTHING),
    "draining is forgotten": ("key_shared", KeyOrder, "_holders", property(
        lambda _self: Counter(), NOTHING)),
    "keys lose their order": ("key_shared", Key, "add", lambda self, o: self._old.insert(0, o)),
    "a key that rests does not wait": (
        "key_shared", share_keys, "_OPEN", (RESTING, AVAILABLE, ALONE),
    ),
    "claimed keys may be elsewhere": ("key_shared", KeyOrder, "is_ready", True),
    "what was settled before its scan": ("key_shared", KeyOrder, "advanced", NOTHING),
    "a slot that moved is not offered": ("key_shared", KeyOrder, "spread", moved_unnoticed),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTANTS)
def test_the_story_finds_a_planted_bug(name, small_limits, monkeypatch):
    mode, where, attribute, instead = MUTANTS[name]
    monkeypatch.setattr(where, attribute, instead, raising=False)
    with pytest.raises((AssertionError, LookupError)):  # the story differs, or the core trips
        all_lives(mode)
