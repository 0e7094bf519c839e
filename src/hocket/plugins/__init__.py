"""Plug-ins: what a broker does besides, in packages of their own.

A plug-in is a class (or a module) that a package names in the entry-point group `hocket.plugins`.
It says `api = 1`, and its methods that are marked with `hook` are called where
`hocket.plugins.specs` says, with what each of them costs. A node runs the plug-ins
that its operator names (`hocket serve --plugin NAME`), in that order.

    from hocket.plugins import Publish, Rejected, hook

    class Small:
        api = 1

        @hook
        def on_publish(self, batch: Publish) -> None:
            if max(map(len, batch.values)) > 1_000:
                raise Rejected("a message has at most 1,000 bytes here")

Every name is loaded when it is first used: the command line looks here for commands, too.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hocket.errors import Rejected as Rejected
    from hocket.log.tier.place import StorageTier as StorageTier, TierRules as TierRules
    from hocket.node.running.hooks import Sample as Sample
    from hocket.plugins.batches import Delivery as Delivery, Publish as Publish
    from hocket.plugins.specs import API as API, hook as hook
    from hocket.wire.named_codec import BatchCodec as BatchCodec

__all__ = [
    "API",
    "BatchCodec",
    "Delivery",
    "Publish",
    "Rejected",
    "Sample",
    "StorageTier",
    "TierRules",
    "hook",
]

_HOMES = {
    "API": "hocket.plugins.specs",
    "BatchCodec": "hocket.wire.named_codec",
    "Delivery": "hocket.plugins.batches",
    "Publish": "hocket.plugins.batches",
    "Rejected": "hocket.errors",
    "Sample": "hocket.node.running.hooks",
    "StorageTier": "hocket.log.tier.place",
    "TierRules": "hocket.log.tier.place",
    "hook": "hocket.plugins.specs",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name in _HOMES:
            return getattr(import_module(_HOMES[name]), name)
        raise AttributeError(f"module 'hocket.plugins' has no attribute {name!r}")
