"""Which broker a command talks to, and as which user.

The options may stand before the subcommand or after it; the later one wins. The token comes from a
file or the environment, never from the command line, which every user of the machine can read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from hocket import environment
from hocket.cli.command import ServerOption
from hocket.cli.parameters import SECONDS

if TYPE_CHECKING:
    from hocket.client.faces.blocking.client import Client

F = TypeVar("F", bound=Callable[..., Any])

SERVER_DEFAULT = environment.SERVER_DEFAULT
TIMEOUT_DEFAULT = 10.0
COMPLETION_TIMEOUT = 0.5  # the user has just pressed Tab, and waits


@dataclass(slots=True)
class Server:
    """How to reach the broker. `timeout` is seconds, for connecting and for each request."""

    server: str = SERVER_DEFAULT
    token_file: Path | None = None
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    timeout: float = TIMEOUT_DEFAULT

    def connect(self) -> Client:
        import hocket  # loads the client, which takes longer than the rest of the command line

        from_variable = self.server == environment.value(environment.SERVER)
        return hocket.connect(
            None if from_variable else self.server,  # so that its error names the variable
            token=self._token(),
            tls_ca=self.tls_ca,
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            timeout=self.timeout,
            name="hocket command line",
        )

    def for_completion(self) -> Server:
        return replace(self, timeout=min(self.timeout, COMPLETION_TIMEOUT))

    def _token(self) -> str | None:
        if self.token_file is None:
            return environment.value(environment.TOKEN)
        try:
            token = self.token_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise click.ClickException(f"cannot read the token file: {error}") from error
        if not token:
            raise click.ClickException(f"the token file '{self.token_file}' is empty")
        return token


def _remember(context: click.Context, option: click.Parameter, value: Any) -> None:
    assert option.name is not None
    said_above = context.parent is not None and isinstance(context.parent.obj, Server)
    given_here = context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    server = context.ensure_object(Server)
    if given_here or not said_above:
        setattr(server, option.name, value)


def server_options(command: F) -> F:
    """Add the options for reaching a broker; the command gets them with `pass_server`."""
    options = [
        click.option(
            "--server", metavar="URL", default=SERVER_DEFAULT, envvar=environment.SERVER,
            show_default=True, show_envvar=True,
            help="The broker's URL; several addresses are separated by commas.",
            cls=ServerOption, expose_value=False, callback=_remember,
        ),
        click.option(
            "--token-file", metavar="FILE", type=click.Path(path_type=Path),
            help=f"A file with the token; else {environment.TOKEN} may hold the token itself.",
            cls=ServerOption, expose_value=False, callback=_remember,
        ),
        click.option(
            "--tls-ca", metavar="FILE", type=click.Path(exists=True, path_type=Path),
            envvar=environment.TLS_CA, show_envvar=True,
            help="Trust the certificates signed by this one (hockets://).",
            cls=ServerOption, expose_value=False, callback=_remember,
        ),
        click.option(
            "--tls-cert", metavar="FILE", type=click.Path(exists=True, path_type=Path),
            envvar=environment.TLS_CERT, show_envvar=True,
            help="A client certificate, which names the user; instead of a token.",
            cls=ServerOption, expose_value=False, callback=_remember,
        ),
        click.option(
            "--tls-key", metavar="FILE", type=click.Path(exists=True, path_type=Path),
            envvar=environment.TLS_KEY, show_envvar=True, help="The key of --tls-cert.",
            cls=ServerOption, expose_value=False, callback=_remember,
        ),
        click.option(
            "--timeout", type=SECONDS, default=TIMEOUT_DEFAULT,
            help="How long to wait for the connection and for each answer. [default: 10s]",
            cls=ServerOption, expose_value=False, callback=_remember,
        ),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


pass_server = click.make_pass_decorator(Server, ensure=True)
