"""Reads and plays traces: a command, `----`, what it must bring about, and an empty line.

Lines that begin with `#` are for the reader and stand before their command. With HOCKET_REWRITE=1
in the environment a file is written anew with what happened; the difference is then to be read.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

RULE = "----"
NOTHING = "(nothing)"  # the output of a command that brings nothing about


class MalformedTrace(Exception):
    """A trace file is not as the head of this module says."""


@dataclass(frozen=True)
class Step:
    comment: str
    command: str
    expected: str

    def __str__(self) -> str:
        lines = [self.comment, self.command, RULE, self.expected]
        return "\n".join(line for line in lines if line)


def read(text: str) -> list[Step]:
    steps = []
    for block in text.split("\n\n"):
        lines = block.strip("\n").split("\n")
        comments = [line for line in lines if line.startswith("#")]
        rest = lines[len(comments) :]
        if not any(rest):
            raise MalformedTrace(f"a step without a command: {block!r}")
        if rest[0] == RULE or RULE in rest[2:]:
            raise MalformedTrace(f"a step has one command before its {RULE}: {block!r}")
        command, expected = rest[0], "\n".join(rest[2:])
        if rest[1:2] not in ([], [RULE]):
            raise MalformedTrace(f"behind the command stands {RULE}, not {rest[1]!r}")
        steps.append(Step("\n".join(comments), command, expected))
    return steps


def written(steps: list[Step]) -> str:
    return "\n\n".join(map(str, steps)) + "\n"


def play(path: Path, carry_out: Callable[[str], list[str]]) -> None:
    """Carry every command out and compare; AssertionError names the file and the command."""
    steps = read(path.read_text())
    happened = []
    for step in steps:
        try:
            lines = carry_out(step.command)
        except Exception as error:
            error.add_note(f"in {path.name}, at: {step.command}")
            raise
        happened.append(replace(step, expected="\n".join(lines) or NOTHING))
    if os.environ.get("HOCKET_REWRITE") == "1":
        path.write_text(written(happened))
        return
    for step, real in zip(steps, happened, strict=True):
        assert real.expected == step.expected, f"in {path.name}, at: {step.command}"
