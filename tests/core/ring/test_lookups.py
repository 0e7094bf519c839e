"""Lookups: step by step with made-up answers, and on whole rings with nodes that are silent."""

from __future__ import annotations

import random
from collections.abc import Collection

from hypothesis import given, settings, strategies as st

from hocket.core.ring.circle import BITS
from hocket.core.ring.contact import Contact, seed
from hocket.core.ring.events import Arm, Disarm, Effect, Joined, Send
from hocket.core.ring.lookups import LOOKUP, NAMED_MAX, PROBE, Lookups, Outcome
from hocket.core.ring.messages import Beacon, CloserAre, GetCloser, Gone, RequestNumbers
from hocket.core.ring.routes import Routes
from hocket.core.ring.settings import SECOND, RingSettings
from tests.support.core.ring_table import Table, members_at, members_by_chance

ME, A, B, C, D, E, OWNER, BEHIND = members_at(100, 200, 300, 400, 500, 600, 1_000, 1_100)
KEY = 900
OWNERS = (OWNER, BEHIND)
SETTINGS = RingSettings()


class Asking:
    """One node that looks something up, and what it has sent and armed."""

    def __init__(self, *known: Contact, **changes: int) -> None:
        self.settings = RingSettings(**changes)
        self.routes = Routes(ME, self.settings)
        for contact in known:
            self.routes.heard(contact)
        self.requests = RequestNumbers()
        self.lookups = Lookups(ME, self.settings, self.routes, self.requests)
        self.asked: dict[str, int] = {}  # request by node, or by a seed's address
        self.timers: dict[tuple[str, int], int] = {}  # those that run, and for how long
        self.found: list[Outcome] = []
        self.now_us = 0

    def start(self, via: tuple[Contact, ...] = (), own: CloserAre | None = None) -> list[str]:
        return self.do(
            self.lookups.start(KEY, self.done, self.now_us, via=via, own=own, is_urgent=True)
        )

    def done(self, outcome: Outcome) -> list[Effect]:
        self.found.append(outcome)
        return [Joined()]  # any effect; it must come out with the others

    def answer(
        self,
        who: Contact,
        *nearer: Contact,
        owners: tuple[Contact, ...] = (),
        beyond: tuple[Contact, ...] = (),
        name: str = "",
    ) -> list[str]:
        message = CloserAre(self.asked[name or who.node], nearer, owners, beyond)
        return self.do(self.lookups.heard(who, message, self.now_us))

    def silent(self, who: Contact) -> list[str]:
        return self.do(self.lookups.due((PROBE, self.asked[who.node]), self.now_us))

    def do(self, effects: list[Effect] | None) -> list[str]:
        """Who is asked now."""
        assert effects is not None
        names = []
        for effect in effects:
            if isinstance(effect, Send):
                message = effect.message
                assert isinstance(message, GetCloser)
                assert (message.key, message.count) == (KEY, NAMED_MAX)
                names.append(effect.to.node or effect.to.address)
                self.asked[names[-1]] = message.request
            elif isinstance(effect, Arm):
                self.timers[effect.timer] = effect.after_us
            elif isinstance(effect, Disarm):
                self.timers.pop(effect.timer)
            else:
                assert self.found
        return names

    def ended(self, owners: tuple[Contact, ...] = (), route: tuple[Contact, ...] = ()) -> bool:
        """Over, with this outcome, and nothing left behind."""
        assert self.found == [Outcome(KEY, owners, route)]
        # The timer of a late probe has run out by itself.
        assert not [timer for timer in self.timers if timer[0] == LOOKUP]
        return self.lookups.active == 0


def names(*contacts: Contact) -> list[str]:
    return [contact.node for contact in contacts]


# --- the usual way -------------------------------------------------------------------------------


def test_what_we_know_ourselves_is_not_asked():
    asking = Asking(A)
    assert asking.start(own=CloserAre(0, (), OWNERS)) == []
    assert asking.ended(OWNERS)
    assert asking.timers == {}


def test_who_knows_nobody_finds_nothing():
    asking = Asking()
    assert asking.start() == []
    assert asking.ended()
    assert asking.timers == {}


def test_the_nearest_two_are_asked_and_an_answer_moves_it_on():
    asking = Asking(A, B, C)
    assert asking.start() == names(C, B)
    assert asking.lookups.active == 1
    assert asking.answer(C, E, D) == names(E)
    assert asking.answer(B, C) == names(D)
    assert asking.answer(E, owners=OWNERS) == []
    assert asking.ended(OWNERS, (C, E))
    assert asking.timers == {}


def test_our_own_answer_is_where_it_begins():
    asking = Asking(A, B, C)
    assert asking.start(own=CloserAre(0, (B, A), ())) == names(B, A)


def test_the_first_answer_with_owners_wins_and_later_ones_are_nobodys():
    asking = Asking(A, B)
    asking.start()
    asking.answer(A, owners=OWNERS)
    assert asking.ended(OWNERS, (A,))
    late = CloserAre(asking.asked[B.node], (), OWNERS)
    assert asking.lookups.heard(B, late, 0) is None


def test_whoever_is_named_must_be_strictly_nearer_than_the_one_that_names_it():
    asking = Asking(B)
    asking.start()
    behind_the_key = OWNER
    at_the_key = members_at(KEY)[0]
    nobody = seed("s:1")
    mine = C._replace(node=ME.node)
    assert asking.answer(B, A, B, behind_the_key, at_the_key, nobody, mine) == []
    assert asking.ended()
    assert not asking.routes.is_known(A)


def test_an_answer_names_no_more_than_it_was_asked_for():
    asking = Asking(A, parallel_probes=9)
    asking.start()
    assert asking.answer(A, *members_at(*range(210, 220))) == [
        f"n{at}" for at in range(213, 209, -1)
    ]


def test_those_named_are_learned_and_so_is_how_fast_they_answer():
    asking = Asking(A)
    asking.start()
    asking.now_us = 5_000
    asking.answer(A, B)
    assert asking.routes.round_trip_us(A) == 5_000
    assert asking.routes.is_known(B)
    asking.answer(B, owners=OWNERS)
    assert asking.routes.is_known(OWNER)


def test_an_answer_by_another_node_than_was_asked_is_nobodys():
    asking = Asking(A)
    asking.start()
    assert asking.lookups.heard(B, CloserAre(asking.asked[A.node], (), OWNERS), 0) is None
    assert asking.lookups.heard(A, CloserAre(77, (), OWNERS), 0) is None


# --- by way of others ----------------------------------------------------------------------------


def test_a_seed_may_name_anybody_and_is_known_by_its_answer():
    asking = Asking(E)
    assert asking.start(via=(seed("s:1"),)) == ["s:1"]
    assert asking.answer(D, E, A, name="s:1") == names(E)
    assert asking.answer(E, owners=OWNERS) == []
    assert asking.ended(OWNERS, (D, E))


def test_on_another_ring_our_own_routes_are_no_help():
    asking = Asking(A, B, C)
    assert asking.start(via=(D, ME)) == names(D)
    assert asking.silent(D) == names(D)
    assert asking.silent(D) == []
    assert asking.ended()


def test_we_may_begin_with_others_and_with_what_we_know():
    asking = Asking()
    assert asking.start(via=(A,), own=CloserAre(0, (B,), ())) == names(B, A)


# --- silence, and death --------------------------------------------------------------------------


def test_a_silent_node_costs_nothing_while_another_answers():
    asking = Asking(A, B)
    asking.start()
    assert asking.answer(A, C) == names(C)
    assert asking.silent(B) == []
    assert asking.lookups.silent == [B]
    assert asking.answer(C, owners=OWNERS) == []
    assert asking.ended(OWNERS, (A, C))


def test_the_next_best_is_asked_instead_of_a_silent_node():
    asking = Asking(A, B, C)
    assert asking.start() == names(C, B)
    assert asking.silent(C) == names(A)
    assert asking.silent(B) == []
    assert asking.answer(A, owners=OWNERS) == []
    assert asking.ended(OWNERS, (A,))


def test_a_late_answer_is_still_welcome():
    asking = Asking(A, B)
    asking.start()
    asking.silent(B)
    assert asking.silent(B) == []  # its timer once more: nothing
    assert asking.lookups.silent == []
    asking.answer(B, owners=OWNERS)
    assert asking.ended(OWNERS, (B,))


def test_a_reserve_is_asked_only_when_all_nearer_ones_have_failed():
    asking = Asking(A, B, C)
    asking.start()
    asking.answer(C, E, D)
    asking.answer(B)
    assert asking.silent(E) == []
    assert asking.silent(D) == names(A)


def test_when_all_named_are_silent_our_routes_help_out_and_then_they_are_asked_again():
    asking = Asking(A, B)
    assert asking.start(own=CloserAre(0, (C,), ())) == names(C)
    assert asking.silent(C) == names(B, A)
    assert asking.silent(B) == []
    first = asking.asked[C.node]
    assert asking.silent(A) == names(C)
    assert asking.asked[C.node] != first
    assert asking.silent(C) == names(B)
    assert asking.silent(B) == names(A)
    assert asking.silent(A) == []
    assert asking.ended()


def test_who_was_asked_twice_need_not_answer_twice():
    asking = Asking(A)
    asking.start()
    first = asking.asked[A.node]
    asking.silent(A)
    asking.do(asking.lookups.heard(A, CloserAre(first, (B,), ()), 0))
    assert set(asking.timers) & {(PROBE, asking.asked[A.node])} == set()
    asking.answer(B, owners=OWNERS)
    assert asking.ended(OWNERS, (A, B))


def test_the_timeout_is_that_of_the_node():
    asking = Asking(A, B)
    asking.routes.answered(B, 200_000)
    asking.start()
    assert asking.timers[PROBE, asking.asked[B.node]] == 600_000
    assert asking.timers[PROBE, asking.asked[A.node]] == SETTINGS.query_us


def test_a_life_that_is_over_is_passed_over_at_once():
    asking = Asking(A, B)
    asking.start()
    gone = Gone(asking.asked[B.node], B, Beacon())
    assert asking.do(asking.lookups.heard(B._replace(incarnation=2), gone, 0)) == []
    assert asking.silent(A) == names(A)
    gone = Gone(asking.asked[A.node], A, Beacon())
    assert asking.do(asking.lookups.heard(A, gone, 0)) == []
    assert asking.ended()


def test_the_dead_are_neither_waited_for_nor_asked():
    asking = Asking(A, B, C, D)
    assert asking.start() == names(D, C)
    assert asking.do(asking.lookups.died(B, 0)) == []
    assert asking.do(asking.lookups.died(E, 0)) == []
    assert asking.do(asking.lookups.died(D, 0)) == names(A)
    assert asking.do(asking.lookups.died(C._replace(incarnation=0), 0)) == []
    asking.routes.forget(D)
    for who in (C, A):
        asking.do(asking.lookups.died(who, 0))
    assert asking.ended()
    assert asking.timers == {}


def test_a_newer_life_of_a_silent_node_is_somebody_else():
    asking = Asking(A, B)
    asking.start()
    asking.silent(B)
    newer = B._replace(incarnation=2)
    assert asking.answer(A, newer) == names(newer)
    assert asking.answer(newer, owners=OWNERS) == []
    assert asking.ended(OWNERS, (A, newer))


def test_an_older_life_is_not_asked_again_once_a_newer_one_is_named():
    asking = Asking(A, B)
    asking.start()
    asking.silent(B)
    newer = B._replace(incarnation=2)
    asking.answer(A, newer)
    assert asking.silent(newer) == names(newer)
    assert asking.lookups.silent == [newer]
    assert asking.silent(newer) == []
    assert asking.ended()


def test_it_is_given_up_in_the_end():
    asking = Asking(A)
    asking.start()
    (timer,) = [timer for timer in asking.timers if timer[0] == LOOKUP]
    assert asking.timers[timer] == SETTINGS.lookup_us_max
    asking.do(asking.lookups.due(timer, 0))
    assert asking.ended()
    assert asking.lookups.due(timer, 0) == []
    assert asking.lookups.due((PROBE, asking.asked[A.node]), 0) == []


def test_a_silent_seed_is_not_named_as_silent():
    asking = Asking()
    asking.start(via=(seed("s:1"),))
    assert asking.do(asking.lookups.due((PROBE, asking.asked["s:1"]), 0)) == ["s:1"]
    assert asking.lookups.silent == []


def test_after_we_stood_still_every_question_has_its_time_again():
    asking = Asking(A, B)
    asking.start()
    asking.silent(B)
    asking.now_us = 60 * SECOND
    effects = asking.lookups.stalled(asking.now_us)
    request = asking.asked[A.node]
    (timer,) = [timer for timer in asking.timers if timer[0] == LOOKUP]
    assert effects == [
        Arm(timer, SETTINGS.lookup_us_max), Arm((PROBE, request), SETTINGS.query_us)
    ]  # fmt: skip
    asking.now_us += 1_000
    asking.answer(A, owners=OWNERS)
    assert asking.routes.round_trip_us(A) == 1_000


def test_lookups_do_not_mind_each_other():
    asking = Asking(A, B)
    asking.start()
    first = dict(asking.asked)
    asking.start()
    assert asking.lookups.active == 2
    asking.answer(A, owners=OWNERS)
    assert asking.lookups.active == 1
    asking.asked = first
    asking.answer(B, owners=OWNERS)
    assert asking.lookups.active == 0
    assert [outcome.route for outcome in asking.found] == [(A,), (B,)]
    assert asking.timers == {}


# --- whole rings ---------------------------------------------------------------------------------


def look_up(
    table: Table,
    me: Contact,
    key: int,
    settings: RingSettings,
    silent: Collection[Contact] = (),
) -> tuple[Outcome, list[Contact]]:
    """The outcome, and everybody that was asked, in order. The silent time out at once."""
    seat = table.seats[me]
    lookups = Lookups(me, settings, seat.routes, RequestNumbers())
    found: list[Outcome] = []
    asked: list[Contact] = []

    def done(outcome: Outcome) -> list[Effect]:
        found.append(outcome)
        return []

    effects = lookups.start(key, done, 0, own=seat.closer(key, NAMED_MAX), is_urgent=True)
    while effects:
        effect = effects.pop(0)
        if not isinstance(effect, Send):
            continue
        message = effect.message
        assert isinstance(message, GetCloser)
        asked.append(effect.to)
        if effect.to in silent:
            effects += lookups.due((PROBE, message.request), 0)
        else:
            answer = table.seats[effect.to].closer(key, message.count, message.request)
            effects += lookups.heard(effect.to, answer, 0) or []
    (outcome,) = found
    assert lookups.active == 0
    return outcome, asked


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.integers(1, 4), st.randoms(use_true_random=False))
def test_the_owner_is_found_though_many_are_silent(count, successors, chance):
    settings = RingSettings(routes_max=0, successors=successors)
    table = Table(members_by_chance(count + 1, chance), settings)
    me, key = chance.choice(table.members), chance.getrandbits(BITS)
    before = table.before(key)
    silent = {who for who in table.members if chance.random() < 0.4} - {before}
    outcome, asked = look_up(table, me, key, settings, silent)
    assert len(asked) <= 2 * len(table.members)
    distances = [(key - who.position) % (1 << BITS) for who in (me, *outcome.route)]
    assert distances == sorted(distances, reverse=True)
    if before in reachable(table, me, key, silent):
        assert outcome.owners[0] == table.owner(key)
        assert outcome.route[-1:] == ((before,) if before != me else ())
    else:
        assert outcome == Outcome(key, (), ())


def reachable(table: Table, me: Contact, key: int, silent: Collection[Contact]) -> list[Contact]:
    """Whom anybody could come to that asks one node after the other."""
    found = [me]
    for who in found:
        if who == me:
            named = table.seats[me].routes.preceding(key, 16)
        else:
            named = table.seats[who].closer(key, NAMED_MAX).preceding
        found += [each for each in named if each not in silent and each not in found]
    return found


def test_a_lookup_takes_half_the_logarithm_of_steps():
    chance = random.Random(1)
    settings = RingSettings(routes_max=0)
    table = Table(members_by_chance(1_000, chance), settings)
    hops, probes = [], 0
    for _ in range(200):
        me, key = chance.choice(table.members), chance.getrandbits(BITS)
        outcome, asked = look_up(table, me, key, settings)
        assert outcome.owners[0] == table.owner(key)
        hops.append(len(outcome.route))
        probes += len(asked)
    assert sum(hops) / len(hops) < 5  # half the logarithm of 1,000
    assert sorted(hops)[197] <= 8
    assert probes / len(hops) < 2 * 5


def test_who_has_heard_of_everybody_asks_one_node():
    chance = random.Random(1)
    settings = RingSettings()
    table = Table(members_by_chance(300, chance), settings)
    me = table.members[0]
    for member in table.members:
        table.seats[me].routes.heard(member)
    for _ in range(50):
        key = chance.getrandbits(BITS)
        outcome, _asked = look_up(table, me, key, settings)
        assert len(outcome.route) <= 1


def test_behind_the_dead_the_nearest_one_that_answered_knows_the_owners():
    asking = Asking(A)
    asking.start()
    asking.answer(A, B, beyond=OWNERS)
    asking.silent(B)
    assert asking.ended(OWNERS, (A,))


def test_a_nearer_one_that_answers_knows_better():
    asking = Asking(A)
    asking.start()
    asking.answer(A, B, C, beyond=(OWNER,))
    asking.answer(B, owners=OWNERS)
    assert asking.ended(OWNERS, (A, B))


def test_who_is_farther_than_one_that_knows_the_owners_is_not_asked():
    asking = Asking(A, B, parallel_probes=1)
    asking.start()
    nearest, farther = sorted((A, B), key=lambda contact: -contact.position)
    assert asking.answer(nearest, beyond=OWNERS) == []
    assert asking.ended(OWNERS, (nearest,))
    assert farther.node not in asking.asked
