"""`hocket serve --admin-token-file FILE`: the first admin of a broker that has no users yet.

The file has the token, or gets one. It is written before the user is made: if the broker dies in
between, the next start finds the token there and makes its user. Once there is a user the file is
not looked at any more.
Rule: a token is never printed or logged, nor quoted in an error.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from hocket.node.broker import Broker

NAME = "admin"  # the user of a token that is made here
TOKEN_BYTES_MAX = 4096
MAKE_ONE = "delete the file, and the broker writes a token into it"


def check(path: Path) -> str | None:
    """Raise ClickException if `make_first_admin` would, as far as that can be told by now.

    Returns the token, if there is one: a pipe (`<(...)` of a shell) can be read only once.
    """
    token = _read(path)
    if token is None and not os.access(path.parent, os.W_OK | os.X_OK):
        raise click.ClickException(
            f"cannot write the admin's token to '{path}': the directory '{path.parent}' is not "
            "there, or may not be written to"
        )
    return token


def make_first_admin(path: Path, broker: Broker, token: str | None = None) -> bool:
    """Make the admin, if there is no user yet. Returns whether the token was made here, too.

    `token` is what `check` has found in the file.
    """
    if broker.node.access_is_on:
        return False
    token = token or _read(path)
    made = token is None
    if token is None:
        from hocket.node.identity.tokens import make_token

        token = make_token(NAME, os.urandom)
        _write(path, token)
    broker.make_first_admin(token)
    return made


def _read(path: Path) -> str | None:
    """The token in the file; None if there is no file, or nothing in it."""
    from hocket.node.identity.tokens import is_token

    try:
        with path.open("rb") as file:
            _refuse_if_open(path, os.fstat(file.fileno()))
            data = file.read(TOKEN_BYTES_MAX)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise click.ClickException(
            f"cannot read the admin's token from '{path}': {error.strerror}"
        ) from error
    try:
        token = data.decode("ascii").strip()
    except UnicodeDecodeError:
        token = "?"  # no token either; its bytes are not shown
    if token and not is_token(token):
        raise click.ClickException(
            f"'{path}' holds no token: a token is hocket_NAME_SECRET, and the secret is 32 random "
            f"bytes in URL-safe base64; {MAKE_ONE}"
        )
    return token or None


def _refuse_if_open(path: Path, found: os.stat_result) -> None:
    """As ssh does with a key: others must not read a file of ours. Not ours is not ours to mend
    (a secret that is mounted into a container, say)."""
    if found.st_uid == os.geteuid() and found.st_mode & 0o077:
        raise click.ClickException(
            f"the permissions {found.st_mode & 0o777:04o} of '{path}' are too open: it is the "
            f"admin's token, and others must not read it. Run: chmod 600 {shlex.quote(str(path))}"
        )


def _write(path: Path, token: str) -> None:
    """Into a file that only its owner can read, from the start, and that a crash does not empty."""
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with open(os.open(path, flags, 0o600), "wb") as file:
            os.fchmod(file.fileno(), 0o600)  # if the file was there, and empty
            file.write(token.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)
    except OSError as error:
        raise click.ClickException(
            f"cannot write the admin's token to '{path}': {error.strerror}"
        ) from error
