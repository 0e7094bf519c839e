"""A file that gets a token, readable by its owner alone.

The file is made, with room for a token in it, before the broker is asked for one: a token that
cannot be written is a token lost, and a user that nobody can be. If the broker refuses, the file is
gone again. A file that is to be replaced stays as it is until the token is written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

ROOM = 512  # bytes; a token is shorter
MODE = 0o600


def token_file_options(command: F) -> F:
    """Add `--out` and `--force`."""
    options = [
        click.option(
            "--out", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
            help="Write the token to this new file, which only you can read, and print nothing.",
        ),
        click.option("--force", is_flag=True, help="With --out: replace the file if it exists."),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@contextmanager
def opened(path: Path | None, *, force: bool) -> Iterator[Callable[[str], None] | None]:
    """What writes the token to the file; None if there is none. Raises if it cannot be made."""
    if path is None:
        if force:
            raise click.UsageError("--force is about a file: add --out FILE.")
        yield None
        return
    made = path.with_name(f".{path.name}.{os.getpid()}") if force else path
    try:
        descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE)
    except FileExistsError:
        raise click.ClickException(
            f"'{made}' exists, and nothing was done; name another file, or replace it with --force"
        ) from None
    except OSError as error:
        raise _cannot_write(path, error) from error
    left: Path | None = made  # to be removed, unless the token is in it

    def write(token: str) -> None:
        nonlocal left
        data = f"{token}\n".encode()
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))
        os.fsync(descriptor)
        if force:
            os.replace(made, path)
        left = None

    try:
        try:
            os.fchmod(descriptor, MODE)  # whatever the umask says
            os.pwrite(descriptor, b" " * ROOM, 0)
            os.fsync(descriptor)
        except OSError as error:
            raise _cannot_write(path, error) from error
        yield write
    finally:
        os.close(descriptor)
        if left is not None:
            with suppress(OSError):
                os.unlink(left)


def _cannot_write(path: Path, error: OSError) -> click.ClickException:
    return click.ClickException(
        f"cannot write '{path}', and nothing was done: {error.strerror or error}"
    )
