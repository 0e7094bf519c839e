"""The entry points of plug-ins, looked up without loading any of them."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

GROUP = "hocket.plugins"


def installed() -> list[EntryPoint]:
    """By name; of two with one name the first that is found counts."""
    found: dict[str, EntryPoint] = {}
    for each in entry_points(group=GROUP):
        found.setdefault(each.name, each)
    return [found[name] for name in sorted(found)]
