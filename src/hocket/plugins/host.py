"""The plug-ins that a node runs, in order: what the node calls, and whom it asks.

What happens in place of a plug-in that fails is said by its policy. *Open*: as if it were not
there. *Closed*: what it should have judged is refused. One that runs apart is asked, and answers
later; what it only hears of is sent to it, and not waited for. `Rejected` of `on_publish` is no
failure, but what the hook is for. How each one is contained is in `running`, and in `apart`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from hocket.cluster_model import PluginState
from hocket.core.ring.contact import Contact
from hocket.errors import Busy, HocketError
from hocket.model import TopicConfig
from hocket.node.running.hooks import Given, Sample, Vouched
from hocket.node_frames import NO_CHANGERS
from hocket.plugins.apart import Answer, Apart, Away
from hocket.plugins.batches import Delivery
from hocket.plugins.doors import Door, Surroundings
from hocket.plugins.found import Loaded, Unusable
from hocket.plugins.judging import Judging
from hocket.plugins.letters import Kind
from hocket.plugins.running import FAILED, FAILURES_MAX, SLOW_MS, Running, Timing
from hocket.plugins.tiers import Offer, attach_tier
from hocket.wire import named_codec

if TYPE_CHECKING:
    from hocket.adapters.loop import Loop
    from hocket.node.node import Node

log = logging.getLogger("hocket.plugins")

PROBLEM_MAX = 200  # characters of what a storage tier says, in a table
_TOPIC_HOOKS = {
    "create": "on_topic_created", "alter": "on_topic_altered", "delete": "on_topic_deleted"
}  # fmt: skip


# What can run in another process. Doors, and what sessions ask while they handle a request, cannot.
APART = frozenset({
    "on_publish", "on_deliver", "authenticate", "on_topic_created", "on_topic_altered",
    "on_topic_deleted", "on_node_joined", "on_node_left", "on_close",
})  # fmt: skip


class Host:
    def __init__(self) -> None:
        self.plugins: list[Running] = []
        self._members: dict[str, Contact] = {}
        self._node: Node | None = None
        self._loop: Loop | None = None
        self._doors: list[Door] = []
        self._codecs: list[str] = []  # that this node takes batches of

    def add(
        self,
        loaded: Loaded,
        *,
        slow_ms: float = SLOW_MS,
        failures_max: int = FAILURES_MAX,
        topics: Sequence[str] = (),
        digest: str = "",
        apart: Apart | None = None,
    ) -> None:
        """Run this one, too, behind those that were added before."""
        running = Running(loaded, round(slow_ms * 1e6), failures_max, self._switched_off)
        running.timings = {hook: Timing() for hook in loaded.functions}
        running.topics, running.digest = tuple(topics), digest
        if apart is not None:
            running.apart = apart
            apart.events = running
        self.plugins.append(running)

    def attach(self, node: Node, loop: Loop | None = None) -> None:
        """From now on the node calls the plug-ins. On the node's thread, or before it runs.

        The loop is the node's, and is needed if a plug-in runs apart.
        """
        self._node, self._loop = node, loop
        _version, members = node.registering.members()
        self._members = {each.node: each for each in members}
        for each in self.plugins:
            if each.apart is not None:
                assert loop is not None
                each.apart.attach(loop)
        self._set_hooks()
        offers = [
            Offer(each, each.name, each.is_closed, each.loaded.functions["storage_tier"])
            for each in self._with("storage_tier")
        ]
        attach_tier(node, offers, self._tier_called)
        self._admit_codecs()

    def _admit_codecs(self) -> None:
        """Raises Unusable for a codec that is none, whose plug-in is closed."""
        for each in self._with("codec"):
            try:
                found = named_codec.checked(each.name, each.loaded.functions["codec"]())
            except Exception as error:
                if each.is_closed:
                    raise Unusable(f"plug-in '{each.name}' has no codec: {error}") from error
                log.warning("plug-in '%s' has no codec: %s", each.name, error)
            else:
                named_codec.admit(found)
                self._codecs.append(each.name)

    def _tier_called(self, each: Running, took_ns: int, error: BaseException | None) -> None:
        """A call of a storage tier has ended; on one of its threads, one at a time."""
        timing = each.timings["storage_tier"]
        timing.calls += 1
        timing.total_ns += took_ns
        timing.max_ns = max(timing.max_ns, took_ns)
        timing.failures += error is not None
        words = f"storage_tier: {type(error).__name__}: {error}"[:PROBLEM_MAX]
        each.problem = "" if error is None else words

    def wants(self, hook: str) -> bool:
        return any(self._with(hook))

    def changers(self) -> str:
        """Which plug-ins may change what is published, in order, for other nodes to compare."""
        return ", ".join(
            f"{each.name} {each.loaded.version or '?'} ({each.loaded.policy}, {each.digest})"
            for each in self.plugins if "on_publish" in each.loaded.functions
        ) or NO_CHANGERS  # fmt: skip

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
        """After the node."""
        while self._codecs:
            named_codec.dismiss(self._codecs.pop())
        for each in self.plugins:
            if each.apart is not None:
                each.apart.close()
        for each in self._with("on_close"):
            if each.apart is None:
                each.call("on_close")

    def _switched_off(self) -> None:
        """Of `on_metrics`, this is called on another thread than the node's."""
        if self._loop is None or self._loop.is_own_thread():
            self._set_hooks()
        else:
            self._loop.post(self._set_hooks)

    def _set_hooks(self) -> None:
        """A hook that no plug-in wants any more costs the node nothing any more."""
        assert self._node is not None
        hooks, access = self._node.wiring.hooks, self._node.wiring.access
        judging = Judging(list(self._with("on_publish")))
        hooks.on_publish = judging.publish if judging.plugins else None
        hooks.judges = judging if judging.has_apart else None
        hooks.on_deliver = self._deliver if any(self._with("on_deliver")) else None
        hooks.authenticate = self._authenticate if any(self._with("authenticate")) else None
        access.veto = self._veto if any(self._with("authorize")) else None
        topics = any(any(self._with(hook)) for hook in _TOPIC_HOOKS.values())
        hooks.on_topic = self._topic if topics else None
        nodes = any(any(self._with(hook)) for hook in ("on_node_joined", "on_node_left"))
        hooks.on_members = self._members_are if nodes else None
        hooks.on_metrics = self._metrics if any(self._with("on_metrics")) else None
        hooks.states = self.states

    def states(self) -> tuple[PluginState, ...]:
        """How the hooks of all plug-ins fare."""
        return tuple(state for each in self.plugins for state in each.states())

    def _with(self, hook: str) -> Iterable[Running]:
        return (each for each in self.plugins if each.is_on and hook in each.loaded.functions)

    # --- what the node calls ---------------------------------------------

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
            if each.apart is None:
                each.call("on_deliver", delivery)
            else:
                each.apart.tell("on_deliver", [
                    delivery.topic, delivery.partition, delivery.index, delivery.user,
                    delivery.start, delivery.end, delivery.records,
                ], b"".join(delivery.payload))  # fmt: skip

    def _authenticate(self, token: str, address: str, vouched: Vouched) -> None:
        self._ask_who(deque(self._with("authenticate")), token, address, vouched)

    def _ask_who(self, left: deque[Running], token: str, address: str, vouched: Vouched) -> None:
        while left:
            each = left.popleft()
            if each.apart is not None:
                told = partial(self._said_who, each, left, token, address, vouched)
                each.apart.ask("authenticate", [token, address], b"", told)
                return
            user = each.call("authenticate", token, address)
            if user and user is not FAILED:
                vouched(str(user))
                return
        vouched(None)

    def _said_who(
        self,
        each: Running,
        left: deque[Running],
        token: str,
        address: str,
        vouched: Vouched,
        answer: Answer | Away,
    ) -> None:
        if isinstance(answer, Away):
            if each.is_closed:
                vouched(Busy(f"plug-in '{each.name}' cannot say whose token it is; try again"))
                return
        else:
            each.heard("authenticate", answer)
            if answer.kind == Kind.DONE and answer.head:
                vouched(str(answer.head))
                return
        self._ask_who(left, token, address, vouched)

    def _veto(self, user: str, action: str, topic: str, index: str) -> str:
        for each in list(self._with("authorize")):
            reason = each.call("authorize", user, action, topic, index)
            if reason is FAILED:
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
            if each.apart is None:
                each.call(hook, *arguments)
            else:
                said = [] if config is None or kind == "delete" else [asdict(config)]
                each.apart.tell(hook, [topic, *said])

    def _metrics(self, samples: list[Sample]) -> None:
        for each in list(self._with("on_metrics")):
            each.call("on_metrics", samples)

    def _members_are(self, members: tuple[Contact, ...]) -> None:
        now = {each.node: each for each in members}
        before, self._members = self._members, now
        for hook, left, right in (
            ("on_node_joined", now, before), ("on_node_left", before, now),
        ):  # fmt: skip
            for contact in (left[node] for node in left if node not in right):
                for each in list(self._with(hook)):
                    if each.apart is None:
                        each.call(hook, contact.node, contact.address)
                    else:
                        each.apart.tell(hook, [contact.node, contact.address])
