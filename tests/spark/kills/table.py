"""The kills as a table: how many at each stage, of whom, in which shape of job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tests.spark.kills.harness import Kill
from tests.spark.kills.stages import STAGES, VICTIMS


def as_markdown(kills: Iterable[Kill]) -> str:
    counts = Counter(kills)
    shapes = sorted({kill.shape for kill in counts})
    lines = [
        "| stage | victim | " + " | ".join(shapes) + " | all |",
        "| --- | --- |" + " ---: |" * (len(shapes) + 1),
    ]
    for stage in STAGES:
        for victim in VICTIMS:
            row = [counts[Kill(shape, stage, victim)] for shape in shapes]
            lines.append(f"| {stage} | {victim} | " + " | ".join(map(str, [*row, sum(row)])) + " |")
    totals = [sum(n for kill, n in counts.items() if kill.shape == shape) for shape in shapes]
    lines.append("| all | | " + " | ".join(map(str, [*totals, sum(totals)])) + " |")
    return "\n".join(lines) + "\n"


def empty_stages(kills: Iterable[Kill]) -> list[tuple[str, str]]:
    found = {(kill.stage, kill.victim) for kill in kills}
    return [
        (stage, victim) for stage in STAGES for victim in VICTIMS if (stage, victim) not in found
    ]
