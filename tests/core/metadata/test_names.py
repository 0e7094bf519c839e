"""The names of brokers in the log of the metadata: one lease each, and who may free them."""

import json
from dataclasses import replace

import pytest

from hocket.core.metadata import names as names_module
from hocket.core.metadata.names import Changed, Names, Registration
from hocket.errors import BadName, LimitExceeded, NameInUse, OutOfRange

ALICE = Registration("chat", "thread", "aa" * 16, "bb" * 32, "n1", "alice", "127.0.0.1:5")
BOB = replace(ALICE, lease="cc" * 16, user="bob")


def commit(names, append):
    return names.durable(append.index)


def test_a_name_is_registered_when_it_is_committed():
    names = Names()
    append = names.register("who asked", ALICE)
    assert names.committed == {}
    assert commit(names, append) == [Changed("who asked", "chat", ALICE)]
    assert names.committed == {"chat": ALICE}


def test_another_lease_is_refused_also_before_the_first_is_committed():
    names = Names()
    append = names.register(None, ALICE)
    with pytest.raises(NameInUse, match="by user 'alice'"):
        names.register(None, BOB)
    commit(names, append)
    with pytest.raises(NameInUse, match="'chat'"):
        names.register(None, replace(BOB, user=""))


def test_the_same_lease_moves_its_name_to_another_node():
    names = Names()
    commit(names, names.register(None, ALICE))
    moved = replace(ALICE, node="n2", address="")
    commit(names, names.register(None, moved))
    assert names.committed["chat"] == moved
    # The node that the process has left frees nothing any more.
    assert commit(names, names.release("late", "chat", ALICE.lease, "n1")) == [
        Changed("late", "chat", moved)
    ]
    commit(names, names.release(None, "chat", ALICE.lease, "n2"))
    assert names.committed == {}


def test_only_its_own_lease_frees_a_name():
    names = Names()
    commit(names, names.register(None, ALICE))
    commit(names, names.release(None, "chat", BOB.lease))
    assert "chat" in names.committed
    commit(names, names.release(None, "chat", ALICE.lease))
    commit(names, names.register(None, BOB))
    assert names.committed["chat"] == BOB


def test_whoever_applies_an_entry_need_not_have_proposed_it():
    leader, follower = Names(), Names()
    registered = leader.register(None, ALICE)
    assert follower.applied(1, registered.body, None) == [Changed(None, "chat", ALICE)]
    asked = json.dumps({**json.loads(registered.body), "asked": ["n2", 5]}).encode()
    assert Names().applied(1, asked, "x") == [Changed("x", "chat", ALICE)]
    with pytest.raises(NameInUse):
        follower.register(None, BOB)
    freed = leader.release(None, "chat", ALICE.lease)
    assert follower.applied(2, freed.body, None) == [Changed(None, "chat", None)]
    assert follower.applied(3, freed.body, None) == [Changed(None, "chat", None)]


def test_a_root_that_steps_down_judges_by_what_is_committed():
    names = Names()
    commit(names, names.register(None, ALICE))
    names.release("waits", "chat", ALICE.lease)
    assert names.withdraw(1) == ["waits"]
    with pytest.raises(NameInUse):
        names.register(None, BOB)


def test_a_snapshot_has_all_names_and_says_when_the_last_one_is_gone():
    names = Names()
    assert names.snapshot() == (0, {})
    commit(names, names.register(None, ALICE))
    index, state = names.snapshot()
    other = Names()
    other.restore(index, json.loads(json.dumps(state)))
    assert other.committed == {"chat": ALICE}
    with pytest.raises(NameInUse):
        other.register(None, BOB)

    commit(names, names.release(None, "chat", ALICE.lease))
    commit(names, names.register(None, replace(BOB, name="other")))
    index, state = names.snapshot()
    changes = other.replace(index, state)
    assert [(each.name, each.registration is None) for each in changes] == [
        ("chat", True),
        ("other", False),
    ]
    commit(names, names.release(None, "other", BOB.lease))
    assert names.snapshot()[1] == {"held": []}


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"name": ""}, BadName),
        ({"name": "a\nb"}, BadName),
        ({"name": "x" * 256}, BadName),
        ({"kind": "odd"}, OutOfRange),
        ({"lease": "aa"}, OutOfRange),
        ({"key": ""}, OutOfRange),
        ({"fingerprint": "ab"}, OutOfRange),
        ({"address": "x" * 256}, BadName),
        ({"address": "a\tb"}, BadName),
    ],
)
def test_what_cannot_be_registered_is_refused(wrong, error):
    names = Names()
    with pytest.raises(error):
        names.register(None, replace(ALICE, **wrong))
    assert names.snapshot() == (0, {})


def test_there_is_an_end_to_how_many_names_there_are(monkeypatch):
    monkeypatch.setattr(names_module, "NAMES_MAX", 1)
    names = Names()
    names.register(None, ALICE)
    with pytest.raises(LimitExceeded):
        names.register(None, replace(BOB, name="other"))
    names.register(None, replace(ALICE, address=""))
