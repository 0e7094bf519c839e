"""Opens what is there, and refuses a store whose metadata or decisions are damaged."""

from __future__ import annotations

import shlex

from hocket.errors import CorruptData
from hocket.log.directory import Directory
from hocket.log.group import GroupLog
from hocket.log.model import METADATA, VITAL
from hocket.log.recovery import Recovery, recover
from hocket.log.settings import LogSettings
from hocket.model import DECISIONS
from hocket.ports import Disk


def accept_command(where: str, group: int) -> str:
    return f"hocket log accept-loss {shlex.quote(where)} {group}"


def doubt_of(log: GroupLog, where: str) -> str:
    """What may be lost behind the end of the group, in words; empty if its end is known."""
    damage = log.tail_damage
    if damage is None:
        return ""
    return (
        f"{damage} may be lost; put the data directory back from a copy, or accept the loss while "
        f"the broker is down: {accept_command(where, log.id)}"
    )


def recovered(disk: Disk, known: Directory, settings: LogSettings, now_us: int) -> Recovery:
    has_votes = known.version >= 2
    found = recover(disk, known.store_id, settings, now_us, has_votes=has_votes)
    try:
        for group in VITAL:
            if group in found.groups:
                refuse_damaged(found.groups[group], settings.where)
    except CorruptData:
        found.close_files()
        raise
    return found


def refuse_damaged(log: GroupLog, where: str) -> None:
    """Without what is lost, topics would be gone and rights that were revoked in force again, or
    only some of the partitions of a transaction would be published."""
    lost = [each for each in log.lasting_damage if not each.accepted]
    if lost and log.id == DECISIONS:
        raise CorruptData(
            f"the decisions on transactions in {where} (log {DECISIONS}) are damaged: "
            f"{'; '.join(map(str, lost))}. Put the data directory back from a copy. To go on "
            "without these decisions, so that transactions may be published in some of their "
            f"partitions only: {accept_command(where, DECISIONS)}"
        )
    if lost and log.id == METADATA:
        raise CorruptData(
            f"the metadata in {where} (log {METADATA}: topics, users and rights, decisions on "
            f"transactions) is damaged: {'; '.join(map(str, lost))}. Put the data directory back "
            "from a copy. To go on without what these entries have changed, which may be a right "
            f"that was revoked: {accept_command(where, METADATA)}"
        )
