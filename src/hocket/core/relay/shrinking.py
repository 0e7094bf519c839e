"""When a node gives up its children, and when it leaves the tree."""

from __future__ import annotations

from hocket.core.relay.consumers import Consumers
from hocket.core.relay.downstream import Downstream
from hocket.core.relay.lineage import Lineage
from hocket.core.relay.settings import RelaySettings
from hocket.core.relay.upstream import Upstream


class Shrinking:
    """Counts ticks in which nobody needed this node, or its children would do better elsewhere."""

    __slots__ = (
        "_collapsing", "_consumers", "_downstream", "_idle", "_lineage", "_orphaned", "_settings",
        "_upstream",
    )  # fmt: skip

    def __init__(
        self,
        settings: RelaySettings,
        lineage: Lineage,
        consumers: Consumers,
        downstream: Downstream,
        upstream: Upstream,
    ) -> None:
        self._settings = settings
        self._lineage = lineage
        self._consumers = consumers
        self._downstream = downstream
        self._upstream = upstream
        self._orphaned = 0  # ticks without a parent
        self._collapsing = 0  # ticks in which this node was superfluous
        self._idle = 0  # ticks without anybody to serve

    def tick(self) -> bool:
        """Whether nobody has needed this node for so long that it should leave the tree."""
        self._release_children()
        self._collapse()
        return self._is_idle()

    def _release_children(self) -> None:
        """Perhaps only this node cannot reach the owner: let each child try for itself."""
        is_orphan = self._lineage.parent is None and not self._lineage.is_owner
        self._orphaned = self._orphaned + 1 if is_orphan else 0
        if self._orphaned >= self._settings.ticks(self._settings.child_us):
            self._downstream.release()

    def _collapse(self) -> None:
        """A relay that saves its parent little is not worth a step of the way."""
        parent, children = self._lineage.parent, len(self._downstream.children)
        if (
            not children
            or parent is None
            or 2 * (children + len(self._consumers)) >= self._settings.children_max
            or self._upstream.parent_room < children
        ):
            self._collapsing = 0
            return
        self._collapsing += 1
        if self._collapsing >= self._settings.ticks(self._settings.collapse_us):
            self._downstream.send_up(parent)
            self._idle = self._settings.ticks(self._settings.idle_us)  # do not stay for nobody

    def _is_idle(self) -> bool:
        if self._lineage.is_leader or not self._downstream.is_empty:
            self._idle = 0
            return False
        self._idle += 1
        return self._idle >= self._settings.ticks(self._settings.idle_us)
