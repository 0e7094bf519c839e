"""The stage that traces of group 0 are played on: commands in words, effects in words.

`root` and `learner` begin anew, one of the two. Nodes are letters, `b2` is b's second life, and the
root is `r`. An entry is `index.term`.
"""

from __future__ import annotations

from hocket.core.group0 import events, messages
from hocket.core.group0.leader import Leader
from hocket.core.group0.learner import Learner
from hocket.core.group0.messages import Entry
from hocket.core.group0.settings import Group0Settings
from hocket.core.ring.contact import Contact

CLUSTER = "c"
SETTINGS = {
    "tail_entries_max": 6, "run_entries_max": 2, "runs_in_flight_max": 2, "piece_bytes": 100,
    "heartbeat_ticks": 4, "resend_ticks": 3, "silent_ticks": 10, "retry_ticks_min": 2,
    "retry_ticks_max": 8, "refused_ticks": 8,
}  # fmt: skip


def contact(name):
    return Contact(ord(name[0]), name[0], int(name[1:] or 1), name[0])


def entry(word, size=10):
    index, term = map(int, word.split("."))
    return Entry(term, 3, index, bytes(size))


def place(word):
    index, term = map(int, word.split("."))
    return index, term


class Script:
    def carry_out(self, line):
        words, options = [], {}
        for word in line.split():
            name, found, value = word.partition("=")
            if found:
                options[name] = int(value) if value.isdecimal() else value
            else:
                words.append(word)
        command = getattr(self, "_" + words[0].replace("-", "_"))
        return command(*words[1:], **options) or []

    # --- beginnings --------------------------------------------------------------------------

    def _root(self, before, *tail, **more):
        settings = Group0Settings(**{**SETTINGS, **more})
        self.core = Leader(CLUSTER, place(before), [entry(word) for word in tail], settings)

    def _learner(self, has, **more):
        self.core = Learner(CLUSTER, *place(has), Group0Settings(**{**SETTINGS, **more}))

    # --- what the root hears -----------------------------------------------------------------

    def _follow(self, who, has, request=1, cluster=CLUSTER):
        index, term = place(has)
        return self._heard(contact(who), messages.Follow(request, cluster, index, term))

    def _followed(self, who, has, request=1, offset=0):
        index, term = place(has if "." in has else f"{has}.0")
        return self._heard(contact(who), messages.Followed(request, index, term, offset))

    def _commit(self, *words, size=10):
        return self._step(events.Committed(tuple(entry(word, size) for word in words)))

    def _snapshot_is(self, size):
        return self._step(events.SnapshotIs(bytes(int(size))))

    def _learners(self):
        return [f"{node} has {index}" for node, index in self.core.learners.items()]

    # --- what a learner hears ----------------------------------------------------------------

    def _root_is(self, address, epoch=1):
        return self._step(events.RootIs(address, epoch))

    def _entries(self, behind, *words, end=0, request=1):
        index, term = place(behind)
        told = tuple(entry(word) for word in words)
        end = end or (told[-1].index if told else index)
        message = messages.Entries(request, index, term, told, end)
        return self._heard(contact("r"), message)

    def _piece(self, of, at, size, total=200, request=1):
        index, term = place(of)
        message = messages.SnapshotPiece(
            request, index, term, int(at), total, bytes(int(size)), index
        )
        return self._heard(contact("r"), message)

    def _again(self, request=1):
        return self._heard(contact("r"), messages.FollowAgain(request))

    def _not_followed(self, reason, request=1):
        return self._heard(contact("r"), messages.NotFollowed(request, reason))

    def _stored(self, index):
        return self._step(events.Stored(int(index)))

    def _installed(self):
        return self._step(events.Installed())

    def _lost(self):
        return self._step(events.RootLost())

    def _spoke(self):
        return self._step(events.RootSpoke())

    # --- both --------------------------------------------------------------------------------

    def _tick(self, times=1, chance="0"):
        lines = []
        for tick in range(int(times)):
            happened = self._step(events.Tick(float(chance)))
            lines += [f"tick {tick + 1}: {line}" for line in happened]
        return lines

    def _heard(self, sender, message):
        return self._step(events.Heard(sender, message))

    def _step(self, event):
        return [self._told(effect) for effect in self.core.step(event)]

    def _told(self, effect):
        match effect:
            case events.Send():
                life = str(effect.to.incarnation) if effect.to.incarnation > 1 else ""
                return f"to {effect.to.address}{life}: {self._said(effect.message)}"
            case events.TakeSnapshot():
                return "take a snapshot"
            case events.Store():
                return f"store {_named(effect.entries)}"
            case events.Install():
                return f"install {effect.index}.{effect.term}, {len(effect.data)} bytes"
            case events.CaughtUp():
                return "caught up"
            case events.Refused():
                return f"refused: {effect.reason}"

    def _said(self, message):
        under = f"({message.request})"
        match message:
            case messages.Follow():
                return f"follow {under} behind {message.index}.{message.term}"
            case messages.Entries():
                behind = f"behind {message.previous_index}.{message.previous_term}"
                what = _named(message.entries) or "nothing"
                return f"entries {under} {behind}: {what}; the end is {message.end}"
            case messages.SnapshotPiece():
                part = f"{message.offset}..{message.offset + len(message.data)} of {message.total}"
                return f"snapshot {under} of {message.index}.{message.term}: {part}"
            case messages.Followed():
                taken = f", {message.offset} bytes" if message.offset else ""
                return f"followed {under} up to {message.index}.{message.term}{taken}"
            case messages.FollowAgain():
                return f"follow again {under}"
            case messages.NotFollowed():
                return f"not followed {under}: {message.text}"


def _named(entries):
    return " ".join(f"{each.index}.{each.term}" for each in entries)
