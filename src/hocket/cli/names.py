"""The names of topics, indexes, users and roles as arguments; shells complete them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from hocket.cli.parameters import Checked
from hocket.cli.server_options import Server
from hocket.model import check_name, check_pattern

if TYPE_CHECKING:
    from hocket.client.faces.blocking.client import Client


class Name(Checked):
    """The name of something that a broker has, or will have; or a pattern of such names."""

    def __init__(
        self,
        what: str,
        known: Callable[[Client, click.Context], list[str]],
        *,
        patterns: bool = False,
    ) -> None:
        def check(value: str) -> str:
            if patterns and "*" in value:
                return check_pattern(value, f"the pattern of the {what}")
            return check_name(value, f"the name of the {what}")

        super().__init__(what, check)
        self._known = known

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem]:
        try:
            with ctx.ensure_object(Server).for_completion().connect() as client:
                names = self._known(client, ctx)
        except Exception:  # noqa: BLE001 - a completion must stay silent, whatever is wrong
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _topics(client: Client, _context: click.Context) -> list[str]:
    return client.topics()


def _indexes(client: Client, context: click.Context) -> list[str]:
    params = context.params
    # Before the value of an option is typed, click has read no argument: all lie in `args`.
    topics = params.get("topics") or [params.get("topic") or context.args[0]]
    return [index.name for index in client.indexes(topics[0])]


def _users(client: Client, _context: click.Context) -> list[str]:
    return [user.name for user in client.access()[0]]


def _roles(client: Client, _context: click.Context) -> list[str]:
    return [role.name for role in client.access()[1]]


TOPIC = Name("topic", _topics)
TOPICS = Name("topic", _topics, patterns=True)
INDEX = Name("index", _indexes)
USER = Name("user", _users)
ROLE = Name("role", _roles)
