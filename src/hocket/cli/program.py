"""The root command. Its subcommands are loaded when they are asked for."""

from __future__ import annotations

import click

from hocket import __version__
from hocket.cli.command import Program
from hocket.cli.server_options import server_options

COMMANDS = [
    "serve", "ping", "topic", "publish", "produce", "consume", "index", "dlq", "user", "role",
    "grant", "can", "audit", "ring", "node", "name", "cluster", "context", "log", "certs",
    "pipeline", "plugin", "sim", "completion",
]  # fmt: skip


@click.group(
    cls=Program,
    names=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 not allowed, 5 no connection.",
    examples="""
$ hocket serve &
$ hocket topic create orders --partitions 4
$ seq 1000 | hocket produce orders
$ hocket consume orders --index billing
""",
)
@server_options
@click.version_option(__version__, message="hocket %(version)s")
def program() -> None:
    """Hocket, a topic broker: run one, fill its topics, and read them."""
