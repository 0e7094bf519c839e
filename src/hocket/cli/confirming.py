"""Asking the user before something is deleted for good."""

from __future__ import annotations

import sys

import click

yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")


def confirm(yes: bool, question: str) -> None:
    """Return if the user agrees. Without a terminal to ask at, --yes must be given."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("This cannot be undone, and there is no terminal to ask: add --yes.")
    if not click.confirm(question, err=True):
        raise click.ClickException("nothing was changed")
