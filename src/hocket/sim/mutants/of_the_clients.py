"""Bugs between subscribers and the node that serves them, on either side."""

from __future__ import annotations

from collections.abc import Iterable

from hocket.client_core.consuming.core import SubscriptionCore
from hocket.client_core.session.session import Owner, Session
from hocket.core.partition.cursors import Cursor, Cursors
from hocket.core.sharing.leases import Leases
from hocket.core.sharing.ranges import Range
from hocket.errors import HocketError, NoConnection
from hocket.node.running.feeds import Feeds
from hocket.node.running.sessions import Address
from hocket.sim.mutants.mutant import Replacements, mutant


@mutant(seeds=10)
def forget_a_commit() -> Replacements:
    """A commit is answered, and the index stays where it was."""
    commit = Cursors.commit

    def forget(cursors: Cursors, name: str, epoch: int, _position: int) -> Cursor | None:
        return commit(cursors, name, epoch, 0)

    return [(Cursors, "commit", forget)]


@mutant(seeds=20)
def forget_acks_in_the_log() -> Replacements:
    """What was acknowledged of a shared index holds until the node starts again."""
    ack = Leases._ack

    def forget(leases: Leases, consumer: int, ranges: Iterable[Range]) -> list[Range]:
        settled = list(leases._change.settled)
        refused = ack(leases, consumer, ranges)
        leases._change.settled = settled
        return refused

    return [(Leases, "_ack", forget)]


@mutant(seeds=20)
def skip_a_message_when_opened_again() -> Replacements:
    """A subscription that is opened again goes on one message too far."""
    link_up = SubscriptionCore.link_up

    def skip(core: SubscriptionCore) -> None:
        if core._was_open:
            for progress in core._all_progress():
                progress.skip_to(min(progress.expected + 1, progress.end))
        link_up(core)

    return [(SubscriptionCore, "link_up", skip)]


@mutant(seeds=20)
def hang_up_when_shown_the_way() -> Replacements:
    """Whoever is told that another node holds the topic loses its link to the one that said so."""
    redirect = Session.redirect

    def hang_up(session: Session, owner: Owner, error: HocketError) -> bool:
        is_moved = redirect(session, owner, error)
        if is_moved:
            session._drop(NoConnection(str(error)))
        return is_moved

    return [(Session, "redirect", hang_up)]


@mutant(seeds=20)
def begin_a_feed_too_far() -> Replacements:
    """A subscription that is fed at another node misses a message where the feed begins."""
    feed_places = SubscriptionCore.feed_places

    def too_far(core: SubscriptionCore) -> tuple[list[tuple[int, int]], int]:
        places, credit = feed_places(core)
        return [(number, offset + 1) for number, offset in places], credit

    return [(SubscriptionCore, "feed_places", too_far)]


@mutant(seeds=20)
def stay_when_the_feeder_is_lost() -> Replacements:
    """Who loses the node that feeds it waits for it, and does not ask the leader."""

    def stay(core: SubscriptionCore, _node: str, *, lost: bool) -> None:  # noqa: ARG001
        core._feed = None

    return [(SubscriptionCore, "feed_is_over", stay)]


@mutant(seeds=20)
def forget_to_stop_a_feed() -> Replacements:
    """A feed that is closed goes on at the relays."""

    def forget(feeds: Feeds, address: Address) -> None:
        feeds._open.pop(address, None)

    return [(Feeds, "close", forget)]


OF_THE_CLIENTS = (
    forget_a_commit,
    forget_acks_in_the_log,
    skip_a_message_when_opened_again,
    hang_up_when_shown_the_way,
    begin_a_feed_too_far,
    stay_when_the_feeder_is_lost,
    forget_to_stop_a_feed,
)
