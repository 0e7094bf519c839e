"""What nodes tell each other of their audit logs, and how the answers of several become one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hocket.cluster_model import AuditRecord

RECORDS_MAX = 500  # in one answer
BYTES_MAX = 512 << 10  # of the texts in one answer, unless a single one has more


@dataclass(slots=True)
class GetAudit:
    """What does your audit log hold from this time on?"""

    request: int
    since_us: int


@dataclass(slots=True)
class AuditHolds:
    """The answer to `GetAudit`: the oldest of these records."""

    request: int
    records: tuple[AuditRecord, ...]
    more: bool  # there are more, behind them


AuditMessage = GetAudit | AuditHolds


@dataclass(slots=True)
class Page:
    """Records in the order of time. There are others from `next_us` on; 0: these are all."""

    records: list[AuditRecord]
    next_us: int


def page_of(records: Iterable[AuditRecord], *, more: bool = False) -> Page:
    """As many of these, which are sorted by time, as one answer takes."""
    taken: list[AuditRecord] = []
    size = 0
    for record in records:
        size += len(record.text)
        if taken and (len(taken) >= RECORDS_MAX or size > BYTES_MAX):
            # Those of one moment go together: the next page begins with a time.
            end_us = record.time_us
            whole = [each for each in taken if each.time_us < end_us]
            return Page(whole or taken, end_us if whole else end_us + 1)
        taken.append(record)
    return Page(taken, taken[-1].time_us + 1 if more and taken else 0)


def joined(answers: Iterable[AuditHolds]) -> Page:
    """What several nodes have told, as one page: as far as all of them have told everything."""
    answers = list(answers)
    ends = [each.records[-1].time_us for each in answers if each.more and each.records]
    end_us = min(ends, default=None)
    records = sorted(
        (
            record
            for each in answers
            for record in each.records
            if end_us is None or record.time_us <= end_us
        ),
        key=lambda record: (record.time_us, record.node),
    )
    return page_of(records, more=end_us is not None)
