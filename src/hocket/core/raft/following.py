"""What a follower does with what its leader sends (paper 5.3 and 7).

Rule 1: an entry is answered for when it is durable here (`Flushed`), never before.
Rule 2: only an entry of another term is cut off, with all that follows it; entries that are here
        already are left alone, however old the message is.
Rule 3: a follower commits what the leader has committed as far as its own log is known to be the
        leader's (`Group.stored`). A heartbeat therefore says the same to all.
"""

from __future__ import annotations

from hocket.core.raft.events import Effect, Install, Send, Store, Truncate
from hocket.core.raft.group import Group
from hocket.core.raft.messages import Accepted, Entries, Rejected, Snapshot


def take_entries(group: Group, message: Entries) -> list[Effect]:
    outline = group.outline
    previous = message.previous
    known = previous <= group.commit or outline.term_of(previous) == message.previous_term
    if previous > outline.last or not known:
        return [_reject(group, message)]
    last = message.last
    # What is committed here is the leader's, so it is not compared: it may even be gone.
    first = outline.difference(max(previous, group.commit) + 1, message.runs)
    effects: list[Effect] = []
    if first <= last:
        if first <= outline.last:
            group.cut(first)
            effects.append(Truncate(first))
        for end, term in message.runs:
            if end > outline.last:
                outline.add(end, term)
        group.changes += tuple(change for change in message.changes if change[0] >= first)
        effects.append(Store(first, last))
    group.stored = max(group.stored, group.commit, last)
    effects += commit(group, message.commit)
    if first > last:
        effects.append(accept(group))
    return effects


def _reject(group: Group, message: Entries) -> Effect:
    """Say what is here instead: the last entry that may be the leader's, by its term."""
    last = group.outline.last_before(message.previous, message.previous_term)
    refusal = Rejected(group.term, message.previous, last, group.outline.term_of(last))
    return Send(group.leader, refusal)


def accept(group: Group) -> Effect:
    flushed = min(group.outline.flushed, group.stored)
    return Send(group.leader, Accepted(group.term, group.stored, flushed))


def commit(group: Group, told: int) -> list[Effect]:
    effects: list[Effect] = []
    index = min(told, group.stored)
    if index > group.commit:
        group.commit_through(index, effects)
    return effects


def take_snapshot(group: Group, message: Snapshot) -> list[Effect]:
    outline = group.outline
    index, term = message.index, message.index_term
    if index <= group.commit or outline.term_of(index) == term:
        # It holds nothing that is not here; but it says that all up to there is committed.
        group.stored = max(group.stored, index)
        return [*commit(group, index), accept(group)]
    outline.flushed = min(outline.flushed, group.commit)
    outline.reset(index, term)
    group.changes = ()
    group.commit = group.stored = index
    group.configuration = group.snapshot_configuration = message.configuration
    return [Install(index, term, message.configuration)]
