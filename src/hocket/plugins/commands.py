"""The commands that plug-ins add to `hocket`.

A plug-in that cannot be loaded costs its own command alone: the others go on, and it is named in
the log. A name of Hocket's own commands is never a plug-in's.
"""

from __future__ import annotations

import logging
from importlib.metadata import EntryPoint

import click

from hocket.plugins.installed import installed

log = logging.getLogger("hocket.plugins")


def command_names() -> list[str]:
    return [point.name for point in installed() if _command_of(point) is not None]


def command_of(name: str) -> click.Command | None:
    """The command that the plug-in of this name adds; None: it adds none, or is not there."""
    return next((_command_of(point) for point in installed() if point.name == name), None)


def _command_of(point: EntryPoint) -> click.Command | None:
    from hocket.plugins.found import Unusable, static_hook  # late: often there is no plug-in

    try:
        make = static_hook(point, "command")
        if make is None:
            return None
        found = make()
    except Unusable as error:
        log.warning("%s", error)
        return None
    except Exception as error:  # noqa: BLE001 - a plug-in is in nobody else's way
        log.warning(
            "plug-in '%s' has no usable command: %s: %s", point.name, type(error).__name__, error
        )
        return None
    if isinstance(found, click.Command):
        return found
    log.warning("plug-in '%s' offers %r as its command, not one of click", point.name, found)
    return None
