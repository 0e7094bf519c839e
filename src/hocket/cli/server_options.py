"""Which broker a command talks to, and as which user.

The options may stand before the subcommand or after it; the later one wins. An option wins over its
variable, a variable over the context (`contexts`), the context over the default. The token comes
from a file or the environment, never from the command line, which every user of the machine can
read.

The context in use belongs to its own server: if an option or a variable names a server, nothing of
that context is used, or its token would be shown to another broker. Whoever names a context for the
command, and a server too, wants both; but a context that is named by an option wins over variables,
as any option does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from hocket import environment
from hocket.cli import contexts
from hocket.cli.command import ServerOption
from hocket.cli.parameters import SECONDS
from hocket.errors import NotAllowed

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
    context: str | None = None  # the name of the one to use; None: the one in use, if any
    said: dict[str, ParameterSource] = field(default_factory=dict)  # by an option or a variable
    token_file_wins: bool = False  # over HOCKET_TOKEN: it is of a context that an option names

    def connect(self) -> Client:
        self.use_context()
        self._check_files()
        import hocket  # loads the client, which takes longer than the rest of the command line

        from_variable = self.said.get("server") is ParameterSource.ENVIRONMENT
        token = self._token()
        try:
            return hocket.connect(
                None if from_variable else self.server,  # so that its error names the variable
                token=token,
                tls_ca=self.tls_ca,
                tls_cert=self.tls_cert,
                tls_key=self.tls_key,
                timeout=self.timeout,
                name="hocket command line",
            )
        except NotAllowed as error:
            if token is None:
                error.add_note(
                    f"A command takes its token from --token-file FILE or {environment.TOKEN}"
                )
            raise

    def for_completion(self) -> Server:
        return replace(self, timeout=min(self.timeout, COMPLETION_TIMEOUT))

    def use_context(self) -> None:
        """Fill in what nobody has said."""
        if self.context is None and "server" in self.said:
            return
        name, chosen_by = self.chosen_context()
        if not name:
            return
        found = contexts.load().get(name, chosen_by).said()
        if self.said.get("context") is ParameterSource.COMMANDLINE:
            for each in found:
                if self.said.get(each) is ParameterSource.ENVIRONMENT:
                    del self.said[each]
            self.token_file_wins = "token_file" in found
        if {"tls_cert", "tls_key"} & self.said.keys():  # they belong together
            found.pop("tls_cert", None)
            found.pop("tls_key", None)
        for field_name, value in found.items():
            if field_name not in self.said:
                setattr(self, field_name, value if field_name == "server" else Path(value))

    def _check_files(self) -> None:
        """Here, where they are needed: `hocket certs` makes the file that a variable names."""
        for name in ("tls_ca", "tls_cert", "tls_key"):
            path: Path | None = getattr(self, name)
            if path is None or path.exists():
                continue
            flag = f"--{name.replace('_', '-')}"
            hints = {
                ParameterSource.COMMANDLINE: f"'{flag}'",
                ParameterSource.ENVIRONMENT: f"the variable HOCKET_{name.upper()} ({flag})",
                None: f"{flag} of the context '{self.chosen_context()[0]}'",
            }
            raise click.BadParameter(
                f"there is no file '{path}'", param_hint=hints[self.said.get(name)]
            )

    def chosen_context(self) -> tuple[str, str]:
        """The name of the context to use, empty for none, and what has chosen it."""
        if self.context is None:
            return contexts.load().current, ""
        source = self.said.get("context")
        by_variable = source is ParameterSource.ENVIRONMENT
        return self.context, f"the variable {contexts.VARIABLE}" if by_variable else "--context"

    def _token(self) -> str | None:
        by_option = self.said.get("token_file") is ParameterSource.COMMANDLINE
        if not (by_option or self.token_file_wins):
            token = environment.value(environment.TOKEN)
            if token:
                return token
        if self.token_file is None:
            return None
        try:
            token = self.token_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            of = (
                "" if "token_file" in self.said else f" of the context '{self.chosen_context()[0]}'"
            )
            raise click.ClickException(f"cannot read the token file{of}: {error}") from error
        if not token:
            raise click.ClickException(f"the token file '{self.token_file}' is empty")
        return token


def _remember(context: click.Context, option: click.Parameter, value: Any) -> None:
    assert option.name is not None
    said_above = context.parent is not None and isinstance(context.parent.obj, Server)
    source = context.get_parameter_source(option.name)
    server = context.ensure_object(Server)
    if source is ParameterSource.COMMANDLINE or not said_above:
        setattr(server, option.name, value)
        if source in (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT):
            server.said[option.name] = source


def _known_contexts(
    _context: click.Context, _option: click.Parameter, incomplete: str
) -> list[str]:
    return [name for name in contexts.known_names() if name.startswith(incomplete)]


def server_options(command: F) -> F:
    """Add the options for reaching a broker; the command gets them with `pass_server`."""
    options = [
        click.option(
            "--context", metavar="NAME", envvar=contexts.VARIABLE, show_envvar=True,
            shell_complete=_known_contexts,
            help="Use the broker that `hocket context add` has kept by this name.",
            cls=ServerOption, expose_value=False, callback=_remember,
        ),
        click.option(
            "--server", metavar="URL", default=SERVER_DEFAULT, envvar=environment.SERVER,
            show_default=True, show_envvar=True,
            help="The broker's URL; several addresses are separated by commas.",
            cls=ServerOption, expose_value=False, callback=_remember,
        ),
        click.option(
            "--token-file", metavar="FILE", type=click.Path(path_type=Path),
            envvar="HOCKET_TOKEN_FILE", show_envvar=True,
            help=f"A file with the token; else {environment.TOKEN} may hold the token itself.",
            cls=ServerOption, expose_value=False, callback=_remember,
        ),
        click.option(
            "--tls-ca", metavar="FILE", type=click.Path(path_type=Path),
            envvar=environment.TLS_CA, show_envvar=True,
            help="Trust the certificates signed by this one (hockets://).",
            cls=ServerOption, expose_value=False, callback=_remember,
        ),
        click.option(
            "--tls-cert", metavar="FILE", type=click.Path(path_type=Path),
            envvar=environment.TLS_CERT, show_envvar=True,
            help="A client certificate, which names the user; instead of a token.",
            cls=ServerOption, expose_value=False, callback=_remember,
        ),
        click.option(
            "--tls-key", metavar="FILE", type=click.Path(path_type=Path),
            envvar=environment.TLS_KEY, show_envvar=True, help="The key of --tls-cert.",
            cls=ServerOption, expose_value=False, callback=_remember,
        ),
        click.option(
            "--timeout", type=SECONDS, default=TIMEOUT_DEFAULT,
            envvar="HOCKET_TIMEOUT", show_envvar=True,
            help="How long to wait for the connection and for each answer. [default: 10s]",
            cls=ServerOption, expose_value=False, callback=_remember,
        ),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def parse_server(url: str) -> str:
    """The URL, if it is one."""
    from hocket.client.connection.address import parse_url

    parse_url(url)
    return url


pass_server = click.make_pass_decorator(Server, ensure=True)
