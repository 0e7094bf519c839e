"""What is wrong with a pipeline, and where: in which file, on which line.

Spark's errors are long, and they name a flow or a position within one statement. Here they become
one line that begins with the file and the line, as compilers write it.
"""

from __future__ import annotations

import builtins
import re
import traceback
from dataclasses import dataclass, field
from pathlib import Path

from hocket import errors
from hocket.errors import HocketError

WORDS_MAX = 400  # of an error of Spark's; the rest is in the log

POSITION = re.compile(r"\(line (\d+), pos (\d+)\)")
_OUR_ERROR = re.compile(r"^(hocket\.[a-z_.]+\.)?([A-Z]\w+): (.+)$")
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]\s*(.+)", re.DOTALL)
_STATE = re.compile(r"\s*SQLSTATE: \w+")
_DETAILS = re.compile(
    r"^(=== Streaming Query|Identifier:|Current |Thread State:|\s+at |\s*\.\.\. \d+ more).*\n?",
    re.MULTILINE,
)
_CAUSE = re.compile(r"^(?:Caused by: )?[\w.$]+Exception: (.+)$", re.MULTILINE)
_FLOW = re.compile(r"[Ff]low '?`?([\w.`]+?)`?'?[ :]")


class PipelineFault(HocketError):
    """A pipeline cannot be run as it is written, or an update of it has failed."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands; `line` counts from 1, and 0 is the file as a whole."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(slots=True)
class Places:
    """Where the parts of one pipeline are declared; `directory` is the pipeline's."""

    directory: Path
    flows: dict[str, Place] = field(default_factory=dict)
    outputs: dict[str, Place] = field(default_factory=dict)

    def relative(self, path: str | Path) -> str:
        found = Path(path)
        try:
            return str(found.resolve().relative_to(self.directory))
        except ValueError:
            return str(path)

    def of_traceback(self, error: BaseException) -> Place | None:
        """The last line of the pipeline's own files that the error passed through."""
        frames = traceback.extract_tb(error.__traceback__)
        for frame in reversed(frames):
            if self.is_ours(frame.filename):
                return Place(self.relative(frame.filename), frame.lineno or 0)
        return None

    def of_syntax(self, error: SyntaxError) -> Place | None:
        if error.filename is None or not self.is_ours(error.filename):
            return None
        return Place(self.relative(error.filename), error.lineno or 0)

    def is_ours(self, file: str) -> bool:
        return Path(file).resolve().is_relative_to(self.directory)

    def of_flow(self, words: str) -> Place | None:
        """The place of the flow that an error of Spark's names."""
        for found in _FLOW.finditer(words):
            name = found[1].replace("`", "").rpartition(".")[2]
            place = self.flows.get(name) or self.outputs.get(name)
            if place is not None:
                return place
        return None


def fault(error: BaseException, places: Places, place: Place | None = None) -> PipelineFault:
    """The error as one line; `place` is where it is if the error itself does not say."""
    if isinstance(error, PipelineFault):  # of a call in the pipeline's own files
        place = places.of_traceback(error)
        return error if place is None else PipelineFault(f"{place}: {error}")
    words = str(error)
    if isinstance(error, SyntaxError):
        place, words = places.of_syntax(error) or place, error.msg
    else:
        place = places.of_traceback(error) or places.of_flow(words) or place
    if place is not None and place.file.endswith(".sql") and (found := POSITION.search(words)):
        place = Place(place.file, max(place.line, 1) + int(found[1]) - 1)
    said = plain(words) or type(error).__name__
    return PipelineFault(f"{place}: {said}" if place is not None else said)


def plain(words: str) -> str:
    """Spark's words without what only Spark's developers read; one line."""
    words = _DETAILS.sub("", words)
    for line in reversed(words.splitlines()):
        ours = _OUR_ERROR.match(line.strip())
        if ours and (ours[1] or _is_python_s(ours[2])):
            return _shortened(ours[3])
    conditions = list(_CONDITION.finditer(words.split("== SQL", maxsplit=1)[0]))
    found = conditions[-1] if conditions else None
    causes = _CAUSE.findall(words)
    text = f"{found[2]} ({found[1]})" if found else causes[-1] if causes else words
    return _shortened(_STATE.sub("", text.split("JVM stacktrace")[0]))


def _is_python_s(name: str) -> bool:
    """Whether it is an error that Python raised: ours, a builtin one, or one of a library."""
    return name in errors.__dict__ or name.endswith("Error") or hasattr(builtins, name)


def _shortened(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= WORDS_MAX else f"{words[:WORDS_MAX]}..."
