"""Contexts: brokers by name, in a file of the user's own, so that no command has to name one.

    {"current": "prod", "contexts": {"prod": {"server": "hockets://...", "token_file": "..."}}}

Rule 1: a token is never in the file, only the path of the file that has it.
Rule 2: the file is replaced as a whole, so that whoever reads it sees one version, and only its
owner can read it. Whoever changes it holds a lock on its directory, so that of two changes at the
same time none is lost.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import click

from hocket.cli.exits import NOT_FOUND
from hocket.errors import HocketError
from hocket.model import check_name

VARIABLE = "HOCKET_CONTEXT"


class NoSuchContext(click.ClickException):
    exit_code = NOT_FOUND


@dataclass(frozen=True, slots=True)
class Context:
    """How to reach one broker. Paths are absolute; what is empty is not said."""

    server: str
    token_file: str = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""

    def said(self) -> dict[str, str]:
        return {name: value for name, value in asdict(self).items() if value}


_NAMES = {each.name for each in fields(Context)}


@dataclass(slots=True)
class Contexts:
    """All of them, by name; `current` is the one that is used unless another is named."""

    current: str = ""
    contexts: dict[str, Context] = field(default_factory=dict)

    def get(self, name: str, chosen_by: str = "") -> Context:
        """`chosen_by` says what named it, if that was not an argument of the command."""
        found = self.contexts.get(name)
        if found is None:
            raise NoSuchContext(self._unknown(name, chosen_by))
        return found

    def _unknown(self, name: str, chosen_by: str) -> str:
        said = f"there is no context '{name}'"
        if chosen_by:
            said += f", which {chosen_by} names"
        near = get_close_matches(name, self.contexts, n=1)
        if near:
            return f"{said}; did you mean '{near[0]}'?"
        if self.contexts:
            return f"{said}; there are: {', '.join(sorted(self.contexts))}"
        return f"{said}, nor any other; make one with: hocket context add {name} --server URL"


def path() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME", "")
    # The specification of these directories wants a relative one to be ignored.
    home = Path(base) if os.path.isabs(base) else Path.home() / ".config"
    return home / "hocket" / "contexts.json"


def load() -> Contexts:
    try:
        file = path()
        data = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except RuntimeError:  # a user without a home has no contexts
        return Contexts()
    except OSError as error:
        raise click.ClickException(f"cannot read the contexts: {error}") from error
    try:
        return _parsed(json.loads(data))
    except (ValueError, HocketError) as error:
        raise click.ClickException(
            f"'{file}' is no file of contexts: {error}; mend it, or remove it and add the contexts "
            "again with: hocket context add"
        ) from error


def known_names() -> list[str]:
    """For shells to complete: none if the file cannot be read."""
    try:
        return sorted(load().contexts)
    except click.ClickException:
        return []


def _parsed(found: Any) -> Contexts:
    if not isinstance(found, dict) or not isinstance(found.get("contexts"), dict):
        raise ValueError("it has no 'contexts'")  # noqa: TRY004 - the file is wrong, not a type
    contexts: dict[str, Context] = {}
    for name, values in found["contexts"].items():
        check_name(name, "the name of a context")
        if not isinstance(values, dict) or not all(isinstance(v, str) for v in values.values()):
            raise ValueError(f"'{name}' is not an object of texts")
        unknown = sorted(values.keys() - _NAMES)
        if unknown or not values.get("server"):
            wrong = f"has the unknown field '{unknown[0]}'" if unknown else "has no 'server'"
            raise ValueError(f"'{name}' {wrong}")
        contexts[name] = Context(**values)
    current = found.get("current") or ""
    if current and current not in contexts:
        raise ValueError(f"'current' is {current!r}, which is none of them")
    return Contexts(current, contexts)


@contextmanager
def changing() -> Iterator[Contexts]:
    """All of them, to be changed; they are saved at the end of the block, unless it raises."""
    try:
        directory = path().parent
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (OSError, RuntimeError) as error:
        raise _cannot_write(error) from error
    try:
        with suppress(OSError):  # some file systems have no locks: then the last change wins
            fcntl.flock(lock, fcntl.LOCK_EX)
        found = load()
        yield found
        _save(found)
    finally:
        os.close(lock)


def _cannot_write(error: Exception) -> click.ClickException:
    return click.ClickException(f"cannot write the contexts: {error}")


def _save(contexts: Contexts) -> None:
    """Replace the file. If that fails, the file is as it was."""
    content = {
        "current": contexts.current or None,
        "contexts": {name: each.said() for name, each in contexts.contexts.items()},
    }
    try:
        file = path()
        with NamedTemporaryFile("w", dir=file.parent, prefix=".contexts-", delete=False) as new:
            try:  # its mode is 0600 from the start
                new.write(json.dumps(content, indent=2) + "\n")
                new.flush()
                os.fsync(new.fileno())
                os.replace(new.name, file)
            except BaseException:
                with suppress(OSError):
                    os.unlink(new.name)
                raise
    except (OSError, RuntimeError) as error:
        raise _cannot_write(error) from error
