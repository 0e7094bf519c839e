"""`hocket plugin ...`: what extends a broker."""

from __future__ import annotations

from dataclasses import asdict

import click

from hocket.cli import output
from hocket.cli.command import Command, Group


@click.group(
    cls=Group,
    examples="""
$ hocket plugin list
$ hocket serve --plugin schema
""",
)
def plugin() -> None:
    """Look at the plug-ins of a broker."""


@plugin.command(
    "list",
    cls=Command,
    examples="""
$ hocket plugin list
$ hocket plugin list --json
""",
)
@output.json_option
def list_plugins(as_json: bool) -> None:
    """List the plug-ins that are installed here, with their hooks.

    A node runs those that its `hocket serve` names with --plugin.
    """
    _list_installed(as_json)


def _list_installed(as_json: bool) -> None:
    from hocket.plugins.found import describe
    from hocket.plugins.installed import installed

    found = [describe(point) for point in installed()]
    if as_json:
        output.print_json([asdict(each) for each in found])
        return
    if not found:
        click.echo("no plug-in is installed")
        return
    click.echo(
        output.table(
            ["NAME", "PACKAGE", "VERSION", "POLICY", "HOOKS"],
            [
                (each.name, each.package, each.version, each.policy,
                 each.problem or ", ".join(each.hooks))
                for each in found
            ],
        )
    )  # fmt: skip
