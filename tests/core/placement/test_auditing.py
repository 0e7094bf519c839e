"""The audit logs of several nodes as pages of one."""

from __future__ import annotations

from hypothesis import given, strategies as st

from hocket.cluster_model import AuditRecord
from hocket.core.placement import auditing
from hocket.core.placement.auditing import AuditHolds, joined, page_of


def records(node: str, *times: int, size: int = 1) -> list[AuditRecord]:
    return [AuditRecord(node, time, "x" * size) for time in times]


def test_what_fits_is_one_page():
    assert page_of(records("a", 1, 2)).next_us == 0
    assert page_of([]).records == []
    assert page_of(records("a", 1, 2), more=True).next_us == 3
    assert page_of([], more=True).next_us == 0


def test_a_page_ends_between_two_moments(monkeypatch):
    monkeypatch.setattr(auditing, "RECORDS_MAX", 3)
    page = page_of(records("a", 1, 2, 3, 3, 4))
    assert ([each.time_us for each in page.records], page.next_us) == ([1, 2], 3)
    same = page_of(records("a", 5, 5, 5, 5, 6))  # more in one moment than a page takes
    assert (len(same.records), same.next_us) == (3, 6)


def test_large_texts_are_few():
    page = page_of(records("a", 1, 2, 3, size=auditing.BYTES_MAX // 2))
    assert (len(page.records), page.next_us) == (2, 3)


def test_nothing_is_told_beyond_what_all_have_told():
    early = AuditHolds(1, tuple(records("a", 1, 3)), more=True)
    late = AuditHolds(1, tuple(records("b", 2, 9)), more=False)
    page = joined([early, late, AuditHolds(1, (), more=False)])
    assert [(each.node, each.time_us) for each in page.records] == [("a", 1), ("b", 2), ("a", 3)]
    assert page.next_us == 4


@given(st.lists(st.sets(st.integers(1, 60)), max_size=4), st.integers(1, 5))
def test_page_by_page_everything_comes_once_and_in_order(logs, size):
    """Times are those of one node only: no more of one moment than a page takes."""
    before, auditing.RECORDS_MAX = auditing.RECORDS_MAX, size + len(logs)
    try:
        kept = [records(f"n{at}", *sorted(times)) for at, times in enumerate(logs)]
        found: list[AuditRecord] = []
        since = 0
        while True:
            answers = []
            for each in kept:
                page = page_of(record for record in each if record.time_us >= since)
                answers.append(AuditHolds(1, tuple(page.records), page.next_us > 0))
            whole = joined(answers)
            found += whole.records
            if not whole.next_us:
                break
            assert whole.next_us > since
            since = whole.next_us
        assert found == sorted(
            (record for each in kept for record in each), key=lambda each: (each.time_us, each.node)
        )
    finally:
        auditing.RECORDS_MAX = before
