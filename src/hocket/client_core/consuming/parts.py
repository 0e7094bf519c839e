"""A subscription to one topic: a part for each node that leads some of its partitions.

Rule 1: a topic that one node has, has one part, for all partitions, opened as it was asked for.
Nobody asks who leads what before a node says that there are several (`severalNodes`).
Rule 2: of several parts each names its partitions, and no partition is in two parts. A partition
that another node leads by now goes to the part of that node, with all that is known of it: how far
it was handed out, what was acked, what is with the application.
Rule 3: a part opens itself, and looks by itself for a node that is away. The others go on
meanwhile.
Rule 4: if a part ends, so does the subscription, with the same error. What its node refuses for
being late is asked for again; an index that one node knows is made at the others.
Rule 5: a partition that the topic gains is read once, from its beginning.

Like all cores of the client it does no I/O, waits for nothing and logs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from hocket.client_core.consuming.attachment import SubscriptionOptions, Whole
from hocket.client_core.consuming.joining import Acked, B, Joined, M, shared_out
from hocket.client_core.consuming.reader import B_co, M_co, TopicReader
from hocket.client_core.session.answers import again
from hocket.client_core.session.backoff import Backoff
from hocket.client_core.session.session import Answer, Owner, Routing, Session
from hocket.errors import (
    HocketError,
    UnknownIndex,
    UnknownPartition,
    UnknownTopic,
)
from hocket.model import Start

if TYPE_CHECKING:
    from typing import Self

EARLIEST = Start()
NODES_AT_ONCE = 4  # so many may send the whole credit each, where users have not said how much


class Part(TopicReader[M_co, B_co], Owner, Protocol[M_co, B_co]):
    """A subscription with a handle at one node (see `attachment.Attachment`)."""

    session: Session
    topic: str
    whole: Whole | None
    node: str
    is_part: bool
    begins: Start | None

    @property
    def is_asking(self) -> bool: ...
    @property
    def was_open(self) -> bool: ...
    @property
    def has_messages(self) -> bool:
        """Messages wait in it to be handed out."""

    def owns(self, progress: Any) -> bool: ...
    def narrow(self, options: SubscriptionOptions) -> None: ...
    def hand_over(self, numbers: Iterable[int], to: Any) -> None: ...
    def join(self, other: Any) -> None: ...
    def shut(self) -> None: ...
    def open_later(self) -> None: ...
    def refused_for_now_or_good(self, error: HocketError) -> None: ...
    def dissolve(self) -> None: ...


@dataclass(slots=True)
class Commit:
    """What a commit waits for, of each part."""

    moves: int  # how often partitions had gone from part to part
    of_parts: Acked


class Parted(Joined[M, B, Part[M, B]]):
    def __init__(
        self,
        session: Session,
        topic: str,
        options: SubscriptionOptions,
        make: Callable[[SubscriptionOptions], Part[M, B]],
    ) -> None:
        super().__init__(session.outbox, topic, options)
        self._first = session
        self._make = make
        self._count = 0  # how many partitions the topic has; 0: nobody was asked who leads them
        self._told = 0  # how many it has, as a node said
        self._is_growing = False  # it was asked who leads the new ones
        self._is_spread = False  # there are several parts, or one that names its partitions
        self._moves = 0  # how often partitions went from part to part
        self._backoff = Backoff(session.outbox.random)
        # Of several parts: whether the index is there. While that is not known, none makes it.
        self._index: Literal["", "sought", "there"] = ""
        self._lacking: dict[Part[M, B], None] = {}  # those whose node does not know the index
        self._refused = 0  # by parts that are no more

    # --- what it consists of ---------------------------------------------------------------------

    @property
    def session(self) -> Session:
        there = list(self._readers.values())
        away = [part for part in there if not part.is_open]
        return (away or there)[0].session if there else self._first

    def parts(self) -> list[Part[M, B]]:
        return list(self._readers.values())

    @property
    def _router(self) -> Routing:
        router = self._first.router
        assert router is not None, "without one there is one node, which does not name others"
        return router

    def _new_part(self, options: SubscriptionOptions) -> Part[M, B]:
        part = self._make(options)
        part.whole = self
        for other in self.parts()[:1]:
            part.join(other)
        self._join(part, part)
        return part

    def _part_at(self, node: str, but: Part[M, B] | None, start: Start) -> Part[M, B] | None:
        """The part at this node that may go on with what `but` reads, or begin it at `start`."""
        for part in self.parts():
            is_there = bool(node) and part.node == node and part is not but
            if is_there and self._may_join(part, but, start):
                return part
        return None

    def _may_join(self, part: Part[M, B], but: Part[M, B] | None, start: Start) -> bool:
        """Whether the part may be opened with the partitions of `but`; None: with new ones.

        A part that was open goes on where it is, and reads the rest from its beginning: with it,
        what is to begin elsewhere would forget that.
        """
        if self.options.mode != "own":
            return (
                True  # parts are one consumer; a node ends what that has open when it comes again
            )
        if but is None or but.was_open:
            return part.was_open
        if part.was_open:
            return start == EARLIEST and not but.options.positions
        return part.options.start == start

    def _part_of(self, partition: object) -> Part[M, B]:
        parts = self.parts()
        if len(parts) == 1 or self.options.mode != "own":
            return parts[0]  # a shared index refuses what is asked of one partition
        for part in parts:
            if partition in part.partitions():
                return part
        raise UnknownPartition(
            f"this subscription has the partitions {self.partitions()}, and no {partition!r}"
        )

    # --- opening ---------------------------------------------------------------------------------

    @property
    def may_be_opened(self) -> bool:
        """Also where it is open at some nodes, if that has made its index there, or taken it."""
        has_index = bool(self.options.index)
        return super().may_be_opened or (has_index and any(p.was_open for p in self.parts()))

    def open(self) -> None:
        self._first.check_open()
        part = self._new_part(self.options)
        router = self._first.router
        leaders = router.leaders(self.topic) if router is not None else None
        if leaders and all(leaders):  # others have found out
            self._place(part)
        else:
            part.open()

    def located(self, part: Part[M, B], error: HocketError | None) -> None:
        if error is not None:
            part.refused_for_now_or_good(error)
        elif not part.is_open:  # else it was asked for, and opened, meanwhile
            self._place(part)

    def _place(self, part: Part[M, B]) -> None:
        """Have the partitions of this part read where they are led now."""
        leaders = self._router.leaders(self.topic) or ()
        self._count = max(self._count, len(leaders))
        groups = _by_leader(part.options.partitions or range(self._count), leaders)
        if len(groups) <= 1 and not self._is_spread and not part.options.partitions:
            part.shut()
            self._router.open_at_leader(part)  # as if nobody had spoken of several
            return
        if not self._is_spread and self.options.index and not part.was_open:
            is_sought = not self.options.create or self.options.start != EARLIEST
            self._index = "sought" if is_sought else "there"
        self._distribute(groups, part)

    def _distribute(self, groups: dict[str, list[int]], part: Part[M, B] | None) -> None:
        """Have the partitions of each node read by its part; some are of `part`, the rest new."""
        self._is_spread = True
        # What was open goes on where it is. What is not handed over, the topic has gained.
        is_new = part is None or part.was_open
        start = EARLIEST if part is None or part.was_open else part.options.start
        count = len({*groups, *(each.node for each in self.parts() if each is not part)})
        goals: list[Part[M, B]] = []
        spare = part
        for node, numbers in sorted(groups.items(), key=lambda each: not self._is_at(part, *each)):
            goal, there = self._part_at(node, part, start), numbers
            begins = None if part is None else _beginning(part)
            if goal is not None:
                there = [*goal.options.partitions, *numbers]
                begins = begins or _beginning(goal)
            elif spare is not None:
                goal, spare = spare, None
            else:
                goal = self._new_part(self._share(numbers, count))
            goal.shut()
            if goal is not part:
                goal.begins = begins
            if part is not None and goal is not part:
                part.hand_over(numbers, goal)
                self._moves += 1
            if goal.options is self.options or goal.options.partitions != tuple(sorted(there)):
                goal.narrow(self._share(there, count))
            if not goal.was_open:
                goal.options.create = is_new or self._index != "sought"
                goal.options.start = start
            goal.node, goal.is_part = node, not self.options.partitions
            goals.append(goal)
        if spare is not None:  # other parts have all of it
            self._dissolve(spare)
        for goal in goals:
            self._router.open_at_leader(goal, goal.node)
        self.commits.wake_all()

    def _dissolve(self, part: Part[M, B]) -> None:
        self._lacking.pop(part, None)
        self._refused += part.refused
        part.dissolve()
        self._drop(part)

    def _is_at(self, part: Part[M, B] | None, node: str, numbers: list[int]) -> bool:
        """Whether the part had best stay at the node, where it is, or with these partitions."""
        if part is None or not node:
            return False
        if part.node:
            return part.node == node or part.options.partitions[0] in numbers
        return part.session.node_id == node

    def _share(self, numbers: Iterable[int], count: int) -> SubscriptionOptions:
        """The options of one of `count` parts."""
        wanted = tuple(sorted(numbers))
        share = shared_out(self.options, count)
        if self.options.credit_each_node:
            # Batches have about 1 MiB, so a third of the credit is two or three of them: a node
            # would send one at a time, and be woken for each.
            whole = self.options.credit_bytes
            share.credit_bytes = max(share.credit_bytes, min(whole, NODES_AT_ONCE * whole // count))
        if self.options.prefetch_each_node:
            # A third of the messages in each round would be three times the rounds.
            share.prefetch = self.options.prefetch
        return replace(
            share,
            partitions=wanted,
            positions=tuple(each for each in self.options.positions if each[0] in wanted),
        )

    def sees_to(self, part: Part[M, B], error: HocketError) -> bool:
        if not self._is_spread:
            return False
        if isinstance(error, UnknownIndex) and not part.was_open and not part.options.create:
            return self._is_lacking(part)
        if isinstance(error, UnknownPartition) and part.options.partitions[-1] < self._count:
            part.open_later()  # its node has not heard yet that there is such a partition
            return True
        return False

    # --- an index that some nodes do not know ----------------------------------------------------

    def _is_lacking(self, part: Part[M, B]) -> bool:
        if self._index == "there":
            self._make_index(part, EARLIEST)
            return True
        self._lacking[part] = None
        if len(self._lacking) < len(self._readers):
            return True  # another node may know it
        if not self.options.create:
            return False
        self._index = "there"
        for each in list(self._lacking):
            self._make_index(each, self.options.start)
        return True

    def _make_index(self, part: Part[M, B], start: Start) -> None:
        self._lacking.pop(part, None)
        part.options.create, part.options.start = True, start
        part.open_again()

    def opened(self, part: Part[M, B]) -> None:
        if not self._is_spread:
            return
        part.options.create = self.options.create  # now it is there, and may be deleted
        if self._index == "sought":
            self._index = "there"
            for each in list(self._lacking):
                self._make_index(each, EARLIEST)

    # --- a topic that grows ----------------------------------------------------------------------

    def grows(self, count: int) -> None:
        if count > max(self._count, self._told):
            self._told = count
            self._look_for_new()

    def _look_for_new(self) -> None:
        if self.failure is None and not self._winding_up and not self._is_growing:
            self._is_growing = True
            self._router.locate(self.topic, self._new_located)

    def _new_located(self, error: HocketError | None) -> None:
        self._is_growing = False
        if self.failure is not None or self._winding_up:
            return
        leaders = self._router.leaders(self.topic) or ()
        known = error is None and len(leaders) >= self._told
        if not known or any(map(_beginning, self._readers.values())):
            self._first.after(self._backoff.next_us(), self._look_for_new)
            return
        self._backoff.reset()
        self._count = max(self._count, len(leaders))
        parts = self.parts()
        if not self._is_spread:
            self._distribute(_by_leader(range(len(leaders)), leaders), parts[0])
            return
        taken = {number for part in parts for number in part.options.partitions}
        new = [number for number in range(len(leaders)) if number not in taken]
        if new:
            self._distribute(_by_leader(new, leaders), None)

    # --- the end ---------------------------------------------------------------------------------

    def failed(self, part: Part[M, B]) -> None:
        assert part.failure is not None
        if self._readers.get(part) is not part:
            return
        if part.commits_only or part.has_messages:
            if self.failure is None:
                self.failure, self.commits_only = part.failure, part.commits_only
        elif self.failure is None or self.commits_only:
            self.end(part.failure)

    def _ended(self, reader: Part[M, B], error: HocketError) -> None:
        """The part has handed out what it had before its end."""
        if reader.commits_only:  # so can the others, until all of it is closed
            self.news.clear()
        else:
            self.end(error)

    def _leave_ended(self) -> None:
        """Parts say so themselves."""

    def forked(self, error: HocketError) -> None:
        self.failure, self.commits_only = error, False
        self.inbound.ready = iter(())

    # --- what it is asked ------------------------------------------------------------------------

    def topics(self) -> list[str]:
        return [self.topic]

    def of(self, topic: str | None) -> Self:
        """This subscription itself, unless another topic is meant."""
        if topic not in (None, self.topic):
            raise UnknownTopic(f"this subscription reads topic {self.topic!r}, not {topic!r}")
        return self

    def new_indexes(self) -> list[str]:
        is_new = self._readers and all(part.new_indexes() for part in self._readers.values())
        return [self.topic] if is_new else []

    def partitions(self) -> list[int]:
        return sorted(number for part in self.parts() for number in part.partitions())

    def position(self, partition: int) -> int:
        return self._part_of(partition).position(partition)

    def seek(self, partition: int, offset: int, answer: Answer) -> None:
        self.check_usable()
        self._part_of(partition).seek(partition, offset, answer)

    @property
    def refused(self) -> int:
        return self._refused + super().refused

    # --- acks ------------------------------------------------------------------------------------

    def arouse(self, progress: Any) -> None:
        parts = self.parts()
        for part in parts:
            if part.owns(progress):
                part.arouse(progress)
                return
        parts[0].arouse(progress)  # it was replaced: nothing to do, unless the end has come

    def leaves_acks(self) -> bool:
        left = [part.leaves_acks() for part in self.parts()]  # each is to be asked
        return any(left)

    def acked_so_far(self) -> Commit:
        return Commit(self._moves, super().acked_so_far())

    def are_committed(self, acked: Commit) -> bool:
        if acked.moves != self._moves:  # what it waits for has gone to other parts: ask anew
            acked.moves, acked.of_parts = self._moves, self._all_acked()
        parts = self._still_here(acked.of_parts)
        return all(self._is_committed(part, each) for part, each in parts)

    def _is_committed(self, part: Part[M, B], acked: Any) -> bool:
        try:
            return part.are_committed(acked)
        except HocketError as error:
            if not self._is_spread:
                raise
            named = again(error)
            named.args = (f"{_at(part)}: {error}",)
            raise named from error

    # --- for people ------------------------------------------------------------------------------

    def unconfirmed(self, acked: Commit) -> str:
        if not self._is_spread:
            return ""
        late = [
            part
            for part, each in self._still_here(acked.of_parts)
            if part.failure is None and not part.are_committed(each)
        ]
        return "; ".join(map(_at, late)) + self._tried()

    def away(self) -> str:
        if not self._is_spread:
            return ""
        away = [part for part in self.parts() if not part.is_open]
        return "; ".join(map(_at, away)) + (self._tried() if away else "")

    def place_of(self, partition: int) -> str:
        return _at(self._part_of(partition)) + self._tried() if self._is_spread else ""

    def _tried(self) -> str:
        tried = self._router.tried(self.topic)
        return f" (tried: {tried})" if tried else ""


def _by_leader(numbers: Iterable[int], leaders: Sequence[str]) -> dict[str, list[int]]:
    """The partitions of each node; empty: of nobody that is known.

    One that there is not is asked for with the first, so that a node says so.
    """
    found: dict[str, list[int]] = {}
    for number in numbers:
        node = leaders[number] if number < len(leaders) else next(filter(None, leaders), "")
        found.setdefault(node, []).append(number)
    return found


def _beginning(part: Part[Any, Any]) -> Start | None:
    """Where partitions of the part are to begin that were not opened yet; None: all were."""
    return part.begins if part.was_open else part.options.start


def _at(part: Part[Any, Any]) -> str:
    node = f"node {part.node}" if part.node else "nobody that is known"
    return f"{_in_words(part.options.partitions)} at {node}"


def _in_words(numbers: Sequence[int]) -> str:
    if not numbers:
        return "its partitions"
    return f"partition{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
