"""`hocket log ...`: checks a data directory while no broker runs on it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hocket.cli import output
from hocket.cli.command import Command, Group
from hocket.cli.confirming import confirm, yes_option

if TYPE_CHECKING:
    from hocket.log.model import Report

directory_argument = click.argument(
    "directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path)
)


@click.group(cls=Group, examples="\n$ hocket log verify ./data\n")
def log() -> None:
    """Verify what a broker has stored, while it is not running.

    Each partition is a log with a number; log 0 holds the metadata. The broker says at its start
    which topic a number belongs to, and 'hocket topic describe' says it as well.
    """


@log.command(
    "verify",
    cls=Command,
    examples="""
$ hocket log verify ./data
$ hocket log verify ./data --json
""",
)
@directory_argument
@output.json_option
def verify(directory: Path, as_json: bool) -> None:
    """Read everything in the data directory DIR and check it. Nothing is changed.

    The exit code is 1 if messages are damaged that nobody has accepted as lost.
    """
    from hocket.adapters.disk import DirectoryDisk
    from hocket.log.verify import verify as verify_disk

    report = verify_disk(DirectoryDisk(directory), str(directory))
    if as_json:
        fields = asdict(report)
        fields["damage"] = [{"log": group, **asdict(each)} for group, each in report.damage]
        output.print_json({"ok": report.ok, **fields})
    else:
        _show(report)
    if not report.ok:
        raise click.ClickException(
            "there is damage. Restore the directory from a copy if you have one; to go on "
            "without what is lost: hocket log accept-loss DIR LOG"
        )


def _show(report: Report) -> None:
    click.echo(
        f"store {report.store_id}: {output.number(report.groups)} logs, "
        f"{output.number(report.entries)} entries, {output.size(report.bytes)}"
    )
    for remark in report.remarks:
        click.echo(remark)
    if report.damage:
        rows = [
            (group, str(each), "accepted" if each.accepted else "") for group, each in report.damage
        ]
        click.echo(output.table(["LOG>", "DAMAGED", ""], rows))
    else:
        click.echo("no damage")


@log.command("accept-loss", cls=Command, examples="\n$ hocket log accept-loss ./data 3 --yes\n")
@directory_argument
@click.argument("group", metavar="LOG", type=click.IntRange(min=0))
@yes_option
def accept_loss(directory: Path, group: int, yes: bool) -> None:
    """Go on without the damaged messages of log number LOG in the data directory DIR.

    From the broker's next start on they are skipped, and the log takes messages again.
    """
    from hocket.adapters.disk import DirectoryDisk
    from hocket.log.verify import accept_loss as accept_loss_on_disk

    confirm(yes, f"Go on without the damaged messages of log {group}?")
    accepted = accept_loss_on_disk(DirectoryDisk(directory), group, str(directory))
    if accepted:
        click.echo("".join(f"accepted: {each}\n" for each in accepted), nl=False)
    else:
        click.echo(f"log {group} has no damage that is not accepted already")
