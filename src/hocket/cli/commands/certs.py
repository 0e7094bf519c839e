"""`hocket certs ...`: makes certificates for TLS, signed by an authority of its own."""

from __future__ import annotations

import ipaddress
import os
import re
import shlex
import socket
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import click

from hocket.cli.command import Command, Group
from hocket.cli.parameters import Checked
from hocket.errors import BadName
from hocket.model import check_name

if TYPE_CHECKING:
    from hocket.cli.authority import Authority, Pair

HOSTS = ("localhost", "127.0.0.1", "::1")
AUTHORITY, BROKER = "ca", "server"
AUTHORITY_NAME = "Hocket development authority"
COMMON_NAME_MAX = 64  # characters, by the standard
NODE_NAME_REST = len("node ")  # of a certificate's name, beside the store's id
_HOST = re.compile(r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?\Z")


def default_directory() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "hocket" / "certs"


def _user(name: str) -> str:
    check_name(name, "a user's name")
    if len(name) > COMMON_NAME_MAX:
        raise BadName(
            f"a certificate names at most {COMMON_NAME_MAX} characters, and {name[:80]!r} has "
            f"{len(name)}; give this user a token instead"
        )
    return name


def _store_id(text: str) -> str:
    check_name(text, "a store's id")
    if NODE_NAME_REST + len(text) > COMMON_NAME_MAX:
        raise BadName(f"a store's id of {len(text)} characters does not fit into a certificate")
    return text


def _host(name: str) -> str:
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        if _HOST.match(name):
            return name
    raise BadName(f"a host is a name or an address, without a port, not {name!r}")


directory_option = click.option(
    "--directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
    help="The directory of the certificates. [default: hocket/certs in the user's configuration]",
)  # fmt: skip


@click.group(
    cls=Group,
    examples="""
$ hocket certs init --host broker.example.org
$ hocket certs client alice
$ hocket certs node --data ./data
""",
)
def certs() -> None:
    """Make certificates for TLS, signed by an authority of your own.

    For development, and for installations that have no other authority.
    """


@certs.command(
    "init",
    cls=Command,
    examples="""
$ hocket certs init
$ hocket certs init --host broker.example.org --host 10.0.0.7
$ hocket certs init --directory ./certs
""",
)
@directory_option
@click.option(
    "--host", "hosts", metavar="NAME", multiple=True, type=Checked("host", _host),
    help="A further name or address by which clients reach the broker; may be repeated.",
)  # fmt: skip
def init(directory: Path | None, hosts: tuple[str, ...]) -> None:
    """Make an authority and a certificate for a broker.

    The certificate is good for localhost, this machine's name, and every --host. An authority that
    is there already is used; nothing is overwritten.
    """
    crypto = _crypto()
    where = _directory(directory)
    broker = crypto.Pair.named(where, BROKER)
    _refuse_to_overwrite(broker)
    names = dict.fromkeys((*HOSTS, *_own_name(), *hosts))
    try:
        where.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = _loaded(where) or _created(where)
        authority.issue(broker, "hocket broker", crypto.SERVER, names)
    except OSError as error:
        raise _unusable(where, error) from error
    click.echo(f"made a certificate for {', '.join(names)} in {where}")
    _say_next(where, broker, _reaching(where))


@certs.command("client", cls=Command, examples="\n$ hocket certs client alice\n")
@click.argument("name", type=Checked("name", _user))
@directory_option
def client(name: str, directory: Path | None) -> None:
    """Make a certificate with which a client is the user NAME, without a token.

    The user must exist, or the certificate opens nothing: hocket user create NAME --role ROLE.
    """
    crypto = _crypto()
    where = _directory(directory)
    files = crypto.Pair.named(where, f"client-{name}")
    _refuse_to_overwrite(files)
    try:
        _authority(where).issue(files, name, crypto.CLIENT)
    except OSError as error:
        raise _unusable(where, error) from error
    click.echo(f"made a certificate for the user {name}: {files.certificate}")
    shown = f"--tls-cert {_quoted(files.certificate)} --tls-key {_quoted(files.key)}"
    _say_next(where, crypto.Pair.named(where, BROKER), f"{_reaching(where)} {shown}")


@certs.command(
    "node",
    cls=Command,
    examples="""
$ hocket certs node --data ./data --host node-1.example.org
$ hocket certs node --store-id 3f0c5dfb2f5c4f0e8d6f0a4c9b1e7a52 --host 10.0.0.7
""",
)
@click.option(
    "--data", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
    help="The node's data directory, which has the id of its store; it is made if it is not there.",
)  # fmt: skip
@click.option(
    "--store-id", metavar="ID", type=Checked("id", _store_id),
    help="The id of the node's store, if its data directory is on another machine.",
)  # fmt: skip
@directory_option
@click.option(
    "--host", "hosts", metavar="NAME", multiple=True, type=Checked("host", _host),
    help="A further name or address by which clients and nodes reach the node; may be repeated.",
)  # fmt: skip
def node(
    data: Path | None, store_id: str | None, directory: Path | None, hosts: tuple[str, ...]
) -> None:
    """Make a certificate with which a broker is a node of a cluster.

    It names the store of the node, and is refused for any other store. It also serves clients: it
    is good for localhost, this machine's name, and every --host.
    """
    if (data is None) == (store_id is None):
        raise click.UsageError("name the node either by --data DIR or by --store-id ID")
    crypto = _crypto()
    where = _directory(directory)
    names = dict.fromkeys((*HOSTS, *_own_name(), *hosts))
    try:
        authority = _authority(where)
        if data is not None:
            store_id = _store_in(data)
        assert store_id is not None
        files = crypto.Pair.named(where, f"node-{store_id}")
        _refuse_to_overwrite(files)
        authority.issue_node(files, store_id, names)
    except OSError as error:
        raise _unusable(where, error) from error
    click.echo(f"made a certificate for the node {store_id}: {files.certificate}")
    _say_next(where, files, _reaching(where), data)


# --- pieces --------------------------------------------------------------------------------------


def _crypto() -> ModuleType:
    """The module that needs the package `cryptography`, which not everybody has."""
    try:
        from hocket.cli import authority
    except ModuleNotFoundError as error:
        raise click.ClickException(
            "making certificates needs the package 'cryptography': pip install 'hocket[certs]'"
        ) from error
    return authority


def _directory(given: Path | None) -> Path:
    return default_directory() if given is None else given


def _own_name() -> list[str]:
    with suppress(OSError, BadName):
        return [_host(socket.gethostname())]
    return []


def _created(directory: Path) -> Authority:
    crypto = _crypto()
    authority: Authority = crypto.Authority.create(AUTHORITY_NAME)
    authority.save(crypto.Pair.named(directory, AUTHORITY))
    return authority


def _loaded(directory: Path) -> Authority | None:
    crypto = _crypto()
    files: Pair = crypto.Pair.named(directory, AUTHORITY)
    if not files.exists():
        return None
    try:
        authority: Authority = crypto.Authority.load(files)
    except (OSError, ValueError) as error:
        raise click.ClickException(
            f"the authority in '{directory}' cannot be used: {error}; it needs both "
            f"'{files.certificate.name}' and '{files.key.name}' as they were made"
        ) from error
    return authority


def _authority(directory: Path) -> Authority:
    authority = _loaded(directory)
    if authority is None:
        raise click.ClickException(
            f"there is no authority in '{directory}'; make one with `hocket certs init`, or name "
            "its place with --directory DIR"
        )
    return authority


def _store_in(data: Path) -> str:
    from hocket.adapters.disk import DirectoryDisk
    from hocket.log.directory import store_id_of

    return store_id_of(DirectoryDisk(data), str(data))


def _refuse_to_overwrite(files: Pair) -> None:
    for path in (files.certificate, files.key):
        if path.exists():
            raise click.ClickException(
                f"'{path}' is there already, and nothing is overwritten: remove "
                f"'{files.certificate.name}' and '{files.key.name}' to have new ones, or choose "
                "another place with --directory DIR"
            )


def _unusable(directory: Path, error: OSError) -> click.ClickException:
    return click.ClickException(
        f"cannot write to '{directory}': {error.strerror}; choose another place with "
        "--directory DIR"
    )


def _say_next(directory: Path, broker: Pair, reaching: str, data: Path | None = None) -> None:
    serving = "" if data is None else f"--data {_quoted(data)} "
    serving += f"--tls-cert {_quoted(broker.certificate)} --tls-key {_quoted(broker.key)}"
    click.echo("use it with:")
    click.echo(f"  hocket serve {serving} --tls-ca {_quoted(directory / 'ca.pem')}")
    click.echo(f"  {reaching}")


def _reaching(directory: Path) -> str:
    authority = _quoted(directory / "ca.pem")
    return f"hocket topic list --server hockets://localhost:4150 --tls-ca {authority}"


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
