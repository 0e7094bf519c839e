"""Views: what a node tells of the ring, and when the views of all make it ideal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hocket.core.ring import messages
from hocket.core.ring.contact import Contact
from hocket.core.ring.views import ViewIs, is_ideal, named_in, view_of
from tests.support.core.ring_script import contact, contacts
from tests.support.core.ring_talk import hear, member

A, B, C, D = contacts("10,20,30,40")


def view(me: Contact, successors: tuple[Contact, ...], predecessor: Contact | None) -> ViewIs:
    return ViewIs(1, me, "", "member", predecessor, successors, ())


IDEAL = (view(A, (B, C), D), view(B, (C, D), A), view(C, (D, A), B), view(D, (A, B), C))


def test_a_member_tells_its_pointers_and_whom_it_has_given_up():
    ring = member()
    ring.fingers.put(7, contact("200"))
    hear(ring, "40", messages.Leaving(contact("40"), None, ()))
    seen = view_of(ring, 7, "berlin-1")
    assert seen == ViewIs(
        7,
        contact("20"),
        "berlin-1",
        "member",
        ring.predecessor,
        contacts("30,40,50"),
        contacts("10,200,60"),
        contacts("40"),
    )
    named = contacts("30,40,50,10,200,60")
    assert named_in(seen) == [*named, seen.predecessor]
    assert named_in(replace(seen, predecessor=None)) == list(named)


def test_a_ring_is_ideal_if_every_pointer_is_right():
    assert is_ideal(IDEAL, 2)
    assert is_ideal([view(A, (B,), B), view(B, (A,), A)], 8)
    assert is_ideal([view(A, (), None)], 8)
    assert is_ideal([view(A, (), A)], 8)


@pytest.mark.parametrize(
    "wrong",
    [
        replace(IDEAL[1], successors=(C,)),
        replace(IDEAL[1], successors=(D, C)),
        replace(IDEAL[1], predecessor=None),
        replace(IDEAL[1], predecessor=C),
        replace(IDEAL[1], standing="joining"),
    ],
)
def test_one_wrong_pointer_is_enough(wrong):
    assert not is_ideal([IDEAL[0], wrong, *IDEAL[2:]], 2)


def test_no_views_make_no_ring():
    assert not is_ideal([], 2)
