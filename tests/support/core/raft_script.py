"""The stage that traces of Raft are played on: one node `a`, commands in words, effects in words.

    node abc                  `a` begins, in a group with the voters a, b and c; options:
                              learners=d, term=2, vote=b, log=1x3+2 (terms; all durable), start=4.1
    heard b AskVote term=2    a message comes; its fields as options, or as a word if they are true
    wait 2s                   time passes; nothing else happens
    due election              a timer runs out
    state                     what the node knows

An entry is `index.term`, a configuration `ab&abc`: the voters, and those that are being left.
"""

from __future__ import annotations

from dataclasses import MISSING, fields

from hocket.core.raft import events, messages
from hocket.core.raft.events import Timer
from hocket.core.raft.group import Host, Saved
from hocket.core.raft.membership import Configuration, Mode
from hocket.core.raft.raft import Raft
from hocket.core.raft.settings import RaftSettings
from tests.support.core.raft_cases import terms_of, words_of
from tests.support.core.raft_node import Entry, runs_of

UNITS = {"s": 1_000_000, "ms": 1_000}


def time_us(word):
    number = word.rstrip("ms")
    return int(number) * UNITS[word[len(number) :]]


def configuration(word):
    """`ab&abc`, with learners behind a slash: `ab/d`."""
    voters, _, learners = word.partition("/")
    voters, _, outgoing = voters.partition("&")
    return Configuration(tuple(voters), tuple(outgoing), tuple(learners))


def place(word):
    index, term = map(int, word.split("."))
    return index, term


def value_of(name, word):
    match name:
        case "runs":
            return tuple(place(each) for each in word.split(","))
        case "changes":
            pairs = (each.split(":") for each in word.split(","))
            return tuple((int(index), configuration(conf)) for index, conf in pairs)
        case "configuration":
            return configuration(word)
    if word == "none":
        return None
    return int(word) if word.isdecimal() else word


class Script:
    def carry_out(self, line):
        words, options = [], {}
        for word in line.split():
            name, found, value = word.partition("=")
            if found:
                options[name] = value
            else:
                words.append(word)
        command = getattr(self, "_" + words[0].replace("-", "_"))
        return command(*words[1:], **options) or []

    def _node(self, voters, learners="", term="0", vote="", log="", start="0.0", life="1", **more):
        self.now_us = 100_000_000
        index, start_term = place(start)
        entries = [Entry(0, 0)] * index
        entries += [Entry(each, 0) for each in terms_of(log.replace("+", " "))]
        settings = RaftSettings(**{name: int(value) for name, value in more.items()})
        saved = Saved(
            Configuration(tuple(voters), learners=tuple(learners)), int(term), vote, index,
            start_term, runs_of(entries, index + 1),
        )  # fmt: skip
        self.raft = Raft(Host("a", int(life), settings), 1, saved)
        return self._step(events.Started())

    def _heard(self, sender, kind, *flags, **options):
        message = getattr(messages, kind)
        values = {name: value_of(name, word) for name, word in options.items()}
        values.update(dict.fromkeys(flags, True))
        if kind == "VoteIs":
            values.setdefault("granted", False)
            values.setdefault("asked", values["term"])
        return self._step(events.Heard(sender, message(**values)))

    def _wait(self, word):
        self.now_us += time_us(word)

    def _due(self, timer):
        return self._step(events.Due(Timer(timer)))

    def _append(self, last):
        return self._step(events.Appended(int(last)))

    def _flushed(self, word):
        return self._step(events.Flushed(*place(word)))

    def _compacted(self, index):
        return self._step(events.Compacted(int(index), self.raft.group.configuration))

    def _stalled(self, word):
        return self._step(events.Stalled(time_us(word)))

    def _lost(self, peer, gone=""):
        return self._step(events.LinkLost(peer, bool(gone)))

    def _propose(self, voters, learners="", mode="auto"):
        voters = voters.replace("_", "")
        return self._step(events.Propose(tuple(voters), tuple(learners), Mode(mode)))

    def _leave(self):
        return self._step(events.Propose(None))

    def _read(self, token):
        return self._step(events.ReadAsked(token))

    def _transfer(self, to):
        return self._step(events.Transfer(to))

    def _state(self):
        group, outline = self.raft.group, self.raft.group.outline
        return [
            f"{group.role.value} in term {group.term}, voted for {group.vote or 'nobody'}, follows "
            f"{group.leader or 'nobody'}",
            f"log up to {outline.last}.{outline.last_term}, flushed {outline.flushed}, committed "
            f"{group.commit}, members {words_of(group.configuration)}",
        ]

    def _step(self, event):
        return [told(effect) for effect in self.raft.step(event, self.now_us)]


def told(effect):
    match effect:
        case events.Send():
            return f"to {effect.to}: {said(effect.message)}"
        case events.SendEntries():
            what = f"{effect.first}..{effect.last}" if effect.first <= effect.last else "nothing"
            behind = f"{effect.first - 1}.{effect.previous_term}"
            return (
                f"to {effect.to}: entries {what} behind {behind}, term={effect.term} "
                f"commit={effect.commit}"
            )
        case events.Arm():
            jitter = f" + {effect.jitter_us // 1000} ms" if effect.jitter_us else ""
            return f"arm {effect.timer.value}: {effect.after_us // 1000} ms{jitter}"
        case events.Refused():
            return f"refuse {said(effect.asked)}: {effect.reason}"
    return said(effect)


def said(thing):
    words = [type(thing).__name__]
    for each in fields(thing):
        value = getattr(thing, each.name)
        if value is True:
            words.append(each.name)
        elif isinstance(value, Configuration):
            words.append(f"{each.name}={words_of(value).replace(' ', ',')}")
        elif isinstance(value, Mode):
            words.append(value.value)
        elif value is not False and (each.default is MISSING or value != each.default):
            words.append(f"{each.name}={value if value != '' else 'nobody'}")
    return " ".join(words)
