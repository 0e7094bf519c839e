"""`hocket context ...`: brokers by name."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import CompletionItem

from hocket.cli import contexts, output
from hocket.cli.command import Command, Group
from hocket.cli.contexts import Context
from hocket.cli.exits import say
from hocket.cli.parameters import Checked
from hocket.cli.server_options import SERVER_DEFAULT, Server, parse_server
from hocket.model import check_name

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class ContextName(Checked):
    """Shells complete it."""

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        names = contexts.known_names()
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


NAME = ContextName("context", lambda name: check_name(name, "the name of the context"))


@click.group(
    cls=Group,
    examples="""
$ hocket context add prod --server hockets://broker.example:4150 --token-file ~/prod.token
$ hocket context use prod
$ hocket --context staging topic list
""",
)
def context() -> None:
    """Keep brokers by name, and choose one.

    A command takes its broker from its options, else from variables, else from the context, else it
    is the one on this machine. --context or HOCKET_CONTEXT choose a context for one command.
    """


@context.command(
    "add",
    cls=Command,
    examples="""
$ hocket context add dev --server hocket://127.0.0.1:4150
$ hocket context add prod --server hockets://broker.example:4150 \\
                          --token-file prod.token --tls-ca ca.pem --use
""",
)
@click.argument("name", type=NAME)
@click.option(
    "--server", metavar="URL", required=True, type=Checked("url", parse_server),
    help="The broker's URL; several addresses are separated by commas.",
)  # fmt: skip
@click.option(
    "--token-file", metavar="FILE", type=FILE,
    help="The file with the token. Only its path is kept.",
)  # fmt: skip
@click.option("--tls-ca", "--ca", metavar="FILE", type=FILE, help="Trust what this one has signed.")
@click.option("--tls-cert", metavar="FILE", type=FILE, help="A client certificate.")
@click.option("--tls-key", metavar="FILE", type=FILE, help="The key of --tls-cert.")
@click.option("--use", is_flag=True, help="Use it from now on; the first context always is.")
@click.option("--replace", is_flag=True, help="If there is one of this name, replace it.")
def add(name: str, server: str, use: bool, replace: bool, **files: Path | None) -> None:
    """Keep a broker as NAME."""
    if (files["tls_cert"] is None) != (files["tls_key"] is None):
        raise click.UsageError("--tls-cert and --tls-key belong together: give both")
    paths = {option: str(path.absolute()) for option, path in files.items() if path is not None}
    with contexts.changing() as found:
        if name in found.contexts and not replace:
            raise click.ClickException(
                f"there is a context '{name}' already; --replace puts this one in its place"
            )
        is_first = not found.contexts
        found.contexts[name] = Context(server, **paths)
        if use or is_first:
            found.current = name
    if found.current == name:
        say(f"commands use the context '{name}' from now on")
    else:
        say(f"kept '{name}'; to use it: hocket context use {name}")


@context.command(
    "use",
    cls=Command,
    examples="\n$ hocket context use prod\n$ hocket context use --none     # the broker here\n",
)
@click.argument("name", type=NAME, required=False)
@click.option("--none", is_flag=True, help="None of them, as if there were no contexts.")
def use(name: str | None, none: bool) -> None:
    """Use the context NAME from now on."""
    if none == (name is not None):
        raise click.UsageError("Name the context to use, or --none.")
    with contexts.changing() as found:
        if name is not None:
            found.get(name)
        found.current = name or ""


@context.command(
    "list", cls=Command, examples="\n$ hocket context list\n$ hocket context list --json\n"
)
@output.json_option
def list_contexts(as_json: bool) -> None:
    """List the contexts; a star is at the one in use."""
    found = contexts.load()
    names = sorted(found.contexts)
    if as_json:
        output.print_json([_as_json(n, found.contexts[n], n == found.current) for n in names])
        return
    if not names:
        say("there is no context yet; make one with: hocket context add NAME --server URL")
    rows = [
        ("*" if name == found.current else "", name, each.server, each.token_file or "-")
        for name, each in ((name, found.contexts[name]) for name in names)
    ]
    click.echo(output.table(["", "CONTEXT", "SERVER", "TOKEN FILE"], rows))


@context.command(
    "show", cls=Command, examples="\n$ hocket context show\n$ hocket context show prod --json\n"
)
@click.argument("name", type=NAME, required=False)
@output.json_option
@click.pass_context
def show(click_context: click.Context, /, name: str | None, as_json: bool) -> None:
    """Show the context NAME, or the one that commands use now."""
    found, chosen_by = contexts.load(), ""
    if name is None:
        name, chosen_by = click_context.ensure_object(Server).chosen_context()
    if not name:
        say(f"no context is in use: commands go to {SERVER_DEFAULT}, unless something else is said")
        if as_json:
            output.print_json(None)
        return
    each = found.get(name, chosen_by)
    if as_json:
        output.print_json(_as_json(name, each, name == found.current))
        return
    rows = {"context": name, **each.said()}
    width = max(map(len, rows))
    for field, value in rows.items():
        click.echo(f"{field.replace('_', ' ').ljust(width)}  {value}")


@context.command("remove", cls=Command, examples="\n$ hocket context remove staging\n")
@click.argument("name", type=NAME)
def remove(name: str) -> None:
    """Forget the context NAME. The files that it names stay."""
    with contexts.changing() as found:
        found.get(name)
        del found.contexts[name]
        was_in_use = found.current == name
        if was_in_use:
            found.current = ""
    if was_in_use:
        say(f"'{name}' was in use; commands go to {SERVER_DEFAULT} now")


def _as_json(name: str, each: Context, current: bool) -> dict[str, object]:
    return {"context": name, "current": current, **each.said()}
