"""`hocket serve`: a broker as a process of its own.

The broker prints one line on stdout when it is ready; the last word of the line is its address.
All else goes to stderr: what it opened, what happens, and at the end what it did. If a service
manager wants to be told (NOTIFY_SOCKET), it is told at the same moments.
From then on SIGTERM and SIGINT make it drain and end with 0. Before that line, or a second time,
these signals kill it, and nothing that was acknowledged is lost. With TLS, SIGHUP makes it read its
certificates again.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import tomllib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from hocket import __version__
from hocket.adapters.memory import keep_free_memory, set_aside_what_stays
from hocket.addresses import Address
from hocket.cli import admin_token, exits, supervisor
from hocket.cli.cluster_options import ClusterOptions, Dialling, cluster_options, node_name
from hocket.cli.command import Command, is_debugging
from hocket.cli.listening import parse_address, refuse_if_open
from hocket.cli.open_files import connections_that_fit
from hocket.cli.parameters import DURATION_US, SIZE, Checked
from hocket.cli.serve_plugins import plugins_of
from hocket.cli.serve_report import ServeReport
from hocket.cli.stderr_log import FORMATS, log_to_stderr
from hocket.errors import Closed, HocketError, NoConnection
from hocket.node_frames import NO_CHANGERS

if TYPE_CHECKING:
    import ssl

    from hocket.node.broker import Broker
    from hocket.node.cluster.member import Place
    from hocket.node.cluster.starting import Wish
    from hocket.node.settings import NodeSettings
    from hocket.plugins.host import Host
    from hocket.rpc import Endpoint

log = logging.getLogger("hocket.serve")
LISTEN_DEFAULT = "127.0.0.1:4150"
# A WAL thread beside a busy loop otherwise waits Python's 5 ms for the GIL at each commit.
SWITCH_INTERVAL = 0.0001
STOPPING = (signal.SIGTERM, signal.SIGINT)
STOPPING_WITHOUT_TLS = (*STOPPING, signal.SIGHUP)  # else that has another meaning
_ERROR_OF_CONFIG = "hocket.config.error"  # a key of the context's meta
_PLUGINS = "hocket.config.plugins"  # another: the settings of plug-ins, by name
CERTIFICATE_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def default_data_directory() -> Path:
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "hocket"


def load_config(context: click.Context, option: click.Parameter, path: Path | None) -> None:
    """Make the values of the file the defaults, so that the command line and variables win.

    An error waits until it is known how to log it.
    """
    try:
        if path is not None:
            _load_config(context, option, path)
    except click.BadParameter as error:
        if "log_format" in context.params:
            raise
        context.meta[_ERROR_OF_CONFIG] = error


def _load_config(context: click.Context, option: click.Parameter, path: Path) -> None:
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
    flags = {
        str(parameter.name).replace("_", "-")
        for parameter in context.command.params
        if isinstance(parameter, click.Option) and parameter.is_flag
    }
    context.meta[_PLUGINS] = _tables_of_plugins(values.pop("plugins", {}), path, option)
    for name, value in values.items():
        if name in ("plugin", "plugin-apart") and isinstance(value, list):
            continue
        if name not in known:
            raise click.BadParameter(
                f"'{path}' has the unknown setting '{name}'; there are {', '.join(sorted(known))}",
                param=option,
            )
        if isinstance(value, bool) and name in flags:
            continue
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise click.BadParameter(
                f"'{path}': '{name}' must be a text or a number, not {value!r}", param=option
            )
    context.default_map = {
        name.replace("-", "_"): list(map(str, value)) if isinstance(value, list) else str(value)
        for name, value in values.items()
    }


def _tables_of_plugins(tables: object, path: Path, option: click.Parameter) -> dict[str, Any]:
    if isinstance(tables, dict) and all(isinstance(each, dict) for each in tables.values()):
        return tables
    raise click.BadParameter(
        f"'{path}': the settings of a plug-in stand below [plugins.NAME]", param=option
    )


def set_up_log(context: click.Context, _option: click.Parameter, form: str) -> str:
    """At once, so that an error about any other option is told in the same format."""
    if context.resilient_parsing:
        return form
    if form == "json":
        log_to_stderr("INFO", form)
    if _ERROR_OF_CONFIG in context.meta:
        raise context.meta[_ERROR_OF_CONFIG]
    return form


@click.command(
    cls=Command,
    variables="HOCKET_SERVE",
    examples="""
$ hocket serve
$ hocket serve --listen 127.0.0.1:0 --data ./data     # a free port, printed when ready
$ hocket serve --config hocket.toml --log-level debug
$ hocket serve --listen 0.0.0.0:4150 --tls-cert server.pem --tls-key server.key \\
               --admin-token-file admin.token
$ hocket serve --listen 127.0.0.1:4151 --data ./second --join 127.0.0.1:4150
$ HOCKET_SERVE_DATA=./data HOCKET_SERVE_LOG_FORMAT=json hocket serve

hocket.toml has the options' names:

  listen = "127.0.0.1:4150"
  data = "/var/lib/hocket"
  plugin = ["schema"]

  [plugins.schema]
  directory = "/etc/hocket/schemas"
""",
)
@click.option(
    "--config", metavar="FILE", type=click.Path(path_type=Path), is_eager=True,
    expose_value=False, callback=load_config, help="A TOML file with any of these options.",
)  # fmt: skip
@click.option(
    "--log-format", type=click.Choice(FORMATS), default="text", show_default=True,
    is_eager=True, callback=set_up_log, help="How to log, on stderr: json is an object a line.",
)  # fmt: skip
@click.option(
    "--log-level", default="info", show_default=True, help="How much to log, on stderr.",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
)  # fmt: skip
@click.option(
    "--listen", metavar="HOST:PORT", type=Checked("address", parse_address),
    default=LISTEN_DEFAULT, show_default=True, help="Where to listen; port 0 picks a free one.",
)  # fmt: skip
@click.option(
    "--rpc-listen", metavar="HOST:PORT", type=Checked("address", parse_address),
    help="Offer Cap'n Proto RPC there as well; port 0 picks a free one.",
)  # fmt: skip
@click.option(
    "--metrics-listen", metavar="HOST:PORT", type=Checked("address", parse_address),
    help="Offer metrics for Prometheus there, at /metrics; port 0 picks a free one.",
)  # fmt: skip
@click.option(
    "--metrics-interval", type=DURATION_US, default="10s", show_default=True,
    help="How often to hand metrics to plug-ins that want them; 0 for never.",
)  # fmt: skip
@click.option(
    "--tracing", is_flag=True,
    help="Record spans of OpenTelemetry for messages that belong to a trace; an SDK must be set "
    "up, as by opentelemetry-instrument.",
)  # fmt: skip
@click.option(
    "--data", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
    help="The data directory, made if missing. [default: hocket in the user's data directory]",
)  # fmt: skip
@click.option(
    "--tls-cert", metavar="FILE", type=CERTIFICATE_FILE,
    help="Speak TLS, with this certificate; clients then write hockets://.",
)  # fmt: skip
@click.option("--tls-key", metavar="FILE", type=CERTIFICATE_FILE, help="The key of --tls-cert.")
@click.option(
    "--tls-ca", metavar="FILE", type=CERTIFICATE_FILE,
    help="Let clients in by certificates that this one has signed, instead of tokens.",
)  # fmt: skip
@click.option(
    "--admin-token-file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
    help="If there is no user yet: make the first admin, with the token in this file; without "
    "one, the broker writes a new token there.",
)  # fmt: skip
@click.option(
    "--name", type=Checked("name", node_name), default="",
    help="The node's name, for people; no other node of its cluster has it. [default: the store's "
    "id]",
)  # fmt: skip
@cluster_options
@click.option(
    "--connections", type=click.IntRange(min=1), metavar="N",
    help="Refuse connections beyond this number. [default: 10000]",
)  # fmt: skip
@click.option(
    "--checkpoint-bytes", type=SIZE,
    help="How much write-ahead log between two checkpoints; it bounds recovery. [default: 32MiB]",
)  # fmt: skip
@click.option(
    "--scrub-interval", type=DURATION_US,
    help="Read and verify everything stored this often; 0 for never. [default: 1d]",
)  # fmt: skip
@click.option(
    "--plugin", metavar="NAME", multiple=True,
    help="Run this plug-in; they are called in the order in which they are named. See `hocket "
    "plugin list`.",
)  # fmt: skip
@click.option(
    "--plugin-apart", metavar="NAME", multiple=True,
    help="Run this one of the plug-ins in a process of its own, with a deadline.",
)  # fmt: skip
@click.option(
    "--plugins-may-differ", is_flag=True,
    help="Let this node and others have different plug-ins on what is published: for as long as "
    "they are being changed node by node.",
)  # fmt: skip
@click.pass_context
def serve(
    context: click.Context,
    /,
    listen: Address,
    rpc_listen: Address | None,
    metrics_listen: Address | None,
    metrics_interval: int,
    tracing: bool,
    data: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_ca: Path | None,
    admin_token_file: Path | None,
    log_level: str,
    log_format: str,
    join: tuple[str, ...],
    successors: int | None,
    replication: int | None,
    domain: str,
    capacity: int,
    advertise: str | None,
    plugin: tuple[str, ...],
    plugin_apart: tuple[str, ...],
    plugins_may_differ: bool,
    **limits: Any,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C.

    The broker prints one line to stdout when it is ready; the last word is the address for clients.
    Beyond loopback it listens only with TLS and with users. On SIGHUP it reads its certificates
    again. An option wins over its variable, and a variable over --config.
    """
    log_to_stderr("DEBUG" if is_debugging(context) else log_level.upper(), log_format)
    load_tls = _tls_loader(tls_cert, tls_key, tls_ca)
    tls = None if load_tls is None else load_tls()
    directory = default_data_directory() if data is None else data
    ports = [each for each in (listen, rpc_listen, metrics_listen) if each is not None]
    token = None
    if not directory.exists():  # so there is no user; refuse before the directory is made
        for each in ports:
            users = admin_token_file is not None or bool(join)  # else the cluster knows of users
            refuse_if_open(each, tls=tls is not None, users=users)
        if admin_token_file is not None:
            token = admin_token.check(admin_token_file)
    from hocket.node.cluster.member import Member
    from hocket.node.cluster.starting import is_everywhere, settle

    cluster = ClusterOptions(join, successors, replication, domain, capacity, advertise)
    sys.setswitchinterval(SWITCH_INTERVAL)
    keep_free_memory()
    settings = _settings(**limits)
    settings.limits.connections_max = connections_that_fit(
        settings.limits.connections_max, len(ports)
    )
    plugins = plugins_of(
        plugin, plugin_apart, context.meta.get(_PLUGINS, {}), metrics_listen, metrics_interval,
        tracing=tracing,
    )  # fmt: skip
    listener = None
    try:
        wish = cluster.wish(settings.name, tls_cert, tls_key, tls_ca)
        changers = NO_CHANGERS if plugins is None else plugins.changers()
        wish = replace(wish, changers=changers, changers_may_differ=plugins_may_differ)
        listener = _bound(listen)
        bound = Address(*listener.getsockname()[:2])
        report, place = _open(directory, settings, wish, listener)
    except BaseException:
        if listener is not None:
            listener.close()
        if plugins is not None:
            plugins.close()
        raise
    broker = report.broker
    endpoint = None
    try:
        if plugins is not None:
            plugins.attach(broker.node, broker.loop)
        settle(directory, place, broker.node.metadata_index)
        # Else the cluster knows whether there are users, and tells it.
        founds = place.membership.is_founder and broker.node.group0.is_lone
        if admin_token_file is not None and founds:
            _make_first_admin(admin_token_file, broker, token)
        if rpc_listen is not None:
            endpoint = _rpc_endpoint(broker, settings, load_tls)

        def refuse_strangers() -> None:
            for each in ports:
                refuse_if_open(each, tls=tls is not None, users=broker.node.access_is_on)

        if founds:
            refuse_strangers()
        stopping = Stopping(broker, endpoint)
        stopping.on_signals(STOPPING if tls is not None else STOPPING_WITHOUT_TLS)
        if load_tls is not None:
            _renew_tls_on_signal(broker, endpoint, load_tls, wish.tls, plugins)
        scheme = "hocket" if tls is None else "hockets"

        def ready() -> None:
            refuse_strangers()
            # Whoever listens everywhere and says no address is told to others by the machine's
            # name, for which a certificate need not be good: clients are told where it listens.
            told = place.address if advertise or not is_everywhere(listen.host) else str(bound)
            urls = {scheme: f"{scheme}://{told}"}
            also = ""
            if endpoint is not None and rpc_listen is not None:
                try:
                    urls["rpc"] = str(Address(*endpoint.listen(*rpc_listen)))
                except NoConnection as error:
                    raise click.ClickException(str(error)) from error
                also = f", RPC on {urls['rpc']},"
            if plugins is not None:
                also += _open_doors(plugins, broker, load_tls)
            set_aside_what_stays()
            broker.serve_clients(True)
            report.started(urls, tls=tls is not None)
            _say_ready(f"hocket {__version__} serving {directory}{also} on {urls[scheme]}")
            supervisor.tell(supervisor.READY)

        try:
            broker.listen_on(listener, tls)
        except NoConnection as error:  # we failed to listen, which is not exit code 5
            raise click.ClickException(str(error)) from error
        broker.serve_clients(False)
        assert isinstance(broker.member, Member)
        broker.member.join(stopping.unless_it_fails(ready), stopping.fail)
        try:
            if stopping.failure is None:
                broker.run()
        finally:
            report.stopped(stopping.reason, stopping.asked)
        if stopping.failure is not None:
            raise stopping.failure
    finally:
        if plugins is not None:
            plugins.close_doors()
        if endpoint is not None:
            endpoint.close()
        broker.close()
        if plugins is not None:
            plugins.close()
        listener.close()


def _open_doors(
    plugins: Host, broker: Broker, load_tls: Callable[[], ssl.SSLContext] | None
) -> str:
    """Where the doors of plug-ins are, in words for the line that says that all is ready."""
    from hocket.plugins.doors import Surroundings

    def check(listen: Address) -> None:
        refuse_if_open(listen, tls=load_tls is not None, users=broker.node.access_is_on)

    try:
        doors = plugins.open_doors(Surroundings(broker, load_tls, check))
    except NoConnection as error:
        raise click.ClickException(str(error)) from error
    return "".join(f", {door.address}," for door in doors if door.address)


def _bound(listen: Address) -> socket.socket:
    from hocket.node.broker import bind

    try:
        return bind(*listen)
    except NoConnection as error:  # we failed to listen, which is not exit code 5
        raise click.ClickException(str(error)) from error


def _make_first_admin(path: Path, broker: Broker, token: str | None) -> None:
    if admin_token.make_first_admin(path, broker, token):
        log.info("made the first admin; the token is in %s", path)


def _say_ready(line: str) -> None:
    """Whoever closed stdout wants no line. One who cannot be told would wait for it for ever."""
    if sys.stdout is None:
        return
    try:
        click.echo(line)
        sys.stdout.flush()
    except OSError as error:
        exits.silence_stdout()
        raise click.ClickException(
            f"cannot print to stdout that the broker is ready: {error.strerror}; let stdout be a "
            "file or a pipe that somebody reads, or close it"
        ) from error


def _settings(
    *,
    name: str,
    connections: int | None,
    checkpoint_bytes: int | None,
    scrub_interval: int | None,
    popular: int | None,
    relay_children: int | None,
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
        **_given({"popular": popular, "relay_children": relay_children}),
    )


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _open(
    directory: Path, settings: NodeSettings, wish: Wish, listener: socket.socket
) -> tuple[ServeReport, Place]:
    from hocket.node.broker import Broker
    from hocket.node.cluster.member import Member
    from hocket.node.cluster.starting import place_for

    try:
        place = place_for(directory, wish, Address(*listener.getsockname()[:2]))
        began = monotonic()
        broker = Broker(directory, settings, partial(Member, place))
    except HocketError:
        raise
    except OSError as error:
        raise click.ClickException(
            f"cannot use the data directory '{directory}': {error.strerror}; "
            "choose another with --data DIR"
        ) from error
    return ServeReport(broker, directory, began, monotonic()), place


def _tls_loader(
    certificate: Path | None, key: Path | None, authority: Path | None
) -> Callable[[], ssl.SSLContext] | None:
    """A function that reads the files each time it is called; None: TLS is not asked for."""
    if certificate is None and key is None:
        if authority is not None:
            raise click.UsageError("--tls-ca needs TLS: give --tls-cert and --tls-key as well")
        return None
    if certificate is None or key is None:
        raise click.UsageError("--tls-cert and --tls-key belong together: give both")

    def load() -> ssl.SSLContext:
        from hocket.adapters.tls import server_context

        return server_context(certificate, key, authority)

    return load


def _rpc_endpoint(
    broker: Broker, settings: NodeSettings, load_tls: Callable[[], ssl.SSLContext] | None
) -> Endpoint:
    from hocket.rpc import Endpoint

    tls = None if load_tls is None else load_tls()
    return Endpoint(broker, settings.limits, tls, owns_process=True)


def _renew_tls_on_signal(
    broker: Broker,
    endpoint: Endpoint | None,
    load: Callable[[], ssl.SSLContext],
    dialling: Callable[[], ssl.SSLContext | None],
    plugins: Host | None,
) -> None:
    def renew() -> None:
        try:
            broker.renew_tls(load())
            if isinstance(dialling, Dialling):
                dialling.renew()
            if endpoint is not None:
                endpoint.renew_tls(load())
            if plugins is not None:
                plugins.renew_tls()
        except HocketError as error:
            log.error("the TLS certificates in use stay: %s", error)  # noqa: TRY400 - no trace
        else:
            log.info("new connections use the TLS certificates as they are now")

    def post(_number: int, _frame: FrameType | None) -> None:
        with suppress(Closed):  # it is going down
            broker.post(renew)

    signal.signal(signal.SIGHUP, post)


class Stopping:
    """Why the broker stops, and when it was asked to."""

    def __init__(self, broker: Broker, endpoint: Endpoint | None) -> None:
        self._broker = broker
        self._endpoint = endpoint
        self.reason = "an error"  # unless a signal asks for it
        self.asked: float | None = None
        self.failure: Exception | None = None

    def fail(self, error: Exception) -> None:
        self.failure = error
        self._broker.stop()

    def unless_it_fails(self, step: Callable[[], None]) -> Callable[[], None]:
        """`step` for the broker's loop; if it fails, the broker stops, and `failure` says why."""

        def guarded() -> None:
            try:
                step()
            except Exception as error:  # noqa: BLE001 - raised again when the broker has stopped
                self.fail(error)

        return guarded

    def on_signals(self, numbers: tuple[signal.Signals, ...]) -> None:
        def stop(number: int, _frame: FrameType | None) -> None:
            for each in numbers:
                signal.signal(each, signal.SIG_DFL)
            self.reason, self.asked = signal.Signals(number).name, monotonic()
            supervisor.tell(supervisor.STOPPING)
            if self._endpoint is None:
                self._broker.stop()
            else:  # to finish what RPC clients have begun, the endpoint needs the broker
                self._endpoint.stop(then=self._broker.stop)

        for each in numbers:
            signal.signal(each, stop)
