"""Bugs of the ring. Most are what the first Chord papers left open, or what an implementation of
the corrected protocol gets wrong most easily."""

from __future__ import annotations

from typing import Any

from hocket.core.ring import messages, small_ring, suspicion
from hocket.core.ring.circle import between
from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Disarm, Effect, Heard, Send
from hocket.core.ring.joining import Joining
from hocket.core.ring.key_owners import KeyOwners
from hocket.core.ring.messages import CloserAre, Notify
from hocket.core.ring.other_rings import OtherRings, SecondLook
from hocket.core.ring.pointers import QUERY, Pointers
from hocket.core.ring.ring import Ring
from hocket.sim.mutants.mutant import Replacements, mutant


@mutant(seeds=20)
def adopt_a_pointer_that_has_not_answered() -> Replacements:
    """A nearer successor is adopted on hearsay; its list is not known, so the old one stands in."""

    def adopt(ring: Pointers, nearer: Contact, _now_us: int) -> list[Effect]:
        if ring.asking or not ring._lies_before_successor(nearer):
            return []
        ring._set_successors(ring._behind_us((nearer, *ring.successors[1:])))
        return []

    return [(Pointers, "stabilize_from_predecessor", adopt)]


@mutant(seeds=60)
def defer_when_busy() -> Replacements:
    """Who asks a busy node waits until it is not: on a small ring all wait for each other."""
    waiting: dict[Pointers, list[tuple[Contact, messages.GetState]]] = {}
    tell, end_query = Pointers.asked_for_state, Pointers._end_query

    def defer(ring: Pointers, sender: Contact, message: messages.GetState) -> list[Effect]:
        if ring.asking:
            waiting.setdefault(ring, []).append((sender, message))
        return tell(ring, sender, message)  # Busy, which means here: wait

    def go_on_waiting(ring: Pointers, request: int) -> list[Effect]:
        is_ours = ring._query is not None and ring._query.request == request
        return [Disarm((QUERY, request))] if is_ours else []

    def end_and_answer(ring: Pointers, query: Any) -> list[Effect]:
        effects = end_query(ring, query)
        for sender, message in waiting.pop(ring, []):
            effects += tell(ring, sender, message)
        return effects

    return [
        (Pointers, "asked_for_state", defer),
        (Pointers, "refused", go_on_waiting),
        (Pointers, "_end_query", end_and_answer),
    ]


@mutant(seeds=20)
def forget_to_recheck() -> Replacements:
    """The successor's predecessor is taken for a nearer successor, wherever it lies."""
    lies_before, answered = Pointers._lies_before_successor, Pointers.answered
    stabilizing: list[Pointers] = []

    def lies(ring: Pointers, contact: Contact) -> bool:
        return ring in stabilizing or lies_before(ring, contact)

    def stabilize(
        ring: Pointers, sender: Contact, message: messages.StateIs, now_us: int
    ) -> list[Effect] | None:
        if message.predecessor != ring.me:
            stabilizing.append(ring)
        try:
            return answered(ring, sender, message, now_us)
        finally:
            stabilizing.clear()

    return [(Pointers, "_lies_before_successor", lies), (Pointers, "answered", stabilize)]


@mutant(seeds=20)
def skip_the_notify() -> Replacements:
    """Nobody tells its successor that it is there."""
    notify = Pointers._notify_successor

    def skip(ring: Pointers, now_us: int) -> list[Effect]:
        return [effect for effect in notify(ring, now_us) if not _is_notify(effect)]

    return [(Pointers, "_notify_successor", skip)]


def _is_notify(effect: Effect) -> bool:
    return isinstance(effect, Send) and isinstance(effect.message, Notify)


@mutant(seeds=30)
def go_on_with_the_last_when_the_head_dies() -> Replacements:
    """When the first successor is dead, not the next one takes its place but the last."""
    drop = Pointers._drop_dead_heads

    def drop_all_but_one(ring: Pointers, now_us: int) -> list[Effect]:
        dead = ring.deaths.convicted
        if not ring.asking and ring.successors and ring.successors[0] in dead:
            living = [each for each in ring.successors if each not in dead]
            if living:
                ring._set_successors(living[-1:])
                return ring.stabilize_from_successor(now_us)
        return drop(ring, now_us)

    return [(Pointers, "_drop_dead_heads", drop_all_but_one)]


@mutant(seeds=40)
def begin_again_without_successors() -> Replacements:
    """Who has lost all its successors joins again; in a cut all do, and there is no ring to join.

    When the cut is healed they find each other, so nothing else finds this.
    """
    drop = Pointers._drop_dead_heads

    def give_up(ring: Pointers, now_us: int) -> list[Effect]:
        dead = ring.deaths.convicted
        if not ring.asking and ring.successors and all(each in dead for each in ring.successors):
            return ring.begin_again()
        return drop(ring, now_us)

    return [(Pointers, "_drop_dead_heads", give_up)]


@mutant(seeds=40)
def trust_an_older_incarnation() -> Replacements:
    """Lives of a node are not told apart: what the new one says counts for the old one."""
    heard = Ring._heard

    def trust(ring: Ring, event: Heard, now_us: int) -> list[Effect]:
        known = ring.node.routes.newest(event.sender.node)
        return heard(ring, Heard(known or event.sender, 0, event.message), now_us)

    return [(Ring, "_heard", trust)]


@mutant(seeds=40)
def convict_at_the_first_silence() -> Replacements:
    """One question without an answer in time, and a node is taken for dead."""

    def convict(cases: suspicion.Suspicions, contact: Contact, now_us: int) -> list[Effect]:
        return cases._convict(contact, now_us)

    return [(suspicion.Suspicions, "open", convict)]


@mutant(seeds=40)
def never_look_for_another_ring() -> Replacements:
    """A ring that was cut off looks neither for the root, nor for itself elsewhere, nor back."""

    def look(_other_rings: OtherRings, _now_us: int) -> list[Effect]:
        return []

    def by_way_of(_look: SecondLook, _guides: tuple[Contact, ...], _now_us: int) -> list[Effect]:
        return []

    def wrong_about(_look: SecondLook, _contact: Contact, _now_us: int) -> list[Effect]:
        return []

    return [
        (OtherRings, "look", look),
        (SecondLook, "by_way_of", by_way_of),
        (SecondLook, "wrong_about", wrong_about),
    ]


@mutant(seeds=5)
def lookup_stops_short() -> Replacements:
    """A node answers with its successor for keys that lie behind it, too."""
    closer = KeyOwners.closer

    def stop(
        owners: KeyOwners, request: int, key: int, count: int, *, by_fingers: bool = False
    ) -> CloserAre:
        answer = closer(owners, request, key, count, by_fingers=by_fingers)
        successors = owners._pointers.successors
        within = [each for each in successors[1:] if each in answer.preceding]
        if within and not answer.owners:
            return CloserAre(request, (), tuple(successors))
        return answer

    return [(KeyOwners, "closer", stop)]


@mutant(seeds=20)
def keep_a_dead_predecessor() -> Replacements:
    """A predecessor is replaced only by one that is nearer, be it alive or dead."""
    rectify, do_without = Pointers.rectify, Pointers._do_without

    def keep(ring: Pointers, who: Contact, now_us: int) -> list[Effect]:
        before = ring.predecessor
        if before and not between(before.position, who.position, ring.me.position):
            return []
        return rectify(ring, who, now_us)

    def keep_it_dead(ring: Pointers, contact: Contact, now_us: int) -> list[Effect]:
        before, effects = ring.predecessor, do_without(ring, contact, now_us)
        if before == contact:
            ring._set_predecessor(before)
        return effects

    return [(Pointers, "rectify", keep), (Pointers, "_do_without", keep_it_dead)]


@mutant(seeds=20)
def rectify_with_anybody() -> Replacements:
    """Whoever notifies is taken for the predecessor, wherever it lies."""
    rectify = Pointers.rectify

    def take(ring: Pointers, who: Contact, now_us: int) -> list[Effect]:
        if ring.predecessor is not None and ring.standing == "member":
            ring._set_predecessor(who)
        return rectify(ring, who, now_us)

    return [(Pointers, "rectify", take)]


@mutant(seeds=150)
def name_the_dead_of_a_small_ring() -> Replacements:
    """Where the registry is the ring, lookups find also those who are known to be dead."""
    owners = small_ring.owners

    def all_of_them(key: int, members: Any, count: int, _dead: Any) -> tuple[Contact, ...]:
        return owners(key, members, count, ())

    return [(small_ring, "owners", all_of_them)]


@mutant(seeds=60)
def never_register_late() -> Replacements:
    """Who came onto the ring while the root was away is never entered in the registry."""

    def stay_unknown(_joining: Joining) -> list[Effect]:
        return []

    return [(Joining, "register_late", stay_unknown)]


@mutant(seeds=30)
def leave_one_out_of_a_small_ring() -> Replacements:
    """A list that is made of the registry is too short by one."""
    neighbours = small_ring.neighbours

    def too_few(me: Contact, members: Any, count: int) -> tuple[list[Contact], Contact | None]:
        successors, predecessor = neighbours(me, members, count)
        return successors[:-1] or successors, predecessor

    return [(small_ring, "neighbours", too_few)]


OF_THE_RING = (
    adopt_a_pointer_that_has_not_answered,
    defer_when_busy,
    forget_to_recheck,
    skip_the_notify,
    go_on_with_the_last_when_the_head_dies,
    begin_again_without_successors,
    trust_an_older_incarnation,
    convict_at_the_first_silence,
    never_look_for_another_ring,
    lookup_stops_short,
    keep_a_dead_predecessor,
    rectify_with_anybody,
    name_the_dead_of_a_small_ring,
    never_register_late,
    leave_one_out_of_a_small_ring,
)
