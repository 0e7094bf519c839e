"""A ticket is good for its name, for a while, and for who knows its secret."""

import pytest

from hocket import tickets
from hocket.errors import NotAllowed

KEY, NOW = b"k" * 32, 1_000_000_000


def test_owner_and_caller_come_to_the_same_secret():
    issued = tickets.issue(KEY, "chat", "alice", NOW)
    user, secret = tickets.read(KEY, "chat", issued.ticket, NOW + tickets.LIFE_US)
    assert (user, secret) == ("alice", issued.secret)
    proof = tickets.proof(secret, "caller", b"o" * 16, b"c" * 16)
    assert tickets.same(proof, tickets.proof(issued.secret, "caller", b"o" * 16, b"c" * 16))
    assert not tickets.same(proof, tickets.proof(secret, "owner", b"o" * 16, b"c" * 16))
    assert not tickets.same(proof, tickets.proof(secret, "caller", b"o" * 16, b"d" * 16))


def test_a_ticket_that_was_changed_has_another_secret():
    issued = tickets.issue(KEY, "chat", "alice", NOW)
    forged = issued.ticket.replace(b"alice", b"admin")
    assert tickets.read(KEY, "chat", forged, NOW)[1] != issued.secret
    assert tickets.read(b"x" * 32, "chat", issued.ticket, NOW)[1] != issued.secret


@pytest.mark.parametrize(
    "ticket",
    [b"", b"{", b"[]", b"5", b'{"name": "chat"}', b'{"name": "chat", "user": 5, "until": 9}',
     b'{"name": "chat", "user": "a", "until": "x"}', b"\xff"],
)  # fmt: skip
def test_nonsense_is_not_allowed(ticket):
    with pytest.raises(NotAllowed):
        tickets.read(KEY, "chat", ticket, NOW)


def test_a_ticket_for_another_name_or_of_yesterday_is_not_allowed():
    issued = tickets.issue(KEY, "chat", "alice", NOW)
    with pytest.raises(NotAllowed, match="not for 'other'"):
        tickets.read(KEY, "other", issued.ticket, NOW)
    late = NOW + tickets.LIFE_US + tickets.SKEW_US + 5_000_000
    with pytest.raises(NotAllowed, match="has run out"):
        tickets.read(KEY, "chat", issued.ticket, late)
