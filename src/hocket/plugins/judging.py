"""`on_publish`: a batch on its way through all plug-ins that look at it, within the node and apart.

Where all of them are within the node they are called there and then. Where one is apart it is
asked, and the batch goes on to the next one when it has answered: `node.requests.dockets` keeps the
order.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any

from hocket.errors import Busy, CorruptData, HocketError, Rejected
from hocket.node.running.hooks import Judged, Passing
from hocket.plugins.answers import check_answer
from hocket.plugins.apart import Answer, Away
from hocket.plugins.batches import Publish
from hocket.plugins.letters import Kind
from hocket.plugins.running import Running, Timing
from hocket.wire.batch import whole_batches

log = logging.getLogger("hocket.plugins")

TOPICS_MAX = 10_000  # of which is remembered who looks at them
Asked = tuple[Running, Any, Timing]  # a plug-in, its function, and how long that took


class Judging:
    """Those that look at what is published, in order. See `node.running.hooks.Judges`."""

    def __init__(self, plugins: Sequence[Running]) -> None:
        self.plugins = plugins
        self.has_apart = any(each.apart is not None for each in plugins)
        self._by_topic: dict[str, list[Asked]] = {}

    def publish(self, passing: Passing, asked: list[Asked] | None = None) -> bytes | None:
        """See `node.running.hooks.OnPublish`. Those that are asked are all within the node.

        It is `Running.call` once more, in one piece: of a batch it is the whole cost of a plug-in,
        and each call within it would be a tenth of that.
        """
        if asked is None:
            asked = self._by_topic.get(passing.topic)
            if asked is None:
                asked = self._about(passing.topic)
        if not asked:
            return None
        batch = Publish(passing)
        for each, function, timing in asked:
            before = batch.changes
            began = perf_counter_ns()
            try:
                answer = function(batch)
                if answer is not None:
                    check_answer("on_publish", answer)
                timing.in_a_row = 0
            except BaseException as error:  # noqa: BLE001 - a plug-in ends no node
                _has_failed(each, timing, error)
                batch.changes = before
            finally:
                took = perf_counter_ns() - began
                if took > timing.max_ns or took > each.slow_ns:
                    each.took("on_publish", timing, took)
                else:
                    timing.calls += 1
                    timing.total_ns += took
        return _encoded(batch, asked) if batch.changes else None

    def look_at(self, topic: str) -> bool:
        asked = self._by_topic.get(topic)
        if asked is None:
            asked = self._about(topic)
        return any(each.apart is not None for each, _function, _timing in asked)

    def ask(self, passing: Passing, judged: Judged) -> None:
        asked = self._by_topic.get(passing.topic)
        if asked is None:
            asked = self._about(passing.topic)
        _Asking(self, asked, passing, judged).go_on()

    def _about(self, topic: str) -> list[Asked]:
        if len(self._by_topic) >= TOPICS_MAX:
            self._by_topic.clear()
        asked = self._by_topic[topic] = [
            (each, each.loaded.functions["on_publish"], each.timings["on_publish"])
            for each in self.plugins
            if each.looks_at(topic)
        ]
        return asked


def _has_failed(each: Running, timing: Timing, error: BaseException) -> None:
    """Raises why the batch is refused; if it does not, it passes as if nobody had looked."""
    if isinstance(error, KeyboardInterrupt):
        raise error
    # A batch of which a column cannot be read is not the plug-in's fault: it only looked.
    if isinstance(error, Rejected | CorruptData):
        timing.rejections += 1
        timing.in_a_row = 0
        raise error
    each.failed("on_publish", timing, error)
    if each.is_closed:
        raise _rejected(each) from error


def _encoded(batch: Publish, asked: Sequence[Asked]) -> bytes | None:
    try:
        return batch.encoded()
    except CorruptData:
        raise
    except Exception as error:
        names = ", ".join(each.name for each, _function, _timing in asked)
        log.warning("what plug-ins (%s) made of a batch is no batch: %s", names, error)
        raise Rejected(f"what the broker's plug-ins made of it is no batch: {error}") from error


class _Asking:
    """One batch on its way through all that look at it, some of which answer later."""

    __slots__ = ("_asked", "_at", "_judged", "_judging", "_made", "_passing")

    def __init__(
        self,
        judging: Judging,
        asked: list[Asked],
        passing: Passing,
        judged: Judged,
    ) -> None:
        self._judging = judging
        self._asked = asked
        self._at = 0
        self._passing = passing
        self._judged = judged
        self._made: bytes | None = None  # what those before have made of it

    def go_on(self) -> None:
        try:
            while self._at < len(self._asked):
                asked = self._asked[self._at]
                each, self._at = asked[0], self._at + 1
                if not each.is_on:
                    continue
                if each.apart is not None:
                    passing = self._passing
                    said = [
                        passing.topic, passing.partition, passing.user, passing.delayed,
                        passing.transaction,
                    ]  # fmt: skip
                    each.apart.ask("on_publish", said, passing.payload, self._answered)
                    return
                made = self._judging.publish(self._passing, [asked])
                if made is not None:
                    self._take(made)
        except HocketError as error:
            self._judged(error)
        else:
            self._judged(self._made)

    def _answered(self, answer: Answer | Away) -> None:
        each, _function, _timing = self._asked[self._at - 1]
        try:
            if isinstance(answer, Away):
                self._nobody_judged(each, answer)
            else:
                self._take_answer(each, answer)
        except HocketError as error:
            self._judged(error)
        else:
            self.go_on()

    def _nobody_judged(self, each: Running, away: Away) -> None:
        if away.is_full:  # also of an open one: nobody gets past it by sending much
            raise Busy(f"{away.why}: plug-in '{each.name}' looks at these messages; try again")
        if not each.is_closed:
            return
        who = f"plug-in '{each.name}', which has to look at these messages, cannot now"
        if away.may_try_again:
            raise Busy(f"{who}: {away.why}; try again")
        raise Rejected(f"plug-in '{each.name}', which has to look at these messages: {away.why}")

    def _take_answer(self, each: Running, answer: Answer) -> None:
        if answer.kind == Kind.CHANGED:
            fault = _fault_of(answer.body, self._passing)
            if fault:
                answer = Answer(Kind.FAILED, fault, answer.body, answer.ns)
        each.heard("on_publish", answer)
        if answer.kind == Kind.CHANGED:
            self._take(bytes(answer.body))
        elif answer.kind == Kind.REJECTED:
            raise Rejected(str(answer.head))
        elif answer.kind == Kind.CORRUPT:
            raise CorruptData(str(answer.head))
        elif answer.kind == Kind.FAILED and each.is_closed:
            raise _rejected(each)

    def _take(self, made: bytes) -> None:
        payload = memoryview(made)
        (info,) = whole_batches(payload)
        self._made, self._passing = made, self._passing._replace(payload=payload, info=info)


def _fault_of(made: memoryview, passing: Passing) -> str:
    """What is wrong with a batch that another process has made of this one; empty: nothing."""
    try:
        infos = whole_batches(made)
    except CorruptData as error:
        return f"it made no batch of it: {error}"
    before = passing.info
    if len(infos) != 1 or (
        (infos[0].producer_id, infos[0].epoch, infos[0].sequence, infos[0].header.count)
        != (before.producer_id, before.epoch, before.sequence, before.header.count)
    ):
        return "it made another batch of it, not one of the same records"
    return ""


def _rejected(each: Running) -> Rejected:
    return Rejected(
        f"plug-in '{each.name}', which has to look at these messages, failed; see the broker's "
        "log, or `hocket plugin list --server URL`"
    )
