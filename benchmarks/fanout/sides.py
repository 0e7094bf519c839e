"""The sides by their names."""

from __future__ import annotations

from benchmarks.fanout.nats_jetstream import Nats
from benchmarks.fanout.ours import MEMORY, Hocket
from benchmarks.fanout.redis_streams import ALWAYS, RedisStreams
from benchmarks.fanout.side import Side

_ALL: tuple[Side, ...] = (
    Hocket(), Hocket(MEMORY, "memory"), Nats(), RedisStreams(), RedisStreams(ALWAYS)
)  # fmt: skip
SIDES = {side.name: side for side in _ALL}
