"""The calls of a client about the cluster."""

from __future__ import annotations

from datetime import datetime

from hocket.client.engines.aio import AioEngine
from hocket.client_core.calls import cluster as cluster_calls
from hocket.client_core.timeout import DEFAULT_TIMEOUT
from hocket.cluster_model import (
    AuditLog,
    AuditRecord,
    ClusterDescription,
    KeyOwner,
    NameDescription,
    NodeDescription,
    NodePlugins,
    RingDescription,
    TreeDescription,
)
from hocket.deadline import Deadline
from hocket.model import timestamp_us


class AsyncClusterCalls:
    """A part of the client: the nodes, and their ring."""

    _engine: AioEngine

    async def tree(self, topic: str, *, timeout: float | None = DEFAULT_TIMEOUT) -> TreeDescription:
        """How the partitions of a topic fan out over the nodes: who takes its messages from whom,
        and how many consumers each node serves."""
        return await self._engine.call(cluster_calls.tree(topic), timeout)

    async def ring(self, *, timeout: float | None = DEFAULT_TIMEOUT) -> RingDescription:
        """The ring as each of its nodes sees it, gathered by the node that we are connected to."""
        return await self._engine.call(cluster_calls.ring(), timeout)

    async def look_up(
        self, key: str, *, cached: bool = True, timeout: float | None = DEFAULT_TIMEOUT
    ) -> KeyOwner:
        """Which node owns a key, and which nodes were asked to find out.

        Without `cached` no node takes a short cut that it has learnt: the way goes from finger to
        finger.
        """
        return await self._engine.call(cluster_calls.look_up(key, cached=cached), timeout)

    async def nodes(self, *, timeout: float | None = DEFAULT_TIMEOUT) -> list[NodeDescription]:
        """The nodes of the cluster, by position, with their states."""
        return await self._engine.call(cluster_calls.nodes(), timeout)

    async def list_names(self, *, timeout: float | None = DEFAULT_TIMEOUT) -> list[NameDescription]:
        """The names of brokers in the cluster that the user may know of, in order."""
        deadline = Deadline(timeout)
        names: list[NameDescription] = []
        after = ""
        while True:
            call = cluster_calls.names(after)
            page = await self._engine.call(call, deadline.remaining())
            names += page.names
            after = page.next
            if not after:
                return names

    async def describe_cluster(
        self, *, timeout: float | None = DEFAULT_TIMEOUT
    ) -> ClusterDescription:
        """What is set for the whole cluster, and how many nodes it has."""
        return await self._engine.call(cluster_calls.cluster(), timeout)

    async def plugins(self, *, timeout: float | None = DEFAULT_TIMEOUT) -> NodePlugins:
        """The plug-ins of the node that this client is connected to, and how they fare; for admins.

        Each node runs those that it was started with, so each has to be asked.
        """
        return await self._engine.call(cluster_calls.plugins(), timeout)

    async def set_cluster(
        self, *, replication: int, timeout: float | None = DEFAULT_TIMEOUT
    ) -> None:
        """Change what is set for the whole cluster; for admins.

        `replication` is how many nodes keep each partition of a topic that is made from now on
        without saying so. Topics that are there keep theirs. Raises NotEnoughNodes if the cluster
        has fewer nodes.
        """
        call = cluster_calls.set_cluster(replication=replication)
        await self._engine.call(call, timeout)

    async def audit(
        self, *, since: datetime | None = None, timeout: float | None = DEFAULT_TIMEOUT
    ) -> AuditLog:
        """What the nodes have denied and changed lately; for admins.

        Each node keeps the last of its records. One that does not answer within a second is named
        in `silent`.
        """
        deadline = Deadline(timeout)
        records: list[AuditRecord] = []
        silent: dict[str, None] = {}
        next_us = 0 if since is None else timestamp_us(since)
        while True:
            call = cluster_calls.audit(next_us)
            page = await self._engine.call(call, deadline.remaining())
            records += page.records
            silent |= dict.fromkeys(page.silent)
            next_us = page.next_us
            if not next_us:
                return AuditLog(tuple(records), tuple(silent))
