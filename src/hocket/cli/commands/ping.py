"""`hocket ping`: whether the broker answers, for probes by its exit code, for people in a line."""

from __future__ import annotations

from time import perf_counter

import click

from hocket.cli import output
from hocket.cli.command import Command
from hocket.cli.server_options import Server, pass_server, server_options
from hocket.errors import NoConnection, Timeout


@click.command(
    cls=Command,
    examples="""
$ hocket ping
$ hocket ping --timeout 2s --json
$ until hocket ping --timeout 1s 2> /dev/null; do sleep 1; done     # wait for a broker
""",
)
@output.json_option
@server_options
@pass_server
def ping(server: Server, /, as_json: bool) -> None:
    """Ask the broker for an answer, and print how long it took.

    Ends with 0 if the broker has answered, 4 if it wants a token, or another one, and 5 if there is
    no broker or no answer in time.
    """
    import hocket.client.faces.blocking.connecting  # noqa: F401 - to load it is not the broker's time

    began = perf_counter()
    with server.connect() as client:
        connected = perf_counter()
        try:
            client.ping(timeout=server.timeout)
        except Timeout as error:  # for a probe that is the same as nobody there
            raise NoConnection(f"{server.server}: {error}") from error
        answered = perf_counter()
        who = client.broker
    connecting, round_trip = connected - began, answered - connected
    if as_json:
        output.print_json(
            {
                "server": server.server,
                "round_trip_seconds": round(round_trip, 6),
                "connect_seconds": round(connecting, 6),
                "software": who.software,
                "node": who.node,
                "cluster": who.cluster,
            }
        )
        return
    click.echo(
        f"{server.server} answered in {output.milliseconds(round_trip)} (connected in "
        f"{output.milliseconds(connecting)}): {who.software}, node {who.node}, "
        f"cluster {who.cluster or '(unknown)'}"
    )
