"""Asking the user before something is deleted for good."""

from __future__ import annotations

import sys

import click

yes_option = click.option("--yes", "-y", is_flag=True, help="Do not ask.")


def confirm(yes: bool, question: str, why: str = "") -> None:
    """Return if the user agrees. Without a terminal to ask at, --yes must be given.

    `why` is a sentence that says what would be lost; it is shown in either case.
    """
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        sentence = "This cannot be undone, and there is no terminal to ask: add --yes."
        raise click.UsageError(f"{why} {sentence}" if why else sentence)
    question = f"{why} {question}" if why else question
    if not click.confirm(question, err=True):
        raise click.ClickException("nothing was changed")
