"""Our click commands: their help has examples and a section on connecting, and all take `--debug`.

`Program` is the root. It replaces click's own `main`, so that every error goes through
`exits.report`, in a process as in a test.

Rule 1: only commands import `hocket.cli.commands`; all else in `hocket.cli` has a command loaded
here, by name, when it is asked for.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any, NoReturn

import click
from click.shell_completion import shell_complete

from hocket.cli import exits

PROGRAM = "hocket"
COMPLETE_VARIABLE = "_HOCKET_COMPLETE"
_DEBUG = "hocket.debug"  # a key of the context's meta, which parent and child share


class ServerOption(click.Option):
    """An option about reaching the broker; the help has a section for these."""


def _remember_debug(context: click.Context, _option: click.Parameter, value: bool) -> None:
    if value:
        context.meta[_DEBUG] = True
        logger = logging.getLogger("hocket")
        context.call_on_close(partial(logger.setLevel, logger.level))
        logger.setLevel(logging.DEBUG)


def _debug_option() -> click.Option:
    return click.Option(
        ["--debug"],
        is_flag=True,
        expose_value=False,
        callback=_remember_debug,
        help="Show the traceback of an error, and log in detail.",
    )


def is_debugging(context: click.Context | None) -> bool:
    return context is not None and bool(context.meta.get(_DEBUG))


class Command(click.Command):
    """A click command with `examples`: lines that its help shows as they are.

    With `variables`, every option has an environment variable: that prefix and the option's name.
    """

    def __init__(self, *args: Any, examples: str = "", variables: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(_debug_option())
        if variables:
            _name_variables(self.params, variables)
        self._examples = examples.strip("\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _format_options(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _format_examples(self._examples, formatter)
        super().format_epilog(ctx, formatter)


def _name_variables(parameters: list[click.Parameter], prefix: str) -> None:
    for each in parameters:
        if isinstance(each, click.Option) and each.envvar is None:
            flag = max(each.opts, key=len).lstrip("-")
            each.envvar = f"{prefix}_{flag.replace('-', '_').upper()}"
            each.show_envvar = True


class Group(click.Group):
    command_class = Command

    def __init__(self, *args: Any, examples: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._examples = examples.strip("\n")

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.commands)  # in the order in which we define them, not by name

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, but that a slip is met with the nearest of all our names."""
        name = args[0]
        is_command = ctx.resilient_parsing or name.startswith("-")
        if not is_command and self.get_command(ctx, name) is None:
            raise click.UsageError(exits.no_such("command", name, self.list_commands(ctx)), ctx)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        _format_options(self, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _format_examples(self._examples, formatter)
        super().format_epilog(ctx, formatter)


def _format_options(
    command: click.Command, context: click.Context, formatter: click.HelpFormatter
) -> None:
    sections: dict[str, list[tuple[str, str]]] = {"Options": [], "Connection": []}
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None and isinstance(parameter, click.Option):
            title = "Connection" if isinstance(parameter, ServerOption) else "Options"
            sections[title].append(record)
    for title, records in sections.items():
        if records:
            with formatter.section(title):
                formatter.write_dl(records)


def _format_examples(examples: str, formatter: click.HelpFormatter) -> None:
    if examples:
        with formatter.section("Examples"):
            for line in examples.splitlines():
                formatter.write(f"  {line}".rstrip() + "\n")


class Program(Group):
    """The root of all commands.

    Each of `names` is a module of `hocket.cli.commands` with a command of the same name. What else
    there is comes from plug-ins: they are loaded for `--help`, and for names that are none of ours.
    """

    def __init__(self, *args: Any, names: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.append(_debug_option())
        self._names = names

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        from hocket.plugins.commands import command_names

        return [*self._names, *(each for each in command_names() if each not in self._names)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self._names:
            from hocket.plugins.commands import command_of

            return command_of(cmd_name)
        command: click.Command = getattr(import_module(f"hocket.cli.commands.{cmd_name}"), cmd_name)
        return command

    def main(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,  # noqa: ARG002 - the name is fixed, however we were started
        **_extra: Any,
    ) -> NoReturn:
        """Run the command, and end the process with its exit code (by SystemExit)."""
        instruction = os.environ.get(COMPLETE_VARIABLE)
        if instruction:
            sys.exit(shell_complete(self, {}, PROGRAM, COMPLETE_VARIABLE, instruction))
        sys.exit(self._run(list(sys.argv[1:] if args is None else args)))

    def _run(self, args: list[str]) -> int:
        context: click.Context | None = None
        try:
            context = self.make_context(PROGRAM, args)
            with context:
                self.invoke(context)
            if sys.stdout is not None:  # None: whoever started us has closed it
                sys.stdout.flush()  # here, where an error can still be reported
        except click.exceptions.Exit as end:
            return end.exit_code
        except BrokenPipeError:  # `| head` has seen enough
            exits.silence_stdout()
            return 0
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the last one to catch it
            return exits.report(error, debug=is_debugging(context))
        return 0
