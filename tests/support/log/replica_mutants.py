"""Mistakes planted in what a replicated log needs: `ReplicaWorld` has to find every one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hocket.log import replay, replicated
from hocket.log.checkpointer import Checkpointer
from hocket.log.group import GroupLog
from hocket.log.model import HardState, Truncation
from hocket.log.replay import Replay
from hocket.log.replicated import ReplicatedLogs
from hocket.log.slab import Slab
from hocket.log.store import LogStore
from hocket.log.wal import Wal

Plant = Callable[[pytest.MonkeyPatch], None]


def keep_the_first_entry_of_an_index(patch: pytest.MonkeyPatch) -> None:
    note = Replay.note

    def ignore(self: Replay, group: int, told: HardState | Truncation) -> None:
        if isinstance(told, HardState):
            note(self, group, told)

    patch.setattr(Replay, "note", ignore)
    patch.setattr(GroupLog, "is_cut_off", lambda self, index, lsn: False)
    patch.setattr(replay, "_has", lambda log, header: True)


def tell_durable_what_was_cut_on_its_way(patch: pytest.MonkeyPatch) -> None:
    cut = Wal.cut

    def forget(self: Wal, group: GroupLog, truncated: Any) -> None:
        commit, self._commit = self._commit, None
        cut(self, group, truncated)
        self._commit = commit

    patch.setattr(Wal, "cut", forget)


def write_over_what_was_cut(patch: pytest.MonkeyPatch) -> None:
    """In the slab, whose bytes a commit may be sending."""
    cut = Slab.cut

    def keep_open(self: Slab, number: int, end_offset: int) -> None:
        capacity = self.capacity
        cut(self, number, end_offset)
        self.capacity = capacity

    patch.setattr(Slab, "cut", keep_open)


def make_a_cut_known_to_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupLog, "note_truncation", lambda self, cut: None)


def cut_the_next_envelope_as_well(patch: pytest.MonkeyPatch) -> None:
    note = GroupLog.note_truncation
    patch.setattr(
        GroupLog, "note_truncation", lambda self, cut: note(self, cut._replace(lsn=cut.lsn + 1))
    )


def forget_cuts_in_checkpoints(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupLog, "truncations_between", lambda self, lsn, next_lsn: ())


def put_a_cut_into_a_checkpoint_that_the_next_envelope_may_undo(patch: pytest.MonkeyPatch) -> None:
    between = GroupLog.truncations_between
    patch.setattr(
        GroupLog, "truncations_between", lambda self, lsn, next_lsn: between(self, lsn, 1 << 60)
    )


def free_the_wal_of_what_an_envelope_on_its_way_may_bring_back(patch: pytest.MonkeyPatch) -> None:
    make = Checkpointer._checkpoint

    def hasty(self: Checkpointer) -> Any:
        kept = {log: log.truncations for log in self._groups.values()}
        for log in kept:
            log.truncations = [
                cut for cut in log.truncations if cut.lsn <= self._wal.durable_lsn + 1
            ]
        made = make(self)
        for log, cuts in kept.items():
            log.truncations = cuts
        return made

    patch.setattr(Checkpointer, "_checkpoint", hasty)


def tell_a_vote_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    persist = ReplicatedLogs.persist

    def hasty(self: ReplicatedLogs, group: int, state: HardState, done: Any) -> None:
        persist(self, group, state, lambda: None)
        done()

    patch.setattr(ReplicatedLogs, "persist", hasty)


def forget_votes_in_checkpoints(patch: pytest.MonkeyPatch) -> None:
    trimmed = Checkpointer._trimmed
    patch.setattr(
        Checkpointer,
        "_trimmed",
        lambda self, log, lsn: replace(trimmed(self, log, lsn), state=HardState()),
    )


def forget_votes_that_are_in_the_wal(patch: pytest.MonkeyPatch) -> None:
    note = Replay.note

    def forget(self: Replay, group: int, told: HardState | Truncation) -> None:
        if isinstance(told, Truncation):
            note(self, group, told)

    patch.setattr(Replay, "note", forget)


def forget_the_vote_when_a_state_is_installed(patch: pytest.MonkeyPatch) -> None:
    installed = LogStore._installed

    def forget(self: LogStore, record: Any) -> None:
        self._groups[record.group].state = HardState()
        installed(self, record)

    patch.setattr(LogStore, "_installed", forget)


def install_without_cutting_the_old_log(patch: pytest.MonkeyPatch) -> None:
    record = replicated.install_record
    for module in ("hocket.log.store", "hocket.log.replicated"):
        patch.setattr(
            f"{module}.install_record", lambda *args: replace(record(*args), truncations=())
        )


def install_while_the_old_log_is_on_its_way(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Checkpointer, "_is_ready", lambda self, record: True)


def go_on_writing_the_old_log_while_another_is_installed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Wal, "unstage", lambda self, group: None)


def carry_without_telling_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    through = GroupLog.carried_through

    def forget(self: GroupLog, index: int, lsn: int) -> None:
        through(self, index, lsn)
        self.rewritten = None

    patch.setattr(GroupLog, "carried_through", forget)


def end_carrying_with_a_commit_that_was_under_way(patch: pytest.MonkeyPatch) -> None:
    def hasty(self: GroupLog, index: int, lsn: int) -> None:
        carried = self.carried
        if carried is not None and index >= carried.through:
            self.commits, self.carried = carried.commits, None
            self.rewritten = Truncation(carried.begin, lsn, lsn)

    patch.setattr(GroupLog, "carried_through", hasty)


def free_the_wal_before_all_is_carried(patch: pytest.MonkeyPatch) -> None:
    carry = GroupLog.carry

    def hasty(self: GroupLog) -> int:
        size = carry(self)
        self.commits.clear()
        return size

    patch.setattr(GroupLog, "carry", hasty)


MUTANTS: list[Plant] = [
    keep_the_first_entry_of_an_index,
    tell_durable_what_was_cut_on_its_way,
    write_over_what_was_cut,
    make_a_cut_known_to_nobody,
    cut_the_next_envelope_as_well,
    forget_cuts_in_checkpoints,
    put_a_cut_into_a_checkpoint_that_the_next_envelope_may_undo,
    free_the_wal_of_what_an_envelope_on_its_way_may_bring_back,
    tell_a_vote_before_it_is_durable,
    forget_votes_in_checkpoints,
    forget_votes_that_are_in_the_wal,
    forget_the_vote_when_a_state_is_installed,
    install_without_cutting_the_old_log,
    install_while_the_old_log_is_on_its_way,
    go_on_writing_the_old_log_while_another_is_installed,
    carry_without_telling_the_checkpoint,
    end_carrying_with_a_commit_that_was_under_way,
    free_the_wal_before_all_is_carried,
]
