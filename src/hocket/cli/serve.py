"""`hocket serve`: a broker as a process of its own.

It says one line on stdout when it is ready; whoever starts it waits for that line and takes the
address, its last word. From then on SIGTERM and SIGINT drain and end it with 0; before, or a
second time, they kill it, which costs nothing that was acknowledged.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import signal
import socket
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from hocket import __version__
from hocket.cli.command import Command, is_debugging
from hocket.cli.parameters import DURATION_US, SIZE, Checked
from hocket.errors import HocketError, NoConnection, OutOfRange

if TYPE_CHECKING:
    from hocket.node.broker import Broker
    from hocket.node.settings import NodeSettings

LISTEN_DEFAULT = "127.0.0.1:4150"
# A WAL thread beside a busy loop otherwise waits Python's 5 ms for the GIL at each commit.
SWITCH_INTERVAL = 0.0001
STOPPING = (signal.SIGTERM, signal.SIGINT)


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str | Address) -> Address:
    if isinstance(text, Address):
        return text
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    if not colon or not host or (":" in host and not bracketed):
        raise OutOfRange(f"an address is HOST:PORT (IPv6 in brackets, [::1]:4150), not {text!r}")
    if not (port.isascii() and port.isdecimal() and int(port) <= 65535):
        raise OutOfRange(f"a port is a number from 0 to 65535, not {port!r}")
    return Address(host, int(port))


def default_data_directory() -> Path:
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "hocket"


def load_config(context: click.Context, option: click.Parameter, path: Path | None) -> None:
    """Values of the file become defaults: the command line wins."""
    if path is None:
        return
    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise click.BadParameter(f"cannot read it: {error}", param=option) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"'{path}' is not TOML: {error}", param=option) from error
    known = {
        str(parameter.name).replace("_", "-")
        for parameter in context.command.params
        if isinstance(parameter, click.Option) and parameter.expose_value
    }
    for name, value in values.items():
        if name not in known:
            raise click.BadParameter(
                f"'{path}' has the unknown setting '{name}'; there are {', '.join(sorted(known))}",
                param=option,
            )
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise click.BadParameter(
                f"'{path}': '{name}' must be a text or a number, not {value!r}", param=option
            )
    context.default_map = {name.replace("-", "_"): str(value) for name, value in values.items()}


@click.command(
    cls=Command,
    examples="""
$ hocket serve
$ hocket serve --listen 127.0.0.1:0 --data ./data     # a free port, printed when ready
$ hocket serve --config hocket.toml --log-level debug

hocket.toml has the options' names:

  listen = "127.0.0.1:4150"
  data = "/var/lib/hocket"
""",
)
@click.option(
    "--listen", metavar="HOST:PORT", type=Checked("address", parse_address),
    default=LISTEN_DEFAULT, show_default=True, help="Where to listen; port 0 picks a free one.",
)  # fmt: skip
@click.option(
    "--data", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
    help="The data directory, made if missing. [default: hocket in the user's data directory]",
)  # fmt: skip
@click.option("--name", default="", help="The node's name, for people. [default: the store's id]")
@click.option(
    "--connections", type=click.IntRange(min=1), metavar="N",
    help="Refuse connections beyond so many. [default: 10000]",
)  # fmt: skip
@click.option(
    "--checkpoint-bytes", type=SIZE,
    help="Write-ahead log between two checkpoints; bounds recovery. [default: 32MiB]",
)  # fmt: skip
@click.option(
    "--scrub-interval", type=DURATION_US,
    help="Read and verify everything stored this often; 0 for never. [default: 1d]",
)  # fmt: skip
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info",
    show_default=True, help="How much to log, on stderr.",
)  # fmt: skip
@click.option(
    "--config", metavar="FILE", type=click.Path(path_type=Path), is_eager=True,
    expose_value=False, callback=load_config, help="A TOML file with any of these options.",
)  # fmt: skip
@click.pass_context
def serve(
    context: click.Context,
    /,
    listen: Address,
    data: Path | None,
    log_level: str,
    **limits: Any,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C.

    Prints one line to stdout when it is ready; its last word is the address for clients.
    """
    logging.basicConfig(
        level="DEBUG" if is_debugging(context) else log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        force=True,
    )
    refuse_beyond_loopback(listen)
    directory = default_data_directory() if data is None else data
    sys.setswitchinterval(SWITCH_INTERVAL)
    broker = _open(directory, _settings(**limits))
    try:
        _stop_on_signals(broker)
        try:
            address = Address(*broker.listen(*listen))
        except NoConnection as error:  # a failure of ours, not of reaching somebody
            raise click.ClickException(str(error)) from error
        click.echo(f"hocket {__version__} serving {directory} on hocket://{address}")
        sys.stdout.flush()
        broker.run()
    finally:
        broker.close()


def refuse_beyond_loopback(listen: Address) -> None:
    """Without TLS and access control, whoever reaches the port may read and delete everything."""
    try:
        found = socket.getaddrinfo(listen.host, listen.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise click.ClickException(f"cannot listen on {listen}: {error.strerror}") from error
    if not all(ipaddress.ip_address(address[0]).is_loopback for *_, address in found):
        raise click.ClickException(
            f"refused to listen on {listen}: this broker has no TLS and no access control, so it "
            "listens on loopback only; use --listen 127.0.0.1:PORT"
        )


def _settings(
    *,
    name: str,
    connections: int | None,
    checkpoint_bytes: int | None,
    scrub_interval: int | None,
) -> NodeSettings:
    from hocket.log.settings import LogSettings
    from hocket.model import Limits
    from hocket.node.settings import NodeSettings

    limits = {"connections_max": connections}
    log = {"checkpoint_bytes": checkpoint_bytes, "scrub_interval_us": scrub_interval}
    return NodeSettings(
        name=name,
        limits=replace(Limits(), **_given(limits)),
        log=LogSettings(**_given(log)),
    )


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _open(directory: Path, settings: NodeSettings) -> Broker:
    from hocket.node.broker import Broker

    try:
        return Broker(directory, settings)
    except HocketError:
        raise
    except OSError as error:
        raise click.ClickException(
            f"cannot use the data directory '{directory}': {error.strerror}; "
            "choose another with --data DIR"
        ) from error


def _stop_on_signals(broker: Broker) -> None:
    def stop(_number: int, _frame: FrameType | None) -> None:
        for each in STOPPING:
            signal.signal(each, signal.SIG_DFL)
        broker.stop()

    for each in STOPPING:
        signal.signal(each, stop)
