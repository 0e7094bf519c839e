"""What can be set for a node. What is set per topic is in `model.TopicConfig`."""

from __future__ import annotations

from dataclasses import dataclass, field

from hocket.log.settings import LogSettings
from hocket.model import DAY_US, Limits

TICK_US = 100_000  # how often a node looks at the clock
HELLO_TIMEOUT_US = 10_000_000


@dataclass(frozen=True, slots=True)
class Argon2Settings:
    """How much a guess at a token costs.

    These are the values that OWASP recommends for argon2id with the least memory: 19 MiB and one
    thread, some 20 ms, which a broker can spare at every login. RFC 9106's 64 MiB on four threads
    would gain little: tokens are random, not chosen by people.
    """

    time_cost: int = 2
    memory_cost: int = 19_456  # KiB
    parallelism: int = 1


@dataclass(slots=True)
class NodeSettings:
    name: str = ""  # for people; empty: the store's id
    cluster: str = ""  # the founder's store id, on a node that has joined; empty: this one founded
    limits: Limits = field(default_factory=Limits)
    log: LogSettings = field(default_factory=LogSettings)
    retention_every_us: int = 1_000_000
    hello_timeout_us: int = HELLO_TIMEOUT_US  # a connection that says nothing is hung up on
    # How long the names of a process whose connection has ended stay its own: it may come back.
    name_grace_us: int = 5_000_000
    argon2: Argon2Settings = Argon2Settings()
    # Batches that are staged for a transaction are dropped when their producer was not connected
    # for this long. It is long because a prepared producer waits, without a connection, for the
    # slowest participant of its transaction.
    transaction_timeout_us: int = DAY_US
    staged_bytes_max: int = 4 << 30  # of all transactions that are not decided, per partition
    staged_batches_max: int = 100_000  # of one producer and partition
    stages_max: int = 10_000  # producers that have staged, per partition
    # Consumers of one partition at its leader. If there are more, they are served at their homes
    # (`core.placement.crowd`).
    popular: int = 32
    relay_children: int = 16  # nodes to which this one hands on what a popular partition holds
