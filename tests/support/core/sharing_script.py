"""The stage that traces of shared indexes are played on: commands in words, effects in words.

One dispatcher with its partitions and their logs. Reads and scans are answered by commands, so that
what happens meanwhile can be told; time is in milliseconds and moves only by `wait`. A record's key
is the letter it is appended with, `.` for none.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar

from hocket.core.sharing import events
from hocket.core.sharing.dispatcher import Dispatcher
from hocket.core.sharing.leases import Leases
from hocket.core.sharing.state import SUSPECT, ShareChange, ShareSettings, ShareState

_RANGE = re.compile(r"(?:(\d+):)?(\d+)(?:\.\.(\d+))?")
Triple = tuple[int, int, int]


class SharingStage:
    def __init__(self) -> None:
        self._reset("shared", ShareSettings())

    def _reset(self, mode: str, settings: ShareSettings) -> None:
        self.mode, self.settings = mode, settings
        self.now_ms = 0
        self.keys: dict[int, list[int]] = {}
        self.states: dict[int, ShareState] = {}
        self.token = 0
        self.last_consumer = 0
        self.numbers: dict[str, int] = {}
        self.sharing = Dispatcher(mode)

    def carry_out(self, line: str) -> list[str]:
        words, options = [], {}
        for word in line.split():
            name, found, value = word.partition("=")
            if found:
                options[name] = int(value) if value.isdecimal() else value
            else:
                words.append(word)
        return self._commands[words[0]](self, *words[1:], **options)

    @property
    def now_us(self) -> int:
        return self.now_ms * 1_000

    # --- the index -------------------------------------------------------------------------------

    def _index(
        self, mode: str, lease: int = 30_000, deliveries: int = 5, failover: str = "safe"
    ) -> list[str]:
        self._reset(mode, ShareSettings(lease * 1_000, deliveries, failover))
        return []

    def _partition(self, number: str, records: str = "") -> list[str]:
        at = int(number)
        self.keys[at] = [_hash(letter) for letter in str(records)]
        self.states[at] = ShareState(0, self.settings)
        return self._open(at)

    def _open(self, number: int) -> list[str]:
        state = self.states[number]
        leases = Leases(state, end=len(self.keys[number]), now_us=self.now_us)
        state.apply(ShareChange())
        return self._step(events.PartitionAdded(number, leases))

    def _append(self, number: str, records: str) -> list[str]:
        at = int(number)
        self.keys[at] += [_hash(letter) for letter in records]
        return self._step(events.Advanced(at, 0, len(self.keys[at])))

    def _log_start(self, number: str, offset: str) -> list[str]:
        at = int(number)
        self.states[at].log_start_moved(int(offset))
        return self._step(events.Advanced(at, int(offset), len(self.keys[at])))

    def _put(self, number: str, offset: str) -> list[str]:
        return self._step(events.Reset(int(number), int(offset)))

    def _buried(self, what: str) -> list[str]:
        return self._step(events.DeadLettered(*_triple(what)))

    def _revive(self, number: str, *pairs: str) -> list[str]:
        """`revive 0 3:7`: message 3 of partition 0, by the dead letter at offset 7."""
        letters = [(int(offset), int(letter)) for offset, letter in (p.split(":") for p in pairs)]
        return self._step(events.Revive(int(number), letters, 9, 1))

    def _restart(self) -> list[str]:
        self.sharing, self.numbers = Dispatcher(self.mode), {}
        return [line for number in self.states for line in self._open(number)]

    def _close(self) -> list[str]:
        return self._step(events.Closing())

    def _wait(self, milliseconds: str) -> list[str]:
        self.now_ms += int(milliseconds)
        return self._step(events.Tick(self.now_us))

    def _state(self) -> list[str]:
        lines = []
        for number, state in self.states.items():
            _, counts = state.maps()
            suspects = [state.start + at for at, mark in enumerate(state.marks()) if mark & SUSPECT]
            lines.append(
                f"{number}: settled below {state.start} and {state.ahead()} more, delivered "
                f"{list(counts.rstrip(bytes(1)))}{', clean' if state.clean else ''}"
                f"{f', suspect {suspects}' if suspects else ''}"
            )
        return lines

    # --- consumers -------------------------------------------------------------------------------

    def _join(
        self,
        name: str,
        *held: str,
        messages: int = 10,
        bytes: int = 10_000,  # noqa: A002
        of: str = "",
        tells: int = 0,
    ) -> list[str]:
        self.last_consumer += 1
        partitions = tuple(int(number) for number in str(of).split(",") if number)
        effects = self.sharing.step(
            events.Joined(
                self.last_consumer,
                name.encode().ljust(16),
                partitions or tuple(self.keys),
                bytes,
                messages,
                [_triple(word) for word in held],
                self.now_us,
                bool(tells),
            )
        )
        names = self._names()
        self.numbers[name] = self.last_consumer
        return [line for effect in effects for line in self._said(effect, names)]

    def _leave(self, name: str) -> list[str]:
        return self._step(events.Left(self.numbers.pop(name), True, self.now_us))

    def _vanish(self, name: str) -> list[str]:
        return self._step(events.Left(self.numbers.pop(name), False, self.now_us))

    def _credit(
        self,
        name: str,
        messages: str,
        bytes: int = 10_000,  # noqa: A002
        handed: str = "",
    ) -> list[str]:
        """`handed=0:2:7`: of partition 0, message 7 of the second delivery waits next."""
        told = [tuple(map(int, each.split(":"))) for each in handed.split(",") if each]
        return self._step(
            events.CreditGiven(self.numbers[name], bytes, int(messages), self.now_us, told)
        )

    def _settle(
        self, action: str, name: str, *what: str, delay: int = 0, why: str = ""
    ) -> list[str]:
        self.token += 1
        return self._step(
            events.Settle(
                self.numbers[name],
                self.token,
                action,
                [_triple(word) for word in what],
                delay * 1_000,
                why,
                self.now_us,
            )
        )

    # --- reading ---------------------------------------------------------------------------------

    def _read(self, fetch: str, to: int = -1, bytes: int = 100) -> list[str]:  # noqa: A002
        under_way = self.sharing._fetches[int(fetch)]
        end = to if to >= 0 else under_way.runs[-1][1]
        return self._step(events.Fetched(int(fetch), end, bytes, self.now_us))

    def _failed(self, fetch: str) -> list[str]:
        return self._step(events.FetchFailed(int(fetch)))

    def _damaged(self, fetch: str, what: str) -> list[str]:
        _, start, end = _triple(what)
        return self._step(events.FetchDamaged(int(fetch), start, end, "damaged"))

    def _scanned(self, what: str) -> list[str]:
        number, start, end = _triple(what)
        return self._step(events.Scanned(number, start, self.keys[number][start:end]))

    # --- effects in words ------------------------------------------------------------------------

    def _step(self, event: events.Event) -> list[str]:
        names = self._names()
        return [line for effect in self.sharing.step(event) for line in self._said(effect, names)]

    def _names(self) -> dict[int, str]:
        return {
            self.last_consumer + 1: "the new one",
            **{number: name for name, number in self.numbers.items()},
        }

    def _said(self, effect: events.Effect, names: dict[int, str]) -> list[str]:
        names = {**names, **{number: name for name, number in self.numbers.items()}}
        if isinstance(effect, events.Fetch):
            what = _range(effect.partition, effect.start, effect.end)
            return [f"read {what} for {names[effect.consumer]}, as {effect.fetch}"]
        if isinstance(effect, events.Scan):
            return [f"scan {_range(effect.partition, effect.start, effect.end)}"]
        if isinstance(effect, events.Send):
            sent = " ".join(
                f"{_range(effect.partition, start, end)} ({count})"
                for start, end, count in effect.ranges
            )
            return [f"send {names[effect.consumer]} {sent}{', alone' if effect.alone else ''}"]
        if isinstance(effect, events.Record):
            self.states[effect.partition].apply(ShareChange.decode(effect.change.encode()))
            said = effect.change.encode()
            for row in said.get("holders", ()):
                row[0] = bytes.fromhex(row[0]).decode().rstrip()
            return [f"log {effect.partition}: {said}"]
        if isinstance(effect, events.Answer):
            refused = " ".join(_range(*each) for each in effect.refused)
            when = f"after {effect.waits_for} of the log" if effect.waits_for else "at once"
            return [f"answer {names[effect.consumer]} {when}; refused: {refused or 'nothing'}"]
        if isinstance(effect, events.Revived):
            ranges = " ".join(_range(0, *each).partition(":")[2] for each in effect.ranges)
            return [f"revived: {ranges or 'nothing'}"]
        return [f"end the older {names[effect.consumer]}: {effect.why}"]

    _commands: ClassVar[dict[str, Callable[..., list[str]]]] = {
        "index": _index,
        "partition": _partition,
        "append": _append,
        "log-start": _log_start,
        "put": _put,
        "buried": _buried,
        "revive": _revive,
        "restart": _restart,
        "close": _close,
        "wait": _wait,
        "state": _state,
        "join": _join,
        "leave": _leave,
        "vanish": _vanish,
        "credit": _credit,
        "read": _read,
        "failed": _failed,
        "damaged": _damaged,
        "scanned": _scanned,
        **{
            action: (lambda self, *words, action=action, **options:
                     self._settle(action, *words, **options))
            for action in ("ack", "nack", "extend", "reject", "release")
        },
    }  # fmt: skip


def _hash(letter: str) -> int:
    return 0 if letter == "." else (ord(letter) - ord("a")) * 2_500 + 1


def _triple(word: str) -> Triple:
    """`1:4..9` is partition 1, offsets 4 to 8; `7` is offset 7 of partition 0."""
    found = _RANGE.fullmatch(word)
    assert found is not None, f"{word!r} is not partition:start..end"
    number, start, end = found.groups()
    return int(number or 0), int(start), int(end or int(start) + 1)


def _range(number: int, start: int, end: int) -> str:
    return f"{number}:{start}" + (f"..{end}" if end - start > 1 else "")
