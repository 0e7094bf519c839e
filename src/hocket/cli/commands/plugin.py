"""`hocket plugin ...`: what extends a broker."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from hocket.cli import output
from hocket.cli.command import Command, Group
from hocket.cli.server_options import Server, pass_server, server_options
from hocket.errors import NoConnection

if TYPE_CHECKING:
    from hocket.cluster_model import NodePlugins, PluginState


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
$ hocket plugin list --server hocket://127.0.0.1:4150     # what each node runs
""",
)
@output.json_option
@server_options
@pass_server
def list_plugins(server: Server, /, as_json: bool) -> None:
    """List the plug-ins that are installed here, or those that the nodes of a cluster run.

    A node runs those that its `hocket serve` names with --plugin. With --server (or --context) each
    node is asked which these are, and how they fare: for admins.
    """
    if ParameterSource.COMMANDLINE in (server.said.get("server"), server.said.get("context")):
        _list_running(server, as_json)
    else:
        _list_installed(as_json)


def _list_running(server: Server, as_json: bool) -> None:
    nodes, silent = _ask_each(server)
    if as_json:
        output.print_json({"nodes": [asdict(each) for each in nodes], "silent": silent})
    else:
        click.echo(
            output.table(
                ["NODE", "PLUG-IN", "STATE", "POLICY", "HOOK", "CALLS", "REJECTED", "FAILED",
                 "SLOW", "WAITING", "DROPPED", "MEAN", "MAX"],
                [
                    (node.name, each.plugin, _state(each), each.policy, each.hook, each.calls,
                     each.rejections, each.failures, each.slow, each.waiting, each.dropped,
                     output.milliseconds(each.total_us / 1e6 / max(1, each.calls)),
                     output.milliseconds(each.max_us / 1e6))
                    for node in nodes
                    for each in node.hooks
                ],
            )
        )  # fmt: skip
    for each in silent:
        click.echo(f"hocket: node {each} did not answer", err=True)


def _state(plugin: PluginState) -> str:
    state = "on" if plugin.on else "off"
    if plugin.process:
        state = f"apart, {plugin.process if plugin.on else 'off'}"
    if plugin.kills:
        state += f", killed {plugin.kills} {'time' if plugin.kills == 1 else 'times'}"
    return f"{state} ({plugin.problem})" if plugin.problem else state


def _ask_each(server: Server) -> tuple[list[NodePlugins], list[str]]:
    """What each node runs, by name; and the nodes that did not answer."""
    with server.connect() as client:
        first = client.plugins(timeout=server.timeout)
        others = [
            each for each in client.nodes(timeout=server.timeout)
            if each.node != first.node and each.state != "dead"
        ]  # fmt: skip
    found, silent = [first], []
    scheme = server.server.partition("://")[0] if "://" in server.server else "hocket"
    for each in others:
        there = replace(server, server=f"{scheme}://{each.address}", context=None)
        there.said = {**server.said, "server": ParameterSource.COMMANDLINE}
        try:
            with there.connect() as client:
                found.append(client.plugins(timeout=server.timeout))
        except NoConnection:
            silent.append(each.node)
    return sorted(found, key=lambda node: node.name), silent


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
