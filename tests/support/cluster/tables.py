"""The judges of the tables "step x who dies": what was seen of one cell, and what is wrong with it.

Nothing here knows a process. `judge_sharing` and `judge_transactions` give every breach in words;
a cell without one is exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass
class Sharing:
    """What became of the messages of one shared index, by their offsets."""

    count: int  # that were published, from offset 0 on
    held: Sequence[int]  # by the consumer at which somebody died
    done: Collection[int] = ()  # whose acks that consumer was told to be durable
    kept: Collection[int] = ()  # that it had a lease on until it had acked them
    rejected: Collection[int] = ()
    sure: bool = False  # the rejects were told to be durable
    early: Collection[int] = ()  # of `held`, that another consumer had while the lease lasted
    given: Sequence[int] = ()  # that others had afterwards, and acked
    letters: Sequence[int] = ()  # dead letters


def judge_sharing(seen: Sharing) -> list[str]:
    given, letters = Counter(seen.given), Counter(seen.letters)
    wrong = {
        "held by two": seen.early,
        "given again though its ack was durable": [at for at in seen.done if at in given],
        "given twice though others had acked it": [at for at, n in given.items() if n > 1],
        "lost to its consumer before the lease was over": set(seen.kept) - set(seen.done),
        "two dead letters": [at for at, n in letters.items() if n > 1],
        "a dead letter of what nobody rejected": set(letters) - set(seen.rejected),
        "a dead letter that was given again as well": set(letters) & set(given),
        "no dead letter": set(seen.rejected) - set(letters) if seen.sure else (),
        "lost": set(range(seen.count)) - set(given) - set(letters) - set(seen.done),
    }
    return [f"{what}: {sorted(offsets)}" for what, offsets in wrong.items() if offsets]


@dataclass
class Transaction:
    """One cell: the attempts under its id and number, of which exactly one is to be there."""

    name: str
    partitions: Sequence[int]
    records: int  # in each of them
    attempts: list[str] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)  # of these none may be there


def judge_transactions(
    made: Iterable[Transaction], stored: Mapping[str, Mapping[int, Sequence[int]]]
) -> list[str]:
    """`stored`: of each attempt, by partition, the numbers of its records as the log has them."""
    wrong = []
    left = {attempt: dict(found) for attempt, found in stored.items()}
    for each in made:
        there = [attempt for attempt in each.attempts if attempt in left]
        if len(there) != 1:
            wrong.append(f"{each.name}: of {each.attempts} there are {there}")
        whole = {partition: list(range(each.records)) for partition in each.partitions}
        for attempt in there:
            if left.pop(attempt) != whole:
                wrong.append(f"{each.name}: {attempt} is torn, doubled or out of order")
        for attempt in each.aborted:
            if left.pop(attempt, None):
                wrong.append(f"{each.name}: {attempt} was aborted, and can be seen")
    wrong += (f"nobody has sent {attempt}" for attempt in left)
    return wrong


Record = tuple[int, int, str]  # a partition, an offset, and what stands there


def judge_watching(seen: Iterable[Record], stored: Iterable[Record]) -> list[str]:
    """What a consumer was handed while all that happened, against what the logs have in the end."""
    wrong = []
    left = {(partition, offset): value for partition, offset, value in stored}
    ends: dict[int, int] = {}
    for partition, offset, value in seen:
        place = f"{partition}@{offset}"
        if offset != ends.get(partition, 0):
            wrong.append(f"{place} was handed out where {ends.get(partition, 0)} was due")
        ends[partition] = offset + 1
        if left.pop((partition, offset), "") != value:
            wrong.append(f"{value} was seen at {place}, and is not there")
    wrong += (f"{value} was not seen" for value in left.values())
    return wrong


def as_markdown(
    steps: Sequence[str], victims: Sequence[str], kills: Mapping[tuple[str, str], int]
) -> str:
    """How often each victim was killed at each step."""
    lines = ["| killed at | " + " | ".join(victims) + " |", "| --- |" + " ---: |" * len(victims)]
    for step in steps:
        row = [str(kills.get((step, victim), 0)) for victim in victims]
        lines.append(f"| {step} | " + " | ".join(row) + " |")
    return "\n".join(lines)
