"""`hocket completion`: prints the script with which a shell completes our commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from hocket.cli.command import COMPLETE_VARIABLE, PROGRAM, Command

INSTALL = {
    "bash": f"hocket completion bash > ~/.local/share/bash-completion/completions/{PROGRAM}",
    "zsh": f'hocket completion zsh > "${{fpath[1]}}/_{PROGRAM}"',
    "fish": f"hocket completion fish > ~/.config/fish/completions/{PROGRAM}.fish",
}


@click.command(
    cls=Command,
    examples="".join(f"\n$ {line}" for line in INSTALL.values())
    + '\n$ eval "$(hocket completion bash)"            # for this shell only',
)
@click.argument("shell", type=click.Choice(list(INSTALL)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for SHELL, which says at its end how to install it.

    The script completes commands, options, and the names of topics and indexes. For the names it
    asks the broker that a command would use (--server, HOCKET_SERVER, or the context), and stays
    silent if that cannot be reached.
    """
    kind = get_completion_class(shell)
    assert kind is not None  # click knows all of INSTALL
    script = kind(context.find_root().command, {}, PROGRAM, COMPLETE_VARIABLE).source()
    click.echo(f"{script.strip()}\n\n# To install it: {INSTALL[shell]}")
