"""Users, roles and grants by plain calls, and against a naive evaluator with crashes."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hocket.core.metadata import access as access_module, roster as roster_module
from hocket.core.metadata.access import Access, Changed
from hocket.core.metadata.metadata import AppendChange
from hocket.core.metadata.roster import ACTIONS, Change, Roster, in_words, permits
from hocket.errors import (
    BadName,
    HocketError,
    LimitExceeded,
    NameInUse,
    NotAllowed,
    OutOfRange,
    UnknownRole,
    UnknownUser,
    WrongType,
)
from hocket.model import Decision, Grant, check_pattern, matches
from tests.support.core.logged import origin
from tests.support.threads import LONG


def done(access: Access, *changes: Change) -> Access:
    for change in changes:
        access.durable(access.change(origin(1), change).index)
    return access


def create(name: str, *roles: str) -> Change:
    return Change("createUser", name, roles, token_hash=f"hash of {name}")


def granted(role: str, action: Any, topic: str = "*", index: str = "*") -> Change:
    return Change("addGrant", role, grant=Grant(action, topic, index))


def with_admin() -> Access:
    return done(Access(), create("ann", "admin"))


def with_bob(*grants: tuple[str, ...]) -> Access:
    """Of role `role`, with these grants."""
    access = done(with_admin(), Change("createRole", "role"), create("bob", "role"))
    return done(access, *(granted("role", *grant) for grant in grants))


def test_a_snapshot_has_users_with_their_roles_and_roles_with_their_grants():
    access = with_bob(("publish", "orders"))
    second = Access()
    second.restore(*access.snapshot())
    assert second.snapshot() == access.snapshot()
    assert second.decide("bob", "publish", "orders") == access.decide("bob", "publish", "orders")
    assert second.decide("bob", "publish", "orders").allowed
    assert second.decide("ann", "admin", "*").allowed
    assert not second.decide("bob", "publish", "other").allowed


# --- patterns ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("orders", ["orders"], ["order", "orders2", "xorders", "", "*"]),
        ("*", ["orders", "", "*"], []),
        ("orders*", ["orders", "orders.dlq"], ["order", "my-orders", "*"]),
        ("*orders", ["orders", "my-orders"], ["orders2"]),
        ("a*a", ["aa", "aba"], ["a", "ab"]),
        ("a*b*c", ["abc", "a-b-c", "abbc", "abcbc"], ["acb", "ab", "ac"]),
        ("*.*", [".", "a.b"], ["ab"]),
        ("a.b", ["a.b"], ["axb"]),  # a dot is a dot
        ("**", ["", "x"], []),
    ],
)
def test_a_star_is_any_run_and_all_else_is_itself(pattern: str, yes: list[str], no: list[str]):
    assert [name for name in yes if not matches(pattern, name)] == []
    assert [name for name in no if matches(pattern, name)] == []


@given(st.text("ab*.", max_size=8), st.text("ab.", max_size=10))
def test_patterns_match_as_the_regular_expression_does(pattern: str, name: str):
    expression = ".*".join(re.escape(piece) for piece in pattern.split("*"))
    assert matches(pattern, name) == bool(re.fullmatch(expression, name))


def test_a_pattern_made_to_be_slow_is_not():
    assert not matches("a*" * 127 + "b", "a" * 255)


@pytest.mark.parametrize("pattern", ["", "a b", "a/b", "x" * 256, "ü", "a\n"])
def test_what_is_no_pattern_is_refused(pattern: str):
    with pytest.raises(BadName, match="must be 1 to 255"):
        check_pattern(pattern)
    for grant in (("publish", pattern), ("subscribe", "*", pattern)):
        with pytest.raises(BadName):
            with_bob(grant)


def test_a_pattern_is_text():
    with pytest.raises(WrongType, match="must be a str, not 3"):
        check_pattern(3)  # type: ignore[arg-type]


# --- decisions -----------------------------------------------------------------------------------


def test_without_users_everybody_may_do_everything():
    access = Access()
    assert not access.is_on
    for action in ACTIONS:
        assert access.decide("", action, "orders").allowed
    assert access.has_grant("", "orders")
    assert "off" in access.decide("anybody", "admin", "*").reason


def test_admin_implies_every_other_action():
    access = with_admin()
    assert access.is_on
    for action in ACTIONS:
        assert access.decide("ann", action, "orders", "billing") == Decision(
            True, "the role 'admin' grants admin on everything"
        )


def test_an_admin_of_some_topics_is_no_admin_of_the_broker():
    access = with_bob(("admin", "orders*"))
    assert access.decide("bob", "delete", "orders.dlq").allowed
    assert access.decide("bob", "admin", "orders").allowed
    assert not access.decide("bob", "admin", "*").allowed
    assert not access.decide("bob", "delete", "other").allowed


def test_a_grant_is_for_its_action_its_topics_and_its_indexes():
    access = with_bob(("subscribe", "orders*", "b*"), ("publish", "orders"))
    assert access.decide("bob", "subscribe", "orders.eu", "billing").allowed
    assert not access.decide("bob", "subscribe", "orders", "audit").allowed
    assert not access.decide("bob", "subscribe", "stock", "billing").allowed
    assert access.decide("bob", "publish", "orders").allowed
    assert not access.decide("bob", "alter", "orders").allowed
    # What concerns no single index concerns them all.
    assert not access.decide("bob", "subscribe", "orders").allowed
    assert access.has_grant("bob", "orders.eu")
    assert not access.has_grant("bob", "stock")
    assert not access.has_grant("nobody", "orders")


def test_a_refusal_says_which_grant_is_missing_and_how_to_add_it():
    access = done(with_bob(), create("eve"), Change("createRole", "two"))
    assert access.decide("bob", "publish", "orders").reason == (
        "the only role of user 'bob', 'role', does not grant publish on topic 'orders'; an admin "
        "can change that with: hocket grant add role publish orders"
    )
    assert access.decide("eve", "subscribe", "orders", "billing").reason == (
        "user 'eve' has no roles, and nothing grants subscribe on topic 'orders', index 'billing'; "
        "an admin can change that with: hocket grant add ROLE subscribe orders --index billing"
    )
    done(access, Change("setRoles", "bob", ("role", "two")))
    assert access.decide("bob", "admin", "*").reason == (
        "the roles of user 'bob' (role, two) do not grant admin on everything; an admin can "
        "change that with: hocket grant add ROLE admin"
    )
    assert access.decide("ghost", "publish", "x").reason == "there is no user 'ghost'"


def test_names_that_are_too_long_are_cut_in_what_is_said_and_not_remembered():
    access = with_bob()
    reason = access.decide("bob", "publish", "x" * 10_000).reason
    assert len(reason) < 1_000
    assert not access._decisions


def test_decisions_are_remembered_until_something_changes(monkeypatch):
    monkeypatch.setattr(access_module, "DECISIONS_MAX", 2)
    access = with_bob()
    first = access.decide("bob", "publish", "orders")
    assert access.decide("bob", "publish", "orders") is first
    for topic in ("a", "b", "c"):
        access.decide("bob", "publish", topic)
        assert len(access._decisions) <= 2
    assert not access.decide("bob", "publish", "c").allowed
    done(access, granted("role", "publish"))
    assert access.decide("bob", "publish", "c").allowed


# --- changes -------------------------------------------------------------------------------------


def test_a_change_takes_effect_when_it_is_committed():
    access = with_bob()
    append = access.change(origin(7), granted("role", "publish", "orders"))
    assert not access.decide("bob", "publish", "orders").allowed
    assert access.durable(append.index - 1) == []
    assert access.durable(append.index) == [
        Changed(append.index, origin(7), granted("role", "publish", "orders"))
    ]
    assert access.decide("bob", "publish", "orders").allowed


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (create("ann"), NameInUse, "a user 'ann' already"),
        (create("bob"), NameInUse, "a user 'bob' already"),
        (create("a b"), BadName, "a user's name"),
        (create("eve", "ghost"), UnknownRole, "no role 'ghost'; make it with: hocket role create"),
        (create("eve", "role", "role"), OutOfRange, "named twice: role, role"),
        (create("eve", "a b"), BadName, "a role's name"),
        (Change("setToken", "eve"), UnknownUser, "no user 'eve'; see: hocket user list"),
        (Change("setToken", "e e"), BadName, "a user's name"),
        (Change("deleteUser", "eve"), UnknownUser, "no user 'eve'"),
        (Change("deleteUser", "ann"), NotAllowed, "'ann' is the last one with the role 'admin'"),
        (Change("setRoles", "ann", ("role",)), NotAllowed, "last one with the role 'admin'"),
        (Change("setRoles", "eve", ()), UnknownUser, "no user 'eve'"),
        (Change("setRoles", "bob", ("ghost",)), UnknownRole, "no role 'ghost'"),
        (Change("createRole", "role"), NameInUse, "a role 'role' already"),
        (Change("createRole", "admin"), NameInUse, "a role 'admin' already"),
        (Change("createRole", "-x"), BadName, "a role's name"),
        (Change("deleteRole", "ghost"), UnknownRole, "no role 'ghost'"),
        (Change("deleteRole", "admin"), NotAllowed, "built in and cannot be changed"),
        (granted("admin", "publish"), NotAllowed, "built in"),
        (granted("ghost", "publish"), UnknownRole, "no role 'ghost'"),
        (granted("role", "fly"), OutOfRange, "publish, subscribe, .* not 'fly'"),
        (granted("role", "publish", "*", "x"), OutOfRange, "publish has to do with no index"),
        (granted("role", "create", "*", "x"), OutOfRange, "create has to do with no index"),
        (Change("removeGrant", "admin", grant=Grant("admin")), NotAllowed, "built in"),
        (
            Change("removeGrant", "role", grant=Grant("publish", "a")),
            OutOfRange,
            "has no grant publish on topic 'a'; see: hocket grant list role",
        ),
    ],
)
def test_what_cannot_be_changed_is_refused_and_nothing_is_changed(change, error, words):
    access = with_bob(("publish", "orders"))
    before = access.snapshot()
    with pytest.raises(error, match=words):
        access.change(origin(9), change)
    assert access.snapshot() == before
    assert access.change(origin(9), Change("createRole", "next")).index == before[0] + 1


def test_the_first_user_must_be_an_admin():
    access = done(Access(), Change("createRole", "role"))
    for change in (create("bob"), create("bob", "role")):
        with pytest.raises(NotAllowed, match="hocket user create bob --role admin"):
            access.change(origin(1), change)
    assert not access.is_on
    assert done(access, create("bob", "role", "admin")).is_on


def test_two_admins_who_delete_each_other_at_once_do_not_both_succeed():
    access = done(with_admin(), create("bob", "admin"))
    access.change(origin(1), Change("deleteUser", "bob"))
    with pytest.raises(NotAllowed, match="'ann' is the last"):
        access.change(origin(2), Change("deleteUser", "ann"))
    with pytest.raises(NotAllowed, match="'ann' is the last"):
        access.change(origin(2), Change("setRoles", "ann", ()))
    access.durable(100)
    assert list(access.committed.users) == ["ann"]


def test_a_name_on_its_way_is_taken():
    access = with_admin()
    access.change(origin(1), create("bob"))
    with pytest.raises(NameInUse):
        access.change(origin(2), create("bob"))


def test_an_admin_may_go_when_there_is_another():
    access = done(with_admin(), create("bob", "admin"), Change("setRoles", "ann", ()))
    done(access, Change("setRoles", "bob", ("admin",)), Change("deleteUser", "ann"))
    assert list(access.committed.users) == ["bob"]


def test_a_deleted_role_is_lost_by_all_who_have_it():
    access = done(with_bob(("publish",)), Change("createRole", "two"))
    done(access, Change("setRoles", "bob", ("role", "two")), Change("deleteRole", "role"))
    assert access.committed.users["bob"].roles == ("two",)
    assert access.committed.users["ann"].roles == ("admin",)
    assert not access.decide("bob", "publish", "orders").allowed


def test_a_grant_added_twice_is_there_once_and_gone_when_removed():
    access = with_bob(("publish", "a"), ("publish", "b"), ("publish", "a"))
    assert len(access.committed.roles["role"]) == 2
    done(access, Change("removeGrant", "role", grant=Grant("publish", "a")))
    assert access.committed.roles["role"] == (Grant("publish", "b"),)


def test_a_new_token_replaces_the_old_and_leaves_the_roles():
    access = done(with_bob(), Change("setToken", "bob", token_hash="other"))
    bob = access.committed.users["bob"]
    assert (bob.token_hash, bob.roles) == ("other", ("role",))


def test_there_are_limits(monkeypatch):
    monkeypatch.setattr(roster_module, "USERS_MAX", 2)
    monkeypatch.setattr(roster_module, "ROLES_MAX", 3)
    monkeypatch.setattr(roster_module, "ROLES_OF_USER_MAX", 1)
    monkeypatch.setattr(roster_module, "GRANTS_MAX", 1)
    access = with_bob(("publish", "a"))
    done(access, Change("createRole", "two"), granted("role", "publish", "a"))
    for change, words in (
        (create("eve"), "2 users already"),
        (Change("createRole", "three"), "3 roles already"),
        (Change("setRoles", "bob", ("role", "two")), "at most 1 roles, not 2"),
        (granted("role", "publish", "b"), "1 grants already"),
    ):
        with pytest.raises(LimitExceeded, match=words):
            access.change(origin(1), change)


def test_hashes_are_not_shown():
    access = with_bob()
    shown = f"{access.committed.users} {create('eve')} {Changed(1, origin(1), create('eve'))}"
    assert "hash of" not in shown


# --- recovery, against a naive model -----------------------------------------------------------


USERS, ROLES = ["ann", "bob", "eve"], ["admin", "one", "two"]
users, roles = st.sampled_from(USERS), st.sampled_from(ROLES)
some_roles = st.lists(roles, unique=True, max_size=2).map(tuple)
grants = st.builds(
    Grant,
    st.sampled_from(["subscribe", "delete", "admin"]),
    st.sampled_from(["*", "a", "a*", "*b"]),
    st.sampled_from(["*", "i*"]),
)


class Naive:
    """Users and roles as dictionaries of lists; every question walks all of them."""

    def __init__(self) -> None:
        self.users: dict[str, tuple[str, list[str]]] = {}
        self.roles: dict[str, list[Grant]] = {"admin": [Grant("admin")]}

    def accepts(self, change: Change) -> bool:
        name, known = change.name, set(change.roles) <= set(self.roles)
        others = [u for u, (_, held) in self.users.items() if "admin" in held and u != name]
        if change.kind == "createUser":
            return name not in self.users and known and bool(self.users or "admin" in change.roles)
        if change.kind == "setToken":
            return name in self.users
        if change.kind == "deleteUser":
            return name in self.users and bool(others)
        if change.kind == "setRoles":
            return name in self.users and known and bool(others or "admin" in change.roles)
        if change.kind == "createRole":
            return name not in self.roles
        if name == "admin" or name not in self.roles:
            return False
        return change.kind != "removeGrant" or change.grant in self.roles[name]

    def apply(self, change: Change) -> None:
        name = change.name
        match change.kind:
            case "createUser":
                self.users[name] = change.token_hash, list(change.roles)
            case "setToken":
                self.users[name] = change.token_hash, self.users[name][1]
            case "deleteUser":
                del self.users[name]
            case "setRoles":
                self.users[name] = self.users[name][0], list(change.roles)
            case "createRole":
                self.roles[name] = []
            case "deleteRole":
                del self.roles[name]
                for _, held in self.users.values():
                    if name in held:
                        held.remove(name)
            case "addGrant":
                if change.grant not in self.roles[name]:
                    self.roles[name].append(change.grant)
            case _:
                self.roles[name].remove(change.grant)

    def allows(self, user: str, action: str, topic: str, index: str) -> bool:
        if not self.users:
            return True
        _, held = self.users.get(user, ("", []))
        return any(
            grant.action in (action, "admin")
            and re.fullmatch(grant.topic.replace("*", ".*"), topic)
            and re.fullmatch(grant.index.replace("*", ".*"), index)
            for role in held
            for grant in self.roles[role]
        )


class AccessAgainstNaive(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.access = Access()
        self.log: list[AppendChange] = []
        self.durable_index = 0
        self.naive, self.leading = Naive(), Naive()
        self.on_their_way: list[Change] = []
        self.snapshots = [self.access.snapshot()]
        self.numbers = 0

    def ask(self, change: Change) -> None:
        try:
            append = self.access.change(origin(1), change)
        except HocketError:
            assert not self.leading.accepts(change), change
            return
        assert self.leading.accepts(change), change
        self.leading.apply(change)
        self.on_their_way.append(change)
        self.log.append(append)
        assert append.index == len(self.log)

    @rule(name=users, roles=some_roles)
    def create_user(self, name: str, roles: tuple[str, ...]) -> None:
        self.numbers += 1
        self.ask(Change("createUser", name, roles, token_hash=str(self.numbers)))

    @rule(name=users)
    def set_token(self, name: str) -> None:
        self.numbers += 1
        self.ask(Change("setToken", name, token_hash=str(self.numbers)))

    @rule(name=users)
    def delete_user(self, name: str) -> None:
        self.ask(Change("deleteUser", name))

    @rule(name=users, roles=some_roles)
    def set_roles(self, name: str, roles: tuple[str, ...]) -> None:
        self.ask(Change("setRoles", name, roles))

    @rule(name=roles)
    def create_role(self, name: str) -> None:
        self.ask(Change("createRole", name))

    @rule(name=roles)
    def delete_role(self, name: str) -> None:
        self.ask(Change("deleteRole", name))

    @rule(name=roles, grant=grants)
    def add_grant(self, name: str, grant: Grant) -> None:
        self.ask(Change("addGrant", name, grant=grant))

    @rule(name=roles, grant=grants)
    def remove_grant(self, name: str, grant: Grant) -> None:
        self.ask(Change("removeGrant", name, grant=grant))

    @rule(count=st.integers(0, 4))
    def durable(self, count: int) -> None:
        self.durable_index = min(len(self.log), self.durable_index + count)
        for changed in self.access.durable(self.durable_index):
            expected = self.on_their_way.pop(0)
            assert changed.change == expected
            self.naive.apply(expected)
        assert self.access.applied_index == self.durable_index

    @rule()
    def take_snapshot(self) -> None:
        self.snapshots.append(self.access.snapshot())

    @rule(which=st.integers(0, 5), survivors=st.integers(0, 3))
    def crash(self, which: int, survivors: int) -> None:
        self.durable(survivors)
        del self.log[self.durable_index :]
        self.on_their_way.clear()
        self.access = self.recovered(self.snapshots[-1 - which % len(self.snapshots)])
        self.leading = self.naive_now()

    def naive_now(self) -> Naive:
        naive = Naive()
        naive.users = {
            name: (token, list(held)) for name, (token, held) in self.naive.users.items()
        }
        naive.roles = {name: list(grants) for name, grants in self.naive.roles.items()}
        return naive

    def recovered(self, snapshot: tuple[int, dict[str, Any]]) -> Access:
        access = Access()
        access.restore(*snapshot)
        for append in self.log[snapshot[0] : self.durable_index]:
            access.replayed(append.index, append.body)
        return access

    @invariant()
    def replay_equals_live_equals_model(self) -> None:
        fresh = self.recovered(Access().snapshot())
        for access in (self.access, fresh, self.recovered(self.snapshots[-1])):
            assert {
                user.name: (user.token_hash, list(user.roles))
                for user in access.committed.users.values()
            } == self.naive.users
            assert {
                name: sorted(map(str, grants)) for name, grants in access.committed.roles.items()
            } == {name: sorted(map(str, grants)) for name, grants in self.naive.roles.items()}
            for roster in (access.committed, access.leading):
                assert not roster.users or any(
                    "admin" in user.roles for user in roster.users.values()
                ), "nobody can change anything any more"

    @invariant()
    def decisions_are_those_of_the_model(self) -> None:
        for user in (*USERS, ""):
            for topic, index in (("a", "*"), ("ab", "i1"), ("c", "j"), ("*", "*")):
                for action in ("subscribe", "delete", "admin"):
                    decided = self.access.decide(user, action, topic, index).allowed  # type: ignore[arg-type]
                    assert decided == self.naive.allows(user, action, topic, index)


TestAccessAgainstNaive = AccessAgainstNaive.TestCase
TestAccessAgainstNaive.settings = settings(
    max_examples=2_000 if LONG else 40, stateful_step_count=30, report_multiple_bugs=False
)


def test_a_hole_in_the_log_is_never_replayed():
    body = Access().change(origin(1), create("ann", "admin")).body
    with pytest.raises(AssertionError):
        Access().replayed(2, body)


def test_a_roster_says_which_grant_permits():
    roster = Roster()
    roster.apply(create("ann", "admin"))
    assert list(roster.grants_of("ann")) == [("admin", Grant("admin"))]
    assert list(roster.grants_of("bob")) == []
    assert permits(Grant("subscribe", "a*", "i*"), "subscribe", "ab", "i1")
    assert in_words(Grant("subscribe", "a*", "i*")) == "subscribe on topic 'a*', index 'i*'"


def test_a_change_of_what_never_was_changes_nothing():
    """The entry that made the user or the role was lost, and given up."""
    roster = Roster()
    for change in (
        Change("setToken", "bob", token_hash="x"),
        Change("setRoles", "bob", ("admin",)),
        Change("deleteUser", "bob"),
        Change("deleteRole", "worker"),
        granted("worker", "admin"),
        Change("removeGrant", "worker", grant=Grant("admin")),
    ):
        roster.apply(change)
    assert not roster.users
    assert list(roster.roles) == ["admin"]
    roster.apply(create("ann", "admin", "worker"))
    assert [role for role, _ in roster.grants_of("ann")] == ["admin"], "nobody gets a right by it"


def test_a_change_of_another_proposer_is_judged_by_at_once():
    access, other = with_admin(), Access()
    append = access.change(origin(1), create("bob", "admin"))
    other.replayed(1, create("ann", "admin").encode())
    (changed,) = other.applied(2, append.body, None)
    assert (changed.index, changed.origin, changed.change.name) == (2, None, "bob")
    with pytest.raises(NameInUse):
        other.change(origin(1), create("bob", "admin"))


def test_a_state_that_replaces_another_is_told_as_changes():
    before, after = with_bob(("publish", "orders"), ("subscribe", "orders")), with_admin()
    done(after, Change("createRole", "role"), Change("createRole", "new"), create("eve", "role"))
    done(after, granted("role", "publish", "orders"), granted("new", "create"))
    done(after, Change("setToken", "ann", token_hash="another"))
    done(after, Change("setRoles", "ann", ("admin", "new")))
    done(before, Change("createRole", "gone"))
    assert before.decide("bob", "publish", "orders").allowed
    index, state = after.snapshot()
    told = [(each.change.kind, each.change.name) for each in before.replace(index, state)]
    assert told == [
        ("deleteUser", "bob"), ("removeGrant", "role"), ("deleteRole", "gone"),
        ("createRole", "new"), ("addGrant", "new"), ("setToken", "ann"), ("setRoles", "ann"),
        ("createUser", "eve"),
    ]  # fmt: skip
    assert not before.decide("bob", "publish", "orders").allowed
    assert before.snapshot() == after.snapshot()
    assert before.leading.users == before.committed.users
    assert before.replace(index, state) == []


# --- entries that may be committed ---------------------------------------------------------------


def in_doubt(access: Access, *changes: Change) -> Access:
    """Started again from this state, with these entries behind it in the log."""
    again = Access()
    again.restore(*access.snapshot())
    for change in changes:
        again.in_doubt(change.encode())
    return again


@pytest.mark.parametrize(
    "change",
    [
        Change("removeGrant", "role", grant=Grant("publish", "orders")),
        Change("deleteRole", "role"),
        Change("setRoles", "bob", ()),
        Change("deleteUser", "bob"),
        Change("setToken", "bob", token_hash="another"),
    ],
)
def test_what_an_entry_in_doubt_takes_away_is_not_in_force(change: Change):
    access = in_doubt(with_bob(("publish", "orders")), change)
    assert not access.decide("bob", "publish", "orders").allowed
    assert not access.has_grant("bob", "orders")
    assert access.decide("ann", "publish", "orders").allowed
    # And no later one gives it back, which may be one of those that never were committed.
    access.in_doubt(create("bob", "role").encode())
    access.in_doubt(Change("createRole", "role").encode())
    access.in_doubt(granted("role", "publish", "orders").encode())
    assert not access.decide("bob", "publish", "orders").allowed
    access.no_doubt()
    assert access.decide("bob", "publish", "orders").allowed
    assert access.in_force is access.committed


def test_what_an_entry_in_doubt_gives_is_in_force_when_it_is_committed():
    more = granted("role", "subscribe", "orders")
    access = in_doubt(with_bob(("publish", "orders")), more)
    assert not access.decide("bob", "subscribe", "orders").allowed
    access.applied(access.applied_index + 1, more.encode(), None)
    assert not access.decide("bob", "subscribe", "orders").allowed
    access.no_doubt()
    assert access.decide("bob", "subscribe", "orders").allowed


def test_another_entry_in_the_place_of_one_in_doubt_counts_at_once():
    access = in_doubt(with_bob(("publish", "orders")), create("eve"))
    assert access.decide("bob", "publish", "orders").allowed
    access.applied(access.applied_index + 1, Change("deleteUser", "bob").encode(), None)
    assert not access.decide("bob", "publish", "orders").allowed


def test_a_state_counts_at_once_while_entries_are_in_doubt():
    access = in_doubt(with_bob(("publish", "orders")), create("eve"))
    access.replace(20, with_admin().snapshot()[1])
    assert not access.decide("bob", "publish", "orders").allowed


def test_access_that_may_be_on_lets_nobody_in():
    access = in_doubt(Access(), create("ann", "admin"))
    assert access.is_on
    for user in ("", "ann"):
        refused = access.decide(user, "publish", "orders")
        assert not refused.allowed
        assert "does not know yet who its users are" in refused.reason
    access.no_doubt()
    assert not access.is_on
