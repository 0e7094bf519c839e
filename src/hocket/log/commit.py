"""One group commit: an envelope on its way to the disk, and the job that takes it there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hocket.log import envelope
from hocket.log.directory import Format
from hocket.log.envelope import Draft
from hocket.log.group import GroupLog
from hocket.log.model import LogEnd
from hocket.log.wal_files import WalFile
from hocket.ports import File

Told = Callable[[], None]


@dataclass(slots=True)
class Commit:
    """An envelope on its way to the disk."""

    draft: Draft
    size: int
    file: WalFile
    position: int
    ends: list[tuple[GroupLog, LogEnd]]
    bytes: int  # of its entries
    noted: dict[GroupLog, list[Told]] | None  # whose notes it has for the first time
    is_plain: bool  # it has no notes and nothing that was carried, and no group was cut back
    cut: dict[GroupLog, LogEnd] = field(default_factory=dict)  # to where, since it was begun


def write(file: File, position: int, draft: Draft, salt: int, form: Format) -> None:
    """The job of a commit."""
    if draft.notes:
        form.need(2)
    file.write(envelope.encode(draft, salt), position, sync=True)
