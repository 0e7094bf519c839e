"""The sides by their names."""

from __future__ import annotations

from benchmarks.fanout.nats_jetstream import Nats
from benchmarks.fanout.ours import Hocket
from benchmarks.fanout.redis_streams import RedisStreams
from benchmarks.fanout.side import Side

SIDES: dict[str, Side] = {side.name: side for side in (Hocket(), Nats(), RedisStreams())}
