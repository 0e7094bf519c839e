"""Bugs of the log below the replicas: of what is durable, and of what is lost."""

from __future__ import annotations

from typing import Any

from hocket.log import envelope, wal
from hocket.log.directory import Format
from hocket.log.envelope import Draft
from hocket.node.replication import saved
from hocket.ports import File
from hocket.sim.mutants.mutant import Replacements, mutant


@mutant(seeds=30)
def tell_durable_before_it_is_synced() -> Replacements:
    """A commit counts as durable as soon as it is written."""

    def write(file: File, position: int, draft: Draft, salt: int, form: Format) -> None:
        if draft.notes:
            form.need(2)
        file.write(envelope.encode(draft, salt), position)

    return [(wal, "write", write)]


@mutant(seeds=100)
def go_on_behind_a_hole() -> Replacements:
    """What lies behind damage is taken for a part of the log."""

    def keep(*_arguments: Any) -> None:
        return

    return [(saved, "_cut_off_what_is_lost", keep)]


OF_THE_LOG = (
    tell_durable_before_it_is_synced,
    go_on_behind_a_hole,
)
