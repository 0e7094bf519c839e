"""Bugs of the relay tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hocket.core.chord.contact import Contact
from hocket.core.fanout import climber, feeder, window
from hocket.core.fanout.children import Children
from hocket.core.fanout.climber import Climber
from hocket.core.fanout.consumers import Consumer
from hocket.core.fanout.messages import Piece, Place
from hocket.node.cluster_node import ClusterNode
from hocket.node.committed_log import CommittedLog, Done, pieces_of
from hocket.node.partitions import Hosted
from hocket.sim.mutants.mutant import Replacements, mutant


@mutant(seeds=40)
def serve_past_the_committed_end() -> Replacements:
    """What is appended is handed on, be it committed or not."""

    def advanced(node: ClusterNode, hosted: Hosted) -> None:
        place = Place(hosted.core.topic, hosted.core.number)
        node.relays.advanced(place, hosted.core.start, hosted.core.end)

    def read(
        log: CommittedLog, place: Place, offset: int, end: int, bytes_max: int, done: Done
    ) -> None:
        hosted = log._hosted.get(place)
        found = None
        if hosted is not None and hosted.core.start <= offset < hosted.core.end:
            found = log._log.read(
                hosted.group,
                offset,
                bytes_max=bytes_max,
                end_offset=end,
                done=lambda later: log._read(done, later),
            )
            if found is None:
                return
        done(() if found is None else pieces_of(found))

    return [(ClusterNode, "advanced", advanced), (CommittedLog, "read", read)]


@mutant(seeds=20)
def more_children_than_allowed() -> Replacements:
    """A relay takes everybody who comes."""

    def room(_children: Children) -> int:
        return 1

    return [(Children, "room", property(room))]


@mutant(seeds=20)
def resume_at_the_newest() -> Replacements:
    """Who has lost its parent goes on at the newest record, not where it was."""
    leave = Climber._leave_parent

    def forget(core: Climber, candidates: Iterable[Contact]) -> None:
        core.window.reset(core.end)
        for consumer in core.consumers.values():
            consumer.next_offset = max(consumer.next_offset, core.end)
        leave(core, candidates)

    return [(Climber, "_leave_parent", forget)]


@mutant(seeds=40)
def accept_a_gap() -> Replacements:
    """What a parent sends is taken in without a look at its offsets."""

    def accepts(_window: window.Window, pieces: Sequence[Piece]) -> bool:
        return bool(pieces)

    return [(window.Window, "accepts", accepts)]


@mutant(seeds=40)
def ignore_a_silent_parent() -> Replacements:
    """A child waits for its dead parent."""

    def wait(core: Climber) -> None:
        core._silent = 0

    return [(Climber, "_parent_died", wait)]


@mutant(seeds=20)
def send_without_credit() -> Replacements:
    """A consumer is given all there is, whatever it has room for."""

    def eager(_consumer: Consumer) -> bool:
        return True

    def fits(_consumer: Consumer, _pieces: tuple[Piece, ...]) -> bool:
        return True

    return [(Consumer, "is_eager", property(eager)), (Consumer, "fits", fits)]


@mutant(seeds=10)
def forget_the_credit() -> Replacements:
    """Credit that a consumer gives back is not counted."""

    def credit(_consumer: Consumer, _count_bytes: int) -> None:
        pass

    return [(Consumer, "credit", credit)]


@mutant(seeds=100)
def no_cycle_check() -> Replacements:
    """Nobody looks whether it is its own ancestor."""

    def names(_contacts: Iterable[Contact], _who: Contact) -> bool:
        return False

    return [(climber, "names", names), (feeder, "names", names)]


OF_THE_RELAY = (
    serve_past_the_committed_end,
    more_children_than_allowed,
    resume_at_the_newest,
    accept_a_gap,
    ignore_a_silent_parent,
    send_without_credit,
    forget_the_credit,
    no_cycle_check,
)
