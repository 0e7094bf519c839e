"""The plug-ins that a node runs, called in order, timed, and kept from harming the node.

Rule 1: whatever a plug-in raises stops here: it is logged with the plug-in's name.
Rule 2: what happens in place of a plug-in that fails is said by its policy. *Open*: as if it were
        not there. *Closed*: what it should have judged is refused.
Rule 3: an open plug-in that has failed FAILURES_MAX times in a row in one hook is off until the
        node is started again. A closed one stays on: a client that sends what a plug-in fails at
        is refused, and must not have everybody else refused as well.

`Rejected` of `on_publish` is no failure, but what the hook is for.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from time import monotonic, perf_counter_ns
from typing import TYPE_CHECKING, Any

from hocket.cluster_model import PluginState
from hocket.core.ring.contact import Contact
from hocket.errors import CorruptData, HocketError, Rejected
from hocket.model import TopicConfig
from hocket.node.running.hooks import Given, Passing
from hocket.plugins.batches import Delivery, Publish
from hocket.plugins.doors import Door, Surroundings
from hocket.plugins.found import Loaded, Unusable

if TYPE_CHECKING:
    from hocket.node.node import Node

log = logging.getLogger("hocket.plugins")

FAILURES_MAX = 10  # in a row
SLOW_MS = 20.0  # a fifth of what is noticed as a delay: all clients of the node have waited
WORDS_SECONDS = 10.0  # between two lines of the log about one slow hook, or one that always fails
_FAILED = object()
_ANSWERS: dict[str, Any] = {"authenticate": str, "authorize": str, "on_publish": ()}  # besides None
_TOPIC_HOOKS = {
    "create": "on_topic_created", "alter": "on_topic_altered", "delete": "on_topic_deleted"
}  # fmt: skip


class _Nonsense(TypeError):
    """A hook has answered what means nothing, such as True; nobody can tell what was meant."""

    def __init__(self, hook: str, answer: object) -> None:
        wanted = "a text, or None" if _ANSWERS[hook] else "None"
        super().__init__(f"it returned a {type(answer).__name__}; it has to return {wanted}")


@dataclass(slots=True)
class Timing:
    """Of one hook of one plug-in, since the node was started."""

    calls: int = 0
    rejections: int = 0
    failures: int = 0
    slow: int = 0
    total_ns: int = 0
    max_ns: int = 0
    in_a_row: int = 0  # failures
    told: float = 0.0  # when the log last named it as slow
    told_failure: float = 0.0


@dataclass(slots=True, eq=False)
class Running:
    """A plug-in that this node runs."""

    loaded: Loaded
    slow_ns: int
    failures_max: int
    is_on: bool = True
    problem: str = ""  # what it failed with last
    timings: dict[str, Timing] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.loaded.name

    @property
    def is_closed(self) -> bool:
        return self.loaded.policy == "closed"


class Host:
    def __init__(self) -> None:
        self.plugins: list[Running] = []
        self._members: dict[str, Contact] = {}
        self._node: Node | None = None
        self._publishing: list[Running] = []
        self._doors: list[Door] = []

    def add(
        self, loaded: Loaded, *, slow_ms: float = SLOW_MS, failures_max: int = FAILURES_MAX
    ) -> None:
        """Run this one, too, behind those that were added before."""
        running = Running(loaded, round(slow_ms * 1e6), failures_max)
        running.timings = {hook: Timing() for hook in loaded.functions}
        self.plugins.append(running)

    def attach(self, node: Node) -> None:
        """From now on the node calls the plug-ins. On the node's thread, or before it runs."""
        self._node = node
        _version, members = node.registering.members()
        self._members = {each.node: each for each in members}
        self._set_hooks()

    def open_doors(self, around: Surroundings) -> list[Door]:
        """Raises what a door raises whose plug-in is closed: what was asked for cannot be had."""
        for each in list(self._with("open_door")):
            try:
                door = each.loaded.functions["open_door"](around)
            except HocketError as error:
                if each.is_closed:
                    raise
                log.warning("plug-in '%s' has no door: %s", each.name, error)
            except Exception as error:
                if each.is_closed:
                    raise Unusable(
                        f"plug-in '{each.name}' cannot open its door: {type(error).__name__}: "
                        f"{error}"
                    ) from error
                log.warning("plug-in '%s' has no door: %r", each.name, error)
            else:
                if door is not None:
                    self._doors.append(door)
        return self._doors

    def renew_tls(self) -> None:
        """Raises Unusable, when all have been told, for the last one that could not."""
        failed: Unusable | None = None
        for door in self._doors:
            try:
                door.renew_tls()
            except Exception as error:  # noqa: BLE001 - it runs on the node's thread
                failed = Unusable(f"the door at {door.address} keeps its own: {error!r}")
        if failed is not None:
            raise failed

    def close_doors(self) -> None:
        """Before the node: a door may need it to finish what it has begun."""
        while self._doors:
            door = self._doors.pop()
            try:
                door.close()
            except Exception as error:  # noqa: BLE001 - the node goes down all the same
                log.warning("a door at %s did not close: %r", door.address, error)

    def close(self) -> None:
        for each in self._with("on_close"):
            self._call(each, "on_close")

    def _set_hooks(self) -> None:
        """A hook that no plug-in wants any more costs the node nothing any more."""
        assert self._node is not None
        hooks, access = self._node.wiring.hooks, self._node.wiring.access
        self._publishing = list(self._with("on_publish"))
        hooks.on_publish = self._publish if self._publishing else None
        hooks.on_deliver = self._deliver if any(self._with("on_deliver")) else None
        hooks.authenticate = self._authenticate if any(self._with("authenticate")) else None
        access.veto = self._veto if any(self._with("authorize")) else None
        topics = any(any(self._with(hook)) for hook in _TOPIC_HOOKS.values())
        hooks.on_topic = self._topic if topics else None
        nodes = any(any(self._with(hook)) for hook in ("on_node_joined", "on_node_left"))
        hooks.on_members = self._members_are if nodes else None
        hooks.states = self.states

    def states(self) -> tuple[PluginState, ...]:
        """How the hooks of all plug-ins fare."""
        return tuple(
            PluginState(
                each.name, each.loaded.version, each.loaded.policy, each.is_on, each.problem,
                hook, timing.calls, timing.rejections, timing.failures, timing.slow,
                timing.total_ns // 1_000, timing.max_ns // 1_000,
            )
            for each in self.plugins
            for hook, timing in each.timings.items()
        )  # fmt: skip

    def _with(self, hook: str) -> Iterable[Running]:
        return (each for each in self.plugins if each.is_on and hook in each.loaded.functions)

    # --- what the node calls ---------------------------------------------

    def _publish(self, passing: Passing) -> bytes | None:
        batch = Publish(passing)
        for each in self._publishing:
            before = dict(batch.changes) if batch.changes else {}
            outcome = self._call(each, "on_publish", batch)
            if outcome is _FAILED:
                if each.is_closed:
                    raise Rejected(
                        f"plug-in '{each.name}', which has to look at these messages, failed; see "
                        "the broker's log, or `hocket plugin list --server URL`"
                    )
                batch.changes = before
        if not batch.changes:
            return None
        try:
            return batch.encoded()
        except CorruptData:
            raise
        except Exception as error:
            names = ", ".join(each.name for each in self._publishing)
            log.warning("what plug-ins (%s) made of a batch is no batch: %s", names, error)
            raise Rejected(f"what the broker's plug-ins made of it is no batch: {error}") from error

    def _deliver(self, given: Given) -> None:
        assert self._node is not None
        connection, handle = given.address
        session = self._node.wiring.sessions.get(connection)
        opened = None if session is None else session.handles.get(handle)
        delivery = Delivery(
            given.topic, given.partition, getattr(opened, "index", ""),
            "" if session is None else session.rights.user,
            given.start, given.end, given.records, given.payload,
        )  # fmt: skip
        for each in list(self._with("on_deliver")):
            self._call(each, "on_deliver", delivery)

    def _authenticate(self, token: str, address: str) -> str | None:
        for each in list(self._with("authenticate")):
            user = self._call(each, "authenticate", token, address)
            if user and user is not _FAILED:
                return str(user)
        return None

    def _veto(self, user: str, action: str, topic: str, index: str) -> str:
        for each in list(self._with("authorize")):
            reason = self._call(each, "authorize", user, action, topic, index)
            if reason is _FAILED:
                if each.is_closed:
                    return f"plug-in '{each.name}', which has to allow it, failed"
            elif reason:
                return str(reason)
        return ""

    def _topic(self, kind: str, topic: str, config: TopicConfig | None) -> None:
        hook = _TOPIC_HOOKS.get(kind)
        if hook is None or (config is None and kind != "delete"):
            return
        arguments = (topic,) if kind == "delete" else (topic, config)
        for each in list(self._with(hook)):
            self._call(each, hook, *arguments)

    def _members_are(self, members: tuple[Contact, ...]) -> None:
        now = {each.node: each for each in members}
        before, self._members = self._members, now
        for hook, left, right in (
            ("on_node_joined", now, before), ("on_node_left", before, now),
        ):  # fmt: skip
            for contact in (left[node] for node in left if node not in right):
                for each in list(self._with(hook)):
                    self._call(each, hook, contact.node, contact.address)

    # --- one call ---------------------------------------------

    def _call(self, each: Running, hook: str, *arguments: Any) -> Any:
        """What the plug-in answers, or _FAILED. Raises Rejected, and what is wrong with a batch."""
        timing = each.timings[hook]
        began = perf_counter_ns()
        try:
            answer = each.loaded.functions[hook](*arguments)
            if answer is not None and hook in _ANSWERS and not isinstance(answer, _ANSWERS[hook]):
                raise _Nonsense(hook, answer)
        except BaseException as error:  # a plug-in ends no node
            if isinstance(error, KeyboardInterrupt):
                raise
            # A batch of which a column cannot be read is not the plug-in's fault: it only looked.
            if hook == "on_publish" and isinstance(error, Rejected | CorruptData):
                timing.rejections += 1
                timing.in_a_row = 0
                raise
            self._failed(each, hook, timing, error)
            return _FAILED
        finally:
            took = perf_counter_ns() - began
            timing.calls += 1
            timing.total_ns += took
            if took > timing.max_ns:
                timing.max_ns = took
            if took > each.slow_ns:
                self._was_slow(each, hook, timing, took)
        timing.in_a_row = 0
        return answer

    def _failed(self, each: Running, hook: str, timing: Timing, error: BaseException) -> None:
        timing.failures += 1
        timing.in_a_row += 1
        is_secret = hook == "authenticate" and not isinstance(error, _Nonsense)
        # Of a login only the type of the error: its text may quote the token.
        text = type(error).__name__ if is_secret else f"{type(error).__name__}: {error}"
        each.problem = f"{hook}: {text}"
        is_lasting = timing.in_a_row > each.failures_max
        if not is_lasting or monotonic() - timing.told_failure >= WORDS_SECONDS:
            timing.told_failure = monotonic()
            log.warning("plug-in '%s' failed in %s: %s", each.name, hook, text)
            if not is_secret:
                log.debug("where plug-in '%s' failed", each.name, exc_info=error)
        if timing.in_a_row != each.failures_max:
            return
        if each.is_closed:
            log.error(
                "plug-in '%s' failed %d times in a row in %s; its policy is closed, so what it "
                "fails at is refused", each.name, timing.in_a_row, hook,
            )  # fmt: skip
            return
        each.is_on = False
        log.error(
            "plug-in '%s' is switched off: it failed %d times in a row in %s; its policy is open, "
            "so nothing is asked of it until the node is started again",
            each.name, timing.in_a_row, hook,
        )  # fmt: skip
        self._set_hooks()

    def _was_slow(self, each: Running, hook: str, timing: Timing, took_ns: int) -> None:
        timing.slow += 1
        now = monotonic()
        if now - timing.told >= WORDS_SECONDS or not timing.told:
            timing.told = now
            log.warning(
                "plug-in '%s' took %.0f ms in %s, while all clients of this node waited (%d times "
                "so far)", each.name, took_ns / 1e6, hook, timing.slow,
            )  # fmt: skip
