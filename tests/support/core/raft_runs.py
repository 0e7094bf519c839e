"""Lives of Raft nodes by chance: what happens in a world, how often, and which faults at once."""

from __future__ import annotations

from random import Random

from hocket.core.raft.settings import RaftSettings
from tests.support.core.raft_world import SETTINGS, World

WEIGHTS = {
    "deliver": 60, "lose": 4, "double": 4, "wait": 5, "append": 8, "begin_flush": 4,
    "end_flush": 5, "flush": 14, "beat": 6, "due": 9, "crash": 2, "restart": 6, "change": 4,
    "read": 4, "transfer": 1, "compact": 1, "link_lost": 1, "stall": 1, "cut": 1, "late": 3,
    "calm": 8, "damage": 0,
}  # fmt: skip
ACTIONS = tuple(WEIGHTS)


def run(seed: int, steps: int = 400, settings: RaftSettings = SETTINGS) -> World:
    """A life that follows from its seed. Some faults are left out, and some are frequent."""
    chance = Random(seed)
    size = chance.choice([3, 3, 4, 5])
    voters = chance.randint(min(3, size), size) if chance.random() < 0.8 else 1
    world = World(size, voters, settings)
    weights = dict(WEIGHTS)
    for fault in ("lose", "double", "crash", "change", "transfer", "compact", "stall", "cut"):
        if chance.random() < 0.4:
            weights[fault] = 0
        elif chance.random() < 0.3:
            weights[fault] *= 3
    for often in (
        ("due", "wait", "cut"),
        ("read", "cut"),
        ("crash", "restart"),
        ("compact", "double"),
    ):
        if chance.random() < 0.25:
            weights.update((action, 3 * weights[action]) for action in often)
    if voters >= 3 and chance.random() < 0.15:
        # With fewer, or with others by and by, nobody could vote in the place of who must not.
        weights.update(damage=4, change=0, transfer=0)
    for action in chance.choices(ACTIONS, list(weights.values()), k=steps):
        world.do(action, chance.randrange(size), chance.randrange(1 << 16))
    world.heal(chance)
    return world
