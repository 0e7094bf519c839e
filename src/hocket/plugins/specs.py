"""The hooks: what a plug-in may be asked and told, when, and what that costs.

Hooks run on the node's own thread, on which everything else of the node runs, too: what a hook
waits for, all clients of the node wait for. `on_metrics` alone runs beside it. Unless the operator
has the plug-in run apart: then its hooks run in its own process, and what they are asked waits for
their answer up to a deadline. How long each took is measured, and what took long is named in the
log. A hook may take fewer arguments than are listed here; they are passed by name.

`API` is the version of this file. It grows when a plug-in that was right before might be wrong
afterwards; a new hook, or a new argument, leaves it as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    import click

    from hocket.log.tier.place import StorageTier
    from hocket.model import TopicConfig
    from hocket.node.running.hooks import Sample
    from hocket.plugins.batches import Delivery, Publish
    from hocket.plugins.doors import Door, Surroundings
    from hocket.wire.named_codec import BatchCodec

API = 1

spec = pluggy.HookspecMarker("hocket")
hook = pluggy.HookimplMarker("hocket")


@spec
def on_publish(batch: Publish) -> None:
    """A client's batch is about to be stored. Change its columns, or raise `Rejected`.

    Cost: once for a batch, however many records it has. Some microseconds for the call; columns
    are decoded when they are looked at, and the batch is encoded anew if one was changed. A batch
    that is sent again, and is stored already, is not shown again. Dead letters, and delayed
    messages that have become due, were shown when they were published.
    """


@spec
def on_deliver(delivery: Delivery) -> None:
    """Batches were sent to a consumer. Nothing can be changed: their bytes are those of the log.

    Cost: once for a frame, which holds one batch or several. What is delivered twice is told twice.
    """


@spec
def authenticate(token: str, address: str) -> str | None:
    """Whose token this is, of those that the broker does not know; None: not known here either.

    The name must be that of a user of the broker, who has their rights by the roles given to them.
    The first plug-in that knows decides. Cost: once for a login with a token that is not one of the
    broker's own; an address that has sent too many wrong ones is not asked about for a while.
    """


@spec
def authorize(user: str, action: str, topic: str, index: str) -> str | None:
    """Why this is not allowed, though the user's roles allow it; None: nothing against it.

    A plug-in can take rights, and gives none. Cost: once for a request. Records are pushed and
    fetched by handles, which are asked about when they are opened and when rights change. What is
    only looked at (lists of topics, indexes and nodes, a topic's description) is not asked about.
    `topic` and `index` may be "*"; `user` is empty while there are no users.
    """


@spec
def on_topic_created(topic: str, config: TopicConfig) -> None:
    """A topic is there. Told on each node, when the node hears of it. Cost: once for a change."""


@spec
def on_topic_altered(topic: str, config: TopicConfig) -> None:
    """A topic has more partitions, or another configuration. Cost: once for a change."""


@spec
def on_topic_deleted(topic: str) -> None:
    """A topic is gone. Cost: once for a change."""


@spec
def on_node_joined(node: str, address: str) -> None:
    """The cluster has another node. Told on each node. Cost: once for a change."""


@spec
def on_node_left(node: str, address: str) -> None:
    """The cluster has given a node up, or it has left. Told on each node."""


@spec
def on_metrics(samples: list[Sample]) -> None:
    """What the node tells about itself in numbers, every ten seconds (`--metrics-interval`).

    They are those of `/metrics`, and as there a histogram is `NAME_bucket` with the label `le`,
    `NAME_sum` and `NAME_count`. It is called on a thread beside the node's own: what it waits for,
    other plug-ins with this hook wait for, and nobody else. Cost: that of a scrape.
    """


@spec
def open_door(around: Surroundings) -> Door | None:
    """The node serves: open something that listens, on threads of its own.

    `around` has the node's certificates, who is allowed what, and how to be a client of the node.
    What it returns is closed when the node goes down. Cost: once.
    """


@spec
def storage_tier() -> StorageTier | None:
    """A place for old segments, beyond the disk; see `hocket.plugins.tiers`. One for a node.

    Cost: once. The methods of what it returns run on threads of their own, and nothing but reads
    of what is there waits for them.
    """


@spec
def codec() -> BatchCodec | None:
    """A codec of batches, by the name of the plug-in: producers name it as `codec=NAME`.

    What it returns has `compress` and `decompress`; see `hocket.wire.named_codec`. Batches are
    compressed by producers and opened by consumers, who find it as an entry point of the group
    `hocket.codecs`. The node opens batches of up to 4 KiB on its own thread, to see whether they
    can be read. Cost: once for such a batch, and whatever opening it takes.
    """


@spec
def command() -> click.Command | None:
    """A command of click, to be run as `hocket NAME` by the name of the plug-in.

    It must be a static method: it is called on the command line, where the plug-in has no settings
    and need not be enabled. Cost: `hocket --help` loads the plug-in.
    """


@spec
def on_close() -> None:
    """The node goes down: let go of what you hold. Cost: once."""


HOOKS = (
    "on_publish", "on_deliver", "authenticate", "authorize", "on_topic_created",
    "on_topic_altered", "on_topic_deleted", "on_node_joined", "on_node_left", "on_metrics",
    "open_door", "storage_tier", "codec", "command", "on_close",
)  # fmt: skip
