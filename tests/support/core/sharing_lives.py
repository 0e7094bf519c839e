"""Whole lives of a shared index from one seed: the rules of the model test, by a weighted dice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.support.core.sharing_world import KEYS

REVIVING = 0.08  # how often dead letters are given back, after a step
WEIGHTS = {
    "append": 30, "log_start": 10, "reset": 3, "join": 20, "leave": 10, "give_credit": 30,
    "widen": 5, "settle": 60, "fetched": 80, "nothing_fetched": 10, "dead_lettered": 20,
    "tick": 30, "crash": 4, "close": 2, "restart": 20, "scanned": 60, "scan_failed": 5,
    "damaged": 6, "die": 5,
}  # fmt: skip


def live(machine: Any, seed: int, steps: int) -> Counter[str]:
    """One life, to the end; what happened in it, by how often. Raises where it went wrong."""
    dice = random.Random(f"sharing/{seed}")
    reviving = random.Random(f"reviving/{seed}")  # so that all else happens with or without it
    machine.begin(
        partitions=dice.randint(1, 2),
        most=dice.choice([1, 2, 3, 3]),
        failover=dice.choice(["safe", "safe", "fast"]),
        immortal=dice.random() < 0.25,
    )
    names, weights = list(WEIGHTS), list(WEIGHTS.values())
    for _ in range(steps):
        (name,) = dice.choices(names, weights)
        if _is_possible(machine.world, name):
            getattr(machine, name)(**_ARGUMENTS[name](dice))
        if reviving.random() < REVIVING:
            machine.revive(**_ARGUMENTS["revive"](reviving))
    machine.teardown()
    return machine.world.seen


def _is_possible(world: Any, name: str) -> bool:
    if name in ("fetched", "nothing_fetched", "damaged"):
        return bool(world.fetches)
    if name in ("scanned", "scan_failed"):
        return bool(world.scans)
    return name != "restart" or world.closing


def _spots(dice: random.Random) -> list[tuple[int, int, int]]:
    return [
        (dice.randint(0, 5), dice.randint(0, 40), dice.randint(1, 6))
        for _ in range(dice.randint(1, 5))
    ]


_ARGUMENTS: dict[str, Callable[[random.Random], dict[str, Any]]] = {
    "append": lambda dice: {
        "which": dice.randint(0, 5),
        "keys": dice.choices(KEYS, k=dice.randint(1, 25)),
    },
    "log_start": lambda dice: {"which": dice.randint(0, 5), "removed": dice.randint(1, 12)},
    "reset": lambda dice: {
        "which": dice.randint(0, 5),
        "fraction": dice.choice([0.0, 0.5, 1.0]),
        "really": 0,
    },
    "join": lambda dice: {
        "who": dice.randint(0, 2),
        "narrow": dice.randint(0, 3),
        "credit": dice.randint(0, 12),
        "held": _spots(dice),
        "tells": dice.random() < 0.7,
    },
    "leave": lambda dice: {"who": dice.randint(0, 5), "graceful": dice.random() < 0.5},
    "die": lambda dice: {"who": dice.randint(0, 5)},
    "give_credit": lambda dice: {
        "who": dice.randint(0, 5),
        "messages": dice.choice([0, dice.randint(0, 15)]),
        "far": dice.randint(-3, 12),
    },
    "widen": lambda dice: {"who": dice.randint(0, 5), "which": dice.randint(0, 5)},
    "settle": lambda dice: {
        "who": dice.randint(0, 5),
        "action": dice.choice(["ack", "ack", "nack", "extend", "reject", "release"]),
        "spots": _spots(dice),
        "duration": dice.choice([0, 0, 20, 150]),
        "honest": dice.randint(0, 3),
        "again": dice.random() < 0.2,
    },
    "fetched": lambda dice: {"which": dice.randint(0, 5), "lost": dice.choice([0] * 6 + [2])},
    "nothing_fetched": lambda dice: {
        "which": dice.randint(0, 5),
        "failed": dice.random() < 0.5,
    },
    "dead_lettered": lambda dice: {"which": dice.randint(0, 5), "units": dice.random() < 0.5},
    "tick": lambda dice: {"passed": dice.choice([1, 20, 30, 60, 100])},
    "crash": lambda dice: {"lost": dice.randint(0, 4), "really": 0},
    "close": lambda _dice: {"really": 0},
    "restart": lambda _dice: {},
    "scanned": lambda dice: {
        "which": dice.randint(0, 5),
        "limit": dice.choice([0, 3, 100, 100, 100]),
    },
    "scan_failed": lambda dice: {"which": dice.randint(0, 5)},
    "revive": lambda dice: {
        "which": dice.randint(0, 5),
        "spots": [dice.randint(0, 40) for _ in range(dice.randint(1, 4))],
        "again": dice.random() < 0.25,
    },
    "damaged": lambda dice: {
        "which": dice.randint(0, 5),
        "before": dice.randint(0, 3),
        "behind": dice.randint(0, 5),
    },
}
