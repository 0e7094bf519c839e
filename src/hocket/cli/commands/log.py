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
    if report.away_segments:
        segments = "segment is" if report.away_segments == 1 else "segments are"
        click.echo(
            f"{output.number(report.away_segments)} {segments} in a storage tier "
            f"({output.size(report.away_bytes)}), where this does not look"
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


@log.command(
    "accept-loss",
    cls=Command,
    examples="""
$ hocket log accept-loss ./data 3 --yes
$ hocket log accept-loss ./data 0          # the metadata: read first what it says
$ hocket log accept-loss ./data --all
""",
)
@directory_argument
@click.argument("group", metavar="[LOG]", type=click.IntRange(min=0), required=False)
@click.option("--all", "every", is_flag=True, help="Of all logs, instead of one.")
@yes_option
def accept_loss(directory: Path, group: int | None, every: bool, yes: bool) -> None:
    """Go on without what is damaged in log number LOG of the data directory DIR.

    From the broker's next start on, readers skip it, and the log takes messages again. Log 0 is the
    metadata: what its damaged entries have changed (topics, users and rights, decisions on
    transactions) is then as it was before them. Check topics, users, roles and grants afterwards,
    before you let clients in.
    """
    from hocket.adapters.disk import DirectoryDisk
    from hocket.log.verify import accept_losses

    if every == (group is not None):
        raise click.UsageError("name the log whose damage you accept, or give --all")
    confirm(yes, "" if yes else _question(directory, group))
    accepted = accept_losses(DirectoryDisk(directory), group, str(directory))
    for number, damage in accepted:
        click.echo(f"accepted: {'' if number == group else f'{_name(number)}: '}{damage}")
    if not accepted:
        which = "no log has" if group is None else f"log {group} has no"
        click.echo(f"{which} damage that is not accepted already")


def _question(directory: Path, group: int | None) -> str:
    """Says what it is about, first."""
    from hocket.adapters.disk import DirectoryDisk
    from hocket.log.verify import verify as verify_disk

    report = verify_disk(DirectoryDisk(directory), str(directory))
    found = [
        f"{_name(number)}: {damage}\n"
        for number, damage in report.damage
        if group in (None, number) and not damage.accepted
    ]
    what = "log 0, the metadata" if group == 0 else "all logs" if group is None else f"log {group}"
    return f"{''.join(found)}Go on without what is damaged in {what}?"


def _name(number: int) -> str:
    from hocket.log.replay import EVERY_OTHER

    return "logs that nothing was found of" if number == EVERY_OTHER else f"log {number}"
