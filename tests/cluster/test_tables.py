"""The judges of the tables find every error that is planted into what was seen of a good cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tests.support.cluster.tables import (
    Sharing,
    Transaction,
    as_markdown,
    judge_sharing,
    judge_transactions,
    judge_watching,
)

GOOD = Sharing(
    count=6, held=[0, 1, 2, 3], done={0}, kept=[0], rejected=[1], sure=True,
    given=[2, 3, 4, 5], letters=[1],
)  # fmt: skip


def test_a_good_cell_of_shared_delivery_is_exact():
    assert not judge_sharing(GOOD)
    unsure = replace(GOOD, sure=False, letters=[], given=[1, 2, 3, 4, 5])
    assert not judge_sharing(unsure)


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        ({"early": [2]}, "held by two"),
        ({"given": [0, 2, 3, 4, 5]}, "given again though its ack was durable"),
        ({"given": [2, 2, 3, 4, 5]}, "given twice"),
        ({"kept": [0, 2]}, "lost to its consumer"),
        ({"letters": [1, 1]}, "two dead letters"),
        ({"letters": [1, 2]}, "nobody rejected"),
        ({"given": [1, 2, 3, 4, 5]}, "given again as well"),
        ({"letters": [], "given": [1, 2, 3, 4, 5]}, "no dead letter"),
        ({"given": [2, 3, 4]}, "lost: .5."),
        ({"done": set(), "kept": ()}, "lost: .0."),
    ],
)
def test_a_planted_error_of_shared_delivery_is_found(planted: dict[str, object], found: str):
    wrong = judge_sharing(replace(GOOD, **planted))  # type: ignore[arg-type]
    assert len(wrong) == (2 if found == "nobody rejected" else 1)
    with pytest.raises(AssertionError, match=found):
        assert not wrong, wrong


MADE = [
    Transaction("one", [0, 1], 2, ["1.1"]),
    Transaction("two", [0], 2, ["2.1", "2.2"]),
    Transaction("three", [1], 2, ["3.2"], aborted=["3.1"]),
]
STORED: Mapping[str, Mapping[int, Sequence[int]]] = {
    "1.1": {0: [0, 1], 1: [0, 1]}, "2.2": {0: [0, 1]}, "3.2": {1: [0, 1]},
}  # fmt: skip


def test_good_transactions_are_exact():
    assert not judge_transactions(MADE, STORED)


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        ({"1.1": {0: [0, 1]}}, "1.1 is torn"),
        ({"1.1": {0: [0, 1], 1: [0]}}, "1.1 is torn"),
        ({"1.1": {0: [0, 1, 0, 1], 1: [0, 1]}}, "1.1 is torn, doubled"),
        ({"1.1": {0: [1, 0], 1: [0, 1]}}, "out of order"),
        ({"2.1": {0: [0, 1]}}, "of .'2.1', '2.2'. there are"),
        ({"2.2": None}, "there are \\[\\]"),
        ({"3.1": {1: [0]}}, "3.1 was aborted, and can be seen"),
        ({"4.1": {1: [0]}}, "nobody has sent 4.1"),
    ],
)
def test_a_planted_error_of_transactions_is_found(
    planted: dict[str, Mapping[int, Sequence[int]] | None], found: str
):
    stored = {name: where for name, where in {**STORED, **planted}.items() if where is not None}
    wrong = judge_transactions(MADE, stored)
    assert len(wrong) == 1
    with pytest.raises(AssertionError, match=found):
        assert not wrong, wrong


RECORDS = [(0, 0, "1.1/0"), (1, 0, "1.1/0"), (0, 1, "1.1/1"), (1, 1, "1.1/1")]


def test_a_consumer_that_saw_what_is_there_in_any_order_of_partitions_saw_it_right():
    assert not judge_watching(sorted(RECORDS), RECORDS)


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        ([*RECORDS, (0, 2, "3.1/0")], "3.1/0 was seen at 0@2, and is not there"),
        ([*RECORDS[:2], (0, 1, "3.1/0"), RECORDS[3]], "3.1/0 was seen at 0@1"),
        (RECORDS[:3], "1.1/1 was not seen"),
        ([RECORDS[0], *RECORDS], "0@0 was handed out where 1 was due"),
        ([RECORDS[2], *RECORDS[:2], RECORDS[3]], "0@1 was handed out where 0 was due"),
    ],
)
def test_a_planted_error_of_what_a_consumer_saw_is_found(
    planted: list[tuple[int, int, str]], found: str
):
    wrong = judge_watching(planted, RECORDS)
    assert any(found in each for each in wrong), wrong


def test_a_table_has_a_row_for_each_step():
    assert as_markdown(["s", "t"], ["a", "b"], {("s", "b"): 2}).splitlines()[2:] == [
        "| s | 0 | 2 |",
        "| t | 0 | 0 |",
    ]
