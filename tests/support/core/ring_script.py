"""The stage that traces of the ring are played on: one core, commands in words, effects in words.

Everybody else is the trace itself. A node is written `30`: the node called n30, at position 30, in
its first life; `30.2` is its second. Time is in milliseconds and moves only by `wait`; jitter is
shown, not drawn. Only what a situation is about is shown: `show` says which effects are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from hocket.core.ring import events, messages
from hocket.core.ring.contact import Contact, seed
from hocket.core.ring.messages import Beacon
from hocket.core.ring.ring import Ring
from hocket.core.ring.settings import RingSettings

MS = 1_000
ROOT = "at 10"
TIMERS_SHOWN = ("stabilize", "begin again", "join", "leave")


def contact(word: str) -> Contact:
    position, _dot, life = word.partition(".")
    return Contact(int(position), f"n{position}", int(life or 1), f"at {position}")


def contacts(words: str) -> tuple[Contact, ...]:
    return tuple(contact(word) for word in words.split(",")) if words not in ("", "none") else ()


def name(who: Contact | None) -> str:
    if who is None:
        return "none"
    if not who.incarnation:
        return f"whoever is {who.address}"
    return f"{who.position}.{who.incarnation}" if who.incarnation > 1 else str(who.position)


def names(them: tuple[Contact, ...] | list[Contact]) -> str:
    return ",".join(map(name, them)) or "none"


class RingWords:
    def __init__(self) -> None:
        self.now_us = 0
        self.core = Ring(contact("0"), RingSettings())

    def carry_out(self, line: str) -> list[str]:
        words, options = [], {}
        for word in line.split():
            key, found, value = word.partition("=")
            if found:
                options[key] = value
            else:
                words.append(word)
        return self._commands[words[0]](self, *words[1:], **options)

    def _step(self, event: events.Event) -> list[str]:
        effects = self.core.step(event, self.now_us)
        lines = [self._words[type(effect)](self, effect) for effect in effects]
        return [line for line in lines if line]

    # --- commands ----------------------------------------------------------

    def _node(self, word: str, r: str = "3", root: str = "no") -> list[str]:
        settings = RingSettings(successors=int(r), stabilize_us=10_000 * MS)
        self.core = Ring(contact(word), settings, is_root=root == "yes")
        return []

    def _begin(self, *, members: str) -> list[str]:
        self._step(events.Begin(contacts(members), ROOT))
        return self._state()

    def _join(self, *, seeds: str, wait: str = "0") -> list[str]:
        known = tuple(seed(f"at {word}") for word in seeds.split(","))
        return self._step(events.Join(known, int(wait) * MS))

    def _leave(self) -> list[str]:
        return self._step(events.Leave())

    def _wait(self, duration: str) -> list[str]:
        self.now_us += int(duration) * MS
        return []

    def _due(self, timer: str, number: str = "0") -> list[str]:
        return self._step(events.Due((timer.replace("_", " "), int(number))))

    def _stalled(self) -> list[str]:
        return self._step(events.Stalled())

    def _link_lost(self, word: str) -> list[str]:
        return self._step(events.LinkLost(contact(word)))

    def _find(self, key: str) -> list[str]:
        return self._step(events.Find(1, int(key)))

    def _registry(
        self, version: str, members: str, sender: str = "", request: str = "0"
    ) -> list[str]:
        who = contact(sender) if sender else None
        changed = events.RegistryChanged(int(version), contacts(members), who, int(request))
        return self._step(changed)

    def _hear(self, word: str, kind: str, *, life: str = "1", **fields: str) -> list[str]:
        message = self._said[kind](self, contact(word), **fields)
        return self._step(events.Heard(contact(word), int(life), message))

    def _state(self) -> list[str]:
        core = self.core
        asking = ", asking" if core.asking else ""
        lists = f"successors {names(core.successors)}; predecessor {name(core.predecessor)}"
        return [f"{core.standing}{asking}: {lists}"]

    # --- what others say ---------------------------------------------------

    def _beacon(self, number: str) -> Beacon:
        epoch, _dot, rest = number.partition(".")
        version, _dot, registry = rest.partition(".")
        return Beacon(int(epoch), int(version or 0), int(registry or 0), ROOT)

    _said: ClassVar[dict[str, Callable[..., messages.Message]]] = {
        "GetState": lambda _self, _who, request: messages.GetState(int(request)),
        "StateIs": lambda self, _who, request, successors, predecessor="none", beacon="0": (
            messages.StateIs(
                int(request),
                next(iter(contacts(predecessor)), None),
                contacts(successors),
                self._beacon(beacon),
            )
        ),
        "Busy": lambda _self, _who, request: messages.Busy(int(request)),
        "Gone": lambda self, _who, request, was: messages.Gone(
            int(request), contact(was), self._beacon("0")
        ),
        "JoinAt": lambda _self, who, request: messages.JoinAt(int(request), who),
        "Welcome": lambda self, _who, request, successors: messages.Welcome(
            int(request), contacts(successors), self._beacon("0")
        ),
        "NotMine": lambda _self, _who, request, nearer: messages.NotMine(
            int(request), contact(nearer)
        ),
        "Notify": lambda _self, who: messages.Notify(who),
        "Ping": lambda _self, _who, request, about="none": messages.Ping(
            int(request), next(iter(contacts(about)), None)
        ),
        "Pong": lambda self, _who, request, alive="yes", beacon="0": messages.Pong(
            int(request), alive == "yes", self._beacon(beacon)
        ),
        "GetCloser": lambda _self, _who, request, key: messages.GetCloser(
            int(request), int(key), 4
        ),
        "CloserAre": lambda _self, _who, request, preceding="none", owners="none": (
            messages.CloserAre(int(request), contacts(preceding), contacts(owners))
        ),
        "Leaving": lambda _self, who: messages.Leaving(who, None, ()),
        "BeaconIs": lambda self, _who, beacon, limit: messages.BeaconIs(
            self._beacon(beacon), int(limit)
        ),
        "Register": lambda _self, who, request: messages.Register(int(request), who),
        "Deregister": lambda _self, who, request: messages.Deregister(int(request), who),
        "GetRegistry": lambda _self, _who, request: messages.GetRegistry(int(request)),
        "AskRoot": lambda self, _who, request, small="no", beacon="1": messages.AskRoot(
            int(request), self._beacon(beacon), small == "yes"
        ),
        "RegistryIs": lambda self, _who, request, beacon, members, founders="none": (
            messages.RegistryIs(
                int(request),
                self._beacon(beacon),
                len(contacts(members)),
                contacts(members),
                contacts(founders),
            )
        ),
    }

    # --- effects in words --------------------------------------------------

    def _send(self, effect: events.Send) -> str:
        message = effect.message
        return f"to {name(effect.to)}: {type(message).__name__}{self._fields(message)}"

    def _fields(self, message: messages.Message) -> str:
        words = []
        for field in message.__slots__:
            value = getattr(message, field)
            if isinstance(value, Beacon):
                value = f"{value.epoch}.{value.number}.{value.registry}"
            elif isinstance(value, Contact) or value is None:
                value = name(value)
            elif isinstance(value, tuple):
                value = names(value)
            elif isinstance(value, bool):
                value = "yes" if value else "no"
            words.append(f" {field}={value}")
        return "".join(words)

    def _arm(self, effect: events.Arm) -> str:
        timer, number = effect.timer
        if timer not in TIMERS_SHOWN:
            return ""
        jitter = f" to {(effect.after_us + effect.jitter_us) // MS}" if effect.jitter_us else ""
        return f"timer {timer}{f' {number}' if number else ''}: {effect.after_us // MS}{jitter} ms"

    def _located(self, effect: events.Located) -> str:
        return f"{effect.key} is at {names(effect.owners)}; route {names(effect.route)}"

    _words: ClassVar[dict[type, Callable[..., str]]] = {
        events.Send: _send,
        events.Arm: _arm,
        events.Disarm: lambda _self, _effect: "",
        events.Located: _located,
        events.NotLocated: lambda _self, effect: f"{effect.key} was not found",
        events.Enrol: lambda _self, effect: f"enrol {name(effect.who)}",
        events.Strike: lambda _self, effect: f"strike {name(effect.who)}",
        events.Joined: lambda _self, _effect: "joined",
        events.Left: lambda _self, _effect: "left",
        events.BeginAgain: lambda _self, effect: (
            "begin again by way of " + ", ".join(each.address for each in effect.seeds)
        ),
        events.NeighboursChanged: lambda self, _effect: f"now {self._state()[0]}",
        events.Died: lambda _self, effect: f"died: {name(effect.contact)}",
    }
    _commands: ClassVar[dict[str, Callable[..., list[str]]]] = {
        "node": _node,
        "begin": _begin,
        "join": _join,
        "leave": _leave,
        "wait": _wait,
        "due": _due,
        "stalled": _stalled,
        "link_lost": _link_lost,
        "find": _find,
        "registry": _registry,
        "hear": _hear,
        "state": _state,
    }
