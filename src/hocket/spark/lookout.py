"""What the driver asks a broker: which partitions there are, where they end, which nodes lead them.

If the broker cannot be reached, a question is asked again, as often as the options say. Within each
try the client itself waits for the broker to come back.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from hocket.client.faces.blocking.client import Client
from hocket.errors import (
    Busy,
    Closed,
    HocketError,
    NoConnection,
    ReplyLost,
    ShuttingDown,
    Timeout,
    UnknownTopic,
)
from hocket.spark import missing
from hocket.spark.connections import client_of

if TYPE_CHECKING:
    from hocket.spark.bounds import Bounds
    from hocket.spark.offsets import Offsets
    from hocket.spark.options import ReadOptions
    from hocket.spark.planning import Span

T = TypeVar("T")
TRY_SECONDS_MIN = 5.0
MAY_PASS = (Busy, Closed, NoConnection, ReplyLost, ShuttingDown, Timeout)


class Lookout:
    has_broker = True  # False: only a lake is read, and there is nobody to ask

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        # All tries together may take about as long as a read may wait for a record.
        each = max(TRY_SECONDS_MIN, options.poll_timeout / (options.retries + 1))
        self.timeout = min(options.poll_timeout, each)
        self.cluster = ""  # the id of the cluster that has answered; from then on no other may

    def expect(self, cluster: str) -> None:
        """What is asked is about this cluster; another one must not answer."""
        self.cluster = cluster or self.cluster

    def ask(self, question: Callable[[Client], T]) -> T:
        """The answer. Raises NoConnection if no try got one."""
        tries = self._options.retries + 1
        failure: HocketError | None = None
        for attempt in range(tries):
            if attempt:
                time.sleep(self._options.retry_interval)
            try:
                client = client_of(self._options.connection, cluster=self.cluster)
                self.cluster = client.cluster or self.cluster
                return question(client)
            except MAY_PASS as error:
                failure = error
        raise NoConnection(
            f"the broker at {self._options.connection.url} gave no answer in {tries} tries "
            f"(option fetchOffset.numRetries): {failure}"
        ) from failure

    def _ask_if_there(self, question: Callable[[Client], T]) -> T:
        """For a question that takes no timeout: wait for the broker with a ping first."""

        def ping_first(client: Client) -> T:
            client.ping(timeout=self.timeout)
            return question(client)

        return self.ask(ping_first)

    def partitions(self) -> dict[str, list[int]]:
        """The selected partitions. Raises UnknownTopic for a named topic that does not exist."""
        return self._ask_if_there(self._options.selection.find)

    def partitions_left(self, known: Offsets) -> dict[str, list[int]]:
        """Those of the partitions selected before whose topics still exist."""
        topics = set(self.ask(lambda client: client.topics(timeout=self.timeout)))
        return {name: sorted(numbers) for name, numbers in known.items() if name in topics}

    def resolve(self, bounds: Bounds, partitions: dict[str, list[int]]) -> Offsets:
        now_us = time.time_ns() // 1000
        return self._ask_if_there(lambda client: bounds.resolve(client, partitions, now_us=now_us))

    def topic_ends(self, topics: list[str]) -> dict[str, list[int]]:
        """The ends of all partitions of each topic; a topic that is gone is left out."""
        found = {}
        for name in topics:
            try:
                found[name] = self.ask(
                    lambda client, name=name: client.find_offsets(  # type: ignore[misc]
                        name, "latest", timeout=self.timeout
                    )
                )
            except UnknownTopic:
                continue
        return found

    def located(self, spans: list[Span]) -> list[Span]:
        """The spans with the leaders of their partitions; reports spans whose partition is gone."""
        leaders: dict[tuple[str, int], str] = {}
        for name in sorted({span.topic for span in spans}):
            try:
                found = self.ask(
                    lambda client, name=name: client.describe(name, timeout=self.timeout)  # type: ignore[misc]
                )
            except UnknownTopic:
                continue
            leaders |= {(name, each.partition): each.leader for each in found.partitions}
        addresses = self._addresses() if len(set(leaders.values()) - {""}) > 1 else {}
        kept = []
        for span in spans:
            leader = leaders.get((span.topic, span.partition))
            if leader is None:
                why = "the topic was deleted, or made anew with fewer partitions"
                fail = self._options.fail_on_data_loss
                missing.report(span.topic, span.partition, span.start, span.end, why, fail=fail)
            else:
                leader = addresses.get(leader, leader)
                kept.append(replace(span, leader=leader, cluster=self.cluster))
        return kept

    def _addresses(self) -> dict[str, str]:
        """Of the nodes by their ids, so that each task begins at the node that it reads from.

        Where all is on one node this is not asked: how that is reached, `servers` says best.
        """
        nodes = self.ask(lambda client: client.nodes(timeout=self.timeout))
        return {each.node: each.address for each in nodes if each.address}
