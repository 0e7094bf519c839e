"""The plug-ins that an operator asks for, with their settings, as a host that can be attached.

Three settings are every plug-in's: `policy`, `slow-ms` and `failures-max`. A plug-in that cannot be
used keeps the node from starting, unless its policy, as set or as the plug-in declares it, is open.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hocket.errors import OutOfRange
from hocket.plugins.found import Policy, Unusable, declared_policy, find, load
from hocket.plugins.host import FAILURES_MAX, SLOW_MS, Host
from hocket.plugins.settings import settings_of

log = logging.getLogger("hocket.plugins")


@dataclass(slots=True)
class Common:
    policy: Policy | None = None
    slow_ms: float = SLOW_MS
    failures_max: int = FAILURES_MAX


_COMMON = {name.replace("_", "-"): name for name in Common.__dataclass_fields__}


def enable(names: Sequence[str], tables: Mapping[str, Mapping[str, Any]]) -> Host:
    """Raises Unusable for the first one that cannot be used, and without which nothing may run."""
    host = Host()
    for unused in tables.keys() - set(names):
        log.warning("there are settings for plug-in '%s', which is not enabled", unused)
    for name in names:
        if names.count(name) > 1:
            raise Unusable(f"plug-in '{name}' is named twice")
        _enable(host, name, dict(tables.get(name, {})))
    return host


def _enable(host: Host, name: str, table: dict[str, Any]) -> None:
    common = {each: table.pop(each) for each in list(table) if each.replace("_", "-") in _COMMON}
    try:
        chosen = settings_of(Common, common)
    except OutOfRange as error:
        raise Unusable(f"plug-in '{name}': {error}") from error
    try:
        loaded = load(find(name), table, chosen.policy)
    except Unusable as error:
        if (chosen.policy or declared_policy(name)) == "closed":
            raise
        log.warning("the node starts without a plug-in: %s", error)
        return
    host.add(loaded, slow_ms=chosen.slow_ms, failures_max=chosen.failures_max)
    log.info(
        "plug-in '%s' %s is on: %s; policy %s",
        name, loaded.version, ", ".join(loaded.functions), loaded.policy,
    )  # fmt: skip
