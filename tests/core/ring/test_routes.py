"""The route cache by plain calls, and against a list that is searched from end to end."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hocket.core.ring.circle import SIZE, between, distance
from hocket.core.ring.contact import Contact, seed
from hocket.core.ring.routes import FORGOTTEN_MAX, STRANGERS_MAX, Routes
from hocket.core.ring.settings import RingSettings

ME = Contact(100, "me", 1, "me:1")


def contact(position: int, node: str = "", incarnation: int = 1) -> Contact:
    node = node or f"n{position}"
    return Contact(position, node, incarnation, f"{node}:1")


def routes(*positions: int, routes_max: int = 100) -> Routes:
    made = Routes(ME, RingSettings(routes_max=routes_max))
    for position in positions:
        made.heard(contact(position))
    return made


def everybody(made: Routes) -> list[Contact]:
    return sorted(made.passive(0, 1_000))


def positions(contacts: tuple[Contact, ...]) -> list[int]:
    return [each.position for each in contacts]


# --- who is known --------------------------------------------------------------------------------


def test_a_newer_life_replaces_an_older_one_even_at_another_position():
    made = routes(200)
    made.heard(contact(300, "n200", 2))
    made.heard(contact(200, "n200", 1))
    assert everybody(made) == [contact(300, "n200", 2)]
    assert made.newest("n200") == contact(300, "n200", 2)
    assert made.newest("n300") is None
    assert made.is_known(contact(300, "n200", 2))
    assert not made.is_known(contact(200, "n200", 1))
    assert not made.is_known(contact(400))


def test_neither_we_ourselves_nor_seeds_are_learned():
    made = routes()
    for who in (ME, contact(500, "me", 7), contact(100, "other"), seed("a:1")):
        made.heard(who)
    assert len(made) == 0


def test_of_two_nodes_at_one_position_the_newer_incarnation_is_kept():
    made = routes()
    made.heard(contact(200, "a", 2))
    made.heard(contact(200, "b", 2))
    assert everybody(made) == [contact(200, "a", 2)]
    made.heard(contact(200, "b", 3))
    assert everybody(made) == [contact(200, "b", 3)]
    assert made.newest("a") is None


def test_the_one_heard_of_longest_ago_goes_first():
    made = routes(200, 300, 400, routes_max=3)
    made.heard(contact(200))
    made.heard(contact(500))
    assert positions(made.passive(100, 9)) == [200, 400, 500]


def test_who_is_pinned_stays_until_it_is_unpinned_as_often():
    made = routes(200, routes_max=1)
    for _ in range(2):
        made.pin(contact(200))
    made.heard(contact(200))
    made.heard(contact(300))
    assert everybody(made) == [contact(200)]
    made.unpin(contact(200))
    made.heard(contact(300))
    assert everybody(made) == [contact(200)]
    made.unpin(contact(200))
    made.heard(contact(300))
    assert everybody(made) == [contact(300)]


def test_a_pin_makes_room_for_itself():
    made = routes(200, routes_max=1)
    made.pin(contact(300))
    assert everybody(made) == [contact(300)]


def test_with_no_room_at_all_only_the_pinned_are_kept():
    made = routes(200, 300, routes_max=0)
    assert len(made) == 0
    made.pin(contact(200))
    made.heard(contact(300))
    assert everybody(made) == [contact(200)]
    made.unpin(contact(200))
    assert len(made) == 0


def test_an_older_life_that_is_pinned_does_not_come_back():
    made = routes()
    made.heard(contact(200, "a", 2))
    made.pin(contact(150, "a", 1))
    assert everybody(made) == [contact(200, "a", 2)]
    made.unpin(contact(150, "a", 1))
    assert everybody(made) == [contact(200, "a", 2)]


# --- who is given up -----------------------------------------------------------------------------


def test_the_dead_are_forgotten_pinned_or_not_and_come_back_by_their_own_word_only():
    made = routes(200)
    made.pin(contact(200))
    made.forget(contact(200))
    assert len(made) == 0
    assert made.preceding(300, 9) == ()
    made.told(contact(200))
    assert len(made) == 0
    made.heard(contact(200))
    assert made.preceding(300, 9) == (contact(200),)
    made.unpin(contact(200))
    assert len(made) == 1


def test_a_newer_life_of_a_dead_node_may_be_hearsay():
    made = routes(200)
    made.forget(contact(200))
    made.told(contact(200, incarnation=2))
    assert everybody(made) == [contact(200, incarnation=2)]


def test_that_an_older_life_is_over_says_nothing_of_a_newer_one():
    made = routes()
    made.heard(contact(200, incarnation=3))
    made.forget(contact(200, incarnation=2))
    assert made.is_known(contact(200, incarnation=3))
    made.forget(contact(200, incarnation=4))
    assert len(made) == 0
    made.forget(contact(200, incarnation=2))
    made.heard(contact(200, incarnation=3))
    assert len(made) == 0


def test_what_cannot_be_forgotten():
    made = routes()
    made.forget(seed("a:1"))
    made.forget(ME)
    assert made.passive(0, 9) == ()


def test_of_those_given_up_the_latest_are_remembered():
    made = routes()
    for position in range(200, 201 + FORGOTTEN_MAX):
        made.forget(contact(position))
    assert positions(made.passive(0, 1_000)) == list(range(201, 201 + FORGOTTEN_MAX))


# --- who is asked --------------------------------------------------------------------------------


def test_passive_goes_round_with_the_living_and_those_given_up():
    made = routes(50, 200, 300, 400)
    made.forget(contact(300))
    assert positions(made.passive(200, 2)) == [300, 400]
    assert positions(made.passive(400, 2)) == [50, 200]
    assert positions(made.passive(60, 9)) == [200, 300, 400, 50]
    assert positions(made.passive(50, 1)) == [200]


somewhere = st.one_of(st.integers(0, 300), st.integers(SIZE - 100, SIZE - 1))


@given(st.lists(somewhere, max_size=30), somewhere, st.integers(0, 5))
def test_preceding_against_a_search_of_all(heard, key, count):
    made = routes(*heard)
    within = {position for position in heard if between(ME.position, position, key)}
    nearest = sorted(within - {ME.position}, key=lambda position: distance(position, key))
    assert positions(made.preceding(key, count)) == nearest[:count]


@given(st.lists(somewhere, max_size=30), st.lists(somewhere, max_size=9), somewhere, somewhere)
def test_passive_against_a_search_of_all(heard, dead, after, count):
    made = routes(*heard)
    for position in dead:
        made.forget(contact(position))
    expected = sorted(
        {*heard, *dead} - {ME.position} | ({ME.position} & {*dead}),
        key=lambda position: (position - after - 1) % SIZE,
    )
    assert positions(made.passive(after, count)) == expected[:count]


# --- how quickly they answer ---------------------------------------------------------------------


def test_the_timeout_follows_the_round_trips():
    made = routes(200)
    ring = made.settings
    assert made.round_trip_us(contact(200)) is None
    assert made.timeout_us(contact(200)) == ring.query_us
    made.answered(contact(200), 100_000)
    assert made.round_trip_us(contact(200)) == 100_000
    assert made.timeout_us(contact(200)) == 300_000
    made.answered(contact(200), 180_000)
    assert made.round_trip_us(contact(200)) == 110_000
    assert made.timeout_us(contact(200)) == 110_000 + 4 * 57_500
    for _ in range(100):
        made.answered(contact(200), 1_000)
    assert made.timeout_us(contact(200)) == ring.query_us_min
    for _ in range(100):
        made.answered(contact(200), 60_000_000)
    assert made.timeout_us(contact(200)) == ring.query_us_max


def test_who_is_not_in_the_cache_is_timed_too_but_not_everybody():
    made = routes(routes_max=0)
    for position in range(200, 201 + STRANGERS_MAX):
        made.answered(contact(position), position)
    assert made.round_trip_us(contact(200)) is None
    assert made.round_trip_us(contact(201)) == 201
    made.pin(contact(201))
    made.answered(contact(201), 201)
    assert made.round_trip_us(contact(201)) == 201
    made.unpin(contact(201))
    assert made.round_trip_us(contact(201)) is None


# --- a model -------------------------------------------------------------------------------------

LIVES = [Contact(place, f"n{place // 3}", 1 + place % 3, "a") for place in range(20)]
lives = st.sampled_from(LIVES)


class Model(RuleBasedStateMachine):
    """Rules 1 to 3, with lists that are searched from end to end."""

    def __init__(self) -> None:
        super().__init__()
        self.routes = Routes(ME, RingSettings(routes_max=4))
        self.known: list[Contact] = []  # oldest heard first
        self.pins: list[Contact] = []
        self.dead: list[Contact] = []

    @rule(who=lives)
    def heard(self, who: Contact) -> None:
        self.routes.heard(who)
        self.dead = [
            each for each in self.dead
            if each.node != who.node or each.incarnation > who.incarnation
        ]  # fmt: skip
        self.learn(who)
        if who in self.known and who not in self.pins:
            self.known.remove(who)
            self.known.append(who)

    @rule(who=lives)
    def told(self, who: Contact) -> None:
        self.routes.told(who)
        self.learn(who)

    @rule(who=lives)
    def pin(self, who: Contact) -> None:
        self.routes.pin(who)
        if who not in self.pins:
            self.learn(who, pinned=True)
        self.pins.append(who)

    @rule(who=lives)
    def unpin(self, who: Contact) -> None:
        if who in self.pins:
            self.routes.unpin(who)
            self.pins.remove(who)
            if who in self.known and who not in self.pins:
                self.known.remove(who)
                self.known.append(who)
                self.evict()

    @rule(who=lives)
    def forget(self, who: Contact) -> None:
        self.routes.forget(who)
        if all(each.node != who.node or each.incarnation <= who.incarnation for each in self.known):
            self.known = [each for each in self.known if each.node != who.node]
            same = [each for each in self.dead if each.node == who.node]
            newest = max([*same, who], key=lambda each: each.incarnation)
            self.dead = [each for each in self.dead if each.node != who.node] + [newest]

    def learn(self, who: Contact, *, pinned: bool = False) -> None:
        for each in self.known + self.dead:
            if each.node == who.node and each.incarnation >= who.incarnation:
                return
        self.dead = [each for each in self.dead if each.node != who.node]
        self.known = [each for each in self.known if each.node != who.node] + [who]
        self.evict(keep=who if pinned else None)

    def evict(self, keep: Contact | None = None) -> None:
        for each in list(self.known):
            if len(self.known) > 4 and each not in self.pins and each != keep:
                self.known.remove(each)

    @invariant()
    def they_agree(self) -> None:
        assert len(self.routes) == len(self.known)
        assert all(map(self.routes.is_known, self.known))
        assert everybody(self.routes) == sorted(self.known + self.dead)
        expected = sorted(self.known, key=lambda each: each.position, reverse=True)
        assert list(self.routes.preceding(ME.position, 99)) == expected


Model.TestCase.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
TestModel = Model.TestCase
