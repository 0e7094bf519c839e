"""The plug-ins that an operator asks for, with their settings, as a host that can be attached.

Some settings are every plug-in's: those of `Common`. A plug-in that cannot be used keeps the node
from starting, unless its policy, as set or as the plug-in declares it, is open. One that runs apart
is imported in its own process alone, also to find out what it is.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from hocket.errors import HocketError, OutOfRange
from hocket.model import size_bytes
from hocket.plugins.apart import Apart
from hocket.plugins.found import Loaded, Policy, Unusable, declared_policy, find, load
from hocket.plugins.host import APART, Host
from hocket.plugins.running import FAILURES_MAX, SLOW_MS
from hocket.plugins.settings import settings_of
from hocket.plugins.warden import Ready, setup_of

log = logging.getLogger("hocket.plugins")

DEADLINE_MS = 1_000.0
DEADLINE_MS_MAX = 60_000.0
MEMORY_MAX = "512MiB"
MEMORY_BYTES_MIN = 64 << 20  # less than that is not enough for Python and Hocket


@dataclass(slots=True)
class Common:
    policy: Policy | None = None
    slow_ms: float = SLOW_MS
    failures_max: int = FAILURES_MAX
    for_topics: list[str] = field(default_factory=list)  # patterns, of `on_publish`
    run: Literal["inline", "apart"] = "inline"
    deadline_ms: float = DEADLINE_MS
    memory_max: str | int = MEMORY_MAX


_COMMON = {name.replace("_", "-"): name for name in Common.__dataclass_fields__}
_OF_APART = ("deadline-ms", "memory-max")


def enable(
    names: Sequence[str], tables: Mapping[str, Mapping[str, Any]], apart: Iterable[str] = ()
) -> Host:
    """`apart` are those that run apart, whatever their settings say.

    Raises Unusable for the first one that cannot be used, and without which nothing may run.
    """
    host = Host()
    apart = set(apart)
    for unused in tables.keys() - set(names):
        log.warning("there are settings for plug-in '%s', which is not enabled", unused)
    for unknown in sorted(apart - set(names)):
        raise Unusable(f"plug-in '{unknown}' is to run apart, and is not enabled: name it twice")
    try:
        for name in names:
            if names.count(name) > 1:
                raise Unusable(f"plug-in '{name}' is named twice")
            _enable(host, name, dict(tables.get(name, {})), name in apart)
    except BaseException:
        host.close()  # what runs apart already
        raise
    return host


def _enable(host: Host, name: str, table: dict[str, Any], is_apart: bool) -> None:
    common = {each: table.pop(each) for each in list(table) if each.replace("_", "-") in _COMMON}
    try:
        chosen: Common = settings_of(Common, common)
        memory_bytes = size_bytes(chosen.memory_max, "memory-max")
        _check(chosen, memory_bytes)
        if is_apart:
            chosen.run = "apart"
        unused = [each for each in common if each.replace("_", "-") in _OF_APART]
        if unused and chosen.run != "apart":
            raise OutOfRange(f"the setting '{unused[0]}' is for a plug-in with run = \"apart\"")
    except HocketError as error:
        raise Unusable(f"plug-in '{name}': {error}") from error
    process = None
    try:
        if chosen.run == "apart":
            loaded, process = start_apart(
                name, table, chosen.policy, deadline_ms=chosen.deadline_ms,
                memory_bytes=memory_bytes,
            )  # fmt: skip
        else:
            loaded = load(find(name), table, chosen.policy)
    except Unusable as error:
        policy = chosen.policy
        if policy is None:
            policy = "closed" if chosen.run == "apart" else declared_policy(name)
        if policy == "closed":
            raise
        log.warning("the node starts without a plug-in: %s", error)
        return
    host.add(
        loaded, slow_ms=chosen.slow_ms, failures_max=chosen.failures_max,
        topics=chosen.for_topics, digest=digest_of(table, chosen.for_topics), apart=process,
    )  # fmt: skip
    log.info(
        "plug-in '%s' %s is on%s: %s; policy %s",
        name, loaded.version, "" if process is None else ", in a process of its own",
        ", ".join(loaded.functions), loaded.policy,
    )  # fmt: skip


def start_apart(
    name: str,
    settings: Mapping[str, Any],
    policy: Policy | None,
    *,
    deadline_ms: float = DEADLINE_MS,
    memory_bytes: int = size_bytes(MEMORY_MAX),
    place: str = "",
) -> tuple[Loaded, Apart]:
    """A plug-in in a process of its own that is ready. Raises Unusable."""
    if not place:
        find(name)  # else a process would be started to say that it is not there
    setup = setup_of(
        name, place=place, settings=dict(settings), policy=policy, memory_bytes=memory_bytes
    )
    process = Apart(name, setup, deadline_ms / 1_000)
    ready: Ready = process.start()
    not_apart = [each for each in ready.hooks if each not in APART and each != "command"]
    if not_apart:
        process.close()
        raise Unusable(
            f"plug-in '{name}' cannot run apart: the node cannot wait for another process in "
            f"{not_apart[0]}; run it inline"
        )
    known: Policy = "open" if ready.policy == "open" else "closed"
    functions = dict.fromkeys(each for each in ready.hooks if each in APART)
    return Loaded(name, ready.version, known, functions), process


def digest_of(settings: Mapping[str, Any], topics: Sequence[str]) -> str:
    """Of what decides how records are changed; two nodes with the same have the same settings."""
    same = {key.replace("_", "-"): value for key, value in settings.items()}
    text = json.dumps([same, list(topics)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _check(chosen: Common, memory_bytes: int) -> None:
    if not 0 <= chosen.slow_ms < math.inf:
        raise OutOfRange(f"the setting 'slow-ms' is 0 or more, not {chosen.slow_ms:g}")
    if chosen.failures_max < 1:
        raise OutOfRange(f"the setting 'failures-max' is 1 or more, not {chosen.failures_max}")
    if not 1 <= chosen.deadline_ms <= DEADLINE_MS_MAX:
        raise OutOfRange(
            f"the setting 'deadline-ms' is 1 to {DEADLINE_MS_MAX:.0f}, not {chosen.deadline_ms:g}"
        )
    if memory_bytes < MEMORY_BYTES_MIN:
        raise OutOfRange(
            f"the setting 'memory-max' is {MEMORY_BYTES_MIN >> 20}MiB or more, not "
            f"{chosen.memory_max}"
        )
