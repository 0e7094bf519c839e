"""Mean, percentile, share: a few numbers that describe many."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of all do not exceed (nearest rank)."""
    if not values:
        return 0.0
    return sorted(values)[max(ceil(share * len(values)) - 1, 0)]


def max_to_mean(loads: Sequence[float]) -> float:
    """The greatest load divided by the mean load; 1.0 means that all loads are equal."""
    average = mean(loads)
    return max(loads) / average if average else 0.0


def histogram(values: Sequence[int]) -> dict[int, float]:
    """The share of each value, by value."""
    counts: dict[int, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return {value: counts[value] / len(values) for value in sorted(counts)}
