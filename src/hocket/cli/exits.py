"""How a command ends: exit codes, and errors as one line.

The codes are part of the interface. An error about what the user passed (a bad name, a number out
of range) counts as usage, even where only the broker could find it.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterable
from difflib import get_close_matches

import click
from click.core import ParameterSource

from hocket import errors
from hocket.cli import stderr_log

FAILED = 1
USAGE = 2
NOT_FOUND = 3
NOT_ALLOWED = 4
NO_CONNECTION = 5
INTERRUPTED = 128  # plus the signal's number, as in shells

_CODES: list[tuple[tuple[type[BaseException], ...], int]] = [
    ((errors.UnknownTopic, errors.UnknownIndex, errors.UnknownPartition), NOT_FOUND),
    ((errors.UnknownUser, errors.UnknownRole), NOT_FOUND),
    ((errors.NotAllowed,), NOT_ALLOWED),
    ((errors.NoConnection, errors.ReplyLost), NO_CONNECTION),
    ((errors.BadName, errors.OutOfRange, errors.WrongType), USAGE),
]


class Interrupted(KeyboardInterrupt):
    """A signal asked the command to end. The user is shown `summary`."""

    def __init__(self, signal_number: int, summary: str = "interrupted") -> None:
        super().__init__(summary)
        self.signal_number = signal_number
        self.summary = summary


def code_of(error: BaseException) -> int:
    for kinds, code in _CODES:
        if isinstance(error, kinds):
            return code
    return FAILED


def say(message: str) -> None:
    """Print one line for people, on stderr; in JSON if all else there is."""
    if stderr_log.is_json():
        stderr_log.log.error("%s", " ".join(message.split()))
        return
    click.echo(f"hocket: {' '.join(message.split())}", err=True)


def report(error: BaseException, *, debug: bool) -> int:
    """Tell the user about an error that ended the command. Returns the exit code."""
    if debug and stderr_log.is_json():
        stderr_log.log.error("what happened", exc_info=error)
    elif debug:
        traceback.print_exception(error)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return USAGE
    if isinstance(error, click.UsageError):
        _name_the_source(error)
        said = _usage(error).rstrip(".")
        say(f"{said}{'' if said.endswith('?') else '.'} {_hint(error)}")
        return USAGE
    if isinstance(error, click.ClickException):
        say(error.format_message())
        return error.exit_code
    if isinstance(error, Interrupted):
        say(error.summary)
        return INTERRUPTED + error.signal_number
    if isinstance(error, KeyboardInterrupt | click.Abort):
        say("interrupted")
        return INTERRUPTED + 2
    if isinstance(error, errors.HocketError | OSError):
        notes: list[str] = getattr(error, "__notes__", [])
        say(". ".join([str(error).rstrip(".") or type(error).__name__, *notes]))
    else:
        say(f"unexpected {type(error).__name__}: {error}; --debug shows where it happened")
    return code_of(error)


def no_such(what: str, name: str, known: Iterable[str]) -> str:
    """There is no command, or option, of this name; the nearest one that there is, is named."""
    nearest = get_close_matches(name, known, n=1)
    sentence = f"No such {what} '{name}'."
    return f"{sentence} Did you mean '{nearest[0]}'?" if nearest else sentence


def _usage(error: click.UsageError) -> str:
    if isinstance(error, click.NoSuchOption):
        return no_such("option", error.option_name, error.possibilities or ())
    return error.format_message()


def _name_the_source(error: click.UsageError) -> None:
    """A bad value is that of an option, of a variable, or of a file: name what was given."""
    if not isinstance(error, click.BadParameter) or error.ctx is None or error.param is None:
        return
    if error.param_hint is not None or not isinstance(error.param, click.Option):
        return
    flag = max(error.param.opts, key=len)
    error.param_hint = f"'{flag}'"
    source = error.ctx.get_parameter_source(error.param.name or "")
    if source is ParameterSource.ENVIRONMENT:
        error.param_hint = f"the variable {error.param.envvar} ({flag})"
    elif source is ParameterSource.DEFAULT_MAP:  # as `serve` fills it
        error.param_hint = f"the setting '{flag.lstrip('-')}' in the file of --config"


def _hint(error: click.UsageError) -> str:
    return f"Try '{error.ctx.command_path} --help'." if error.ctx else ""


def check_stdin() -> None:
    """Raise ClickException if there is none, since whoever started us has closed it."""
    if sys.stdin is None:
        raise click.ClickException("stdin is closed, so there is nothing to read")


def silence_stdout() -> None:
    """Point stdout at nothing: its reader has gone, and Python would fail to flush it at exit."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):  # not a file: nothing will be flushed to a pipe
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)
