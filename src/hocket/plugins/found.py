"""Which plug-ins are installed, and one of them loaded and looked at.

What is wrong with a plug-in is said in one line, and is never raised as anything but `Unusable`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint
from typing import Any, Literal

import pluggy

from hocket.errors import HocketError, OutOfRange
from hocket.plugins import specs
from hocket.plugins.installed import installed
from hocket.plugins.settings import settings_of

Policy = Literal["open", "closed"]
POLICIES: tuple[Policy, ...] = ("open", "closed")


class Unusable(HocketError):
    """A plug-in cannot be used; the message names it and says why."""


@dataclass(slots=True)
class Installed:
    """A plug-in that a package offers, as `hocket plugin list` shows it."""

    name: str
    package: str
    version: str
    hooks: tuple[str, ...] = ()
    policy: str = ""
    settings: tuple[str, ...] = ()
    problem: str = ""  # why it cannot be used


@dataclass(slots=True)
class Loaded:
    """A plug-in that is ready to be called."""

    name: str
    version: str
    policy: Policy
    functions: dict[str, Any] = field(default_factory=dict)  # by hook: takes all of its arguments


def describe(point: EntryPoint) -> Installed:
    """Loads the plug-in to say which hooks it has, but makes nothing of it."""
    package, version = _origin(point)
    shown = Installed(point.name, package, version)
    try:
        offered = offered_by(point)
        hooks = _hooks_of(point.name, offered)
    except Unusable as error:
        shown.problem = str(error)
    else:
        shown.hooks = tuple(name for name in specs.HOOKS if name in hooks)
        shown.policy = _policy_of(offered)
        schema = getattr(offered, "Settings", None)
        shown.settings = tuple(getattr(schema, "__dataclass_fields__", ()))
    return shown


def find(name: str) -> EntryPoint:
    for each in installed():
        if each.name == name:
            return each
    names = ", ".join(each.name for each in installed()) or "none"
    raise Unusable(f"plug-in '{name}' is not installed; there are: {names}")


def offered_by(point: EntryPoint) -> Any:
    """The class or module that the entry point names, its version checked. Raises Unusable."""
    try:
        offered = point.load()
        for name in ("api", "policy", "Settings"):
            getattr(offered, name, None)  # what raises here would raise wherever it is looked at
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise Unusable(
            f"plug-in '{point.name}' cannot be imported: {type(error).__name__}: {error}"
        ) from error
    check_version(point.name, offered)
    return offered


def check_version(name: str, offered: Any) -> None:
    version = getattr(offered, "api", None)
    if version != specs.API:
        said = f"is for version {version!r}" if version is not None else "does not say `api = ...`"
        raise Unusable(
            f"plug-in '{name}' {said}, and this broker has version {specs.API} of the hooks; "
            "install a release of the two that fit"
        )


def load(point: EntryPoint, settings: Mapping[str, Any], policy: Policy | None = None) -> Loaded:
    """A plug-in with its settings. Raises Unusable."""
    _package, version = _origin(point)
    return make(point.name, offered_by(point), settings, version=version, policy=policy)


def make(
    name: str,
    offered: Any,
    settings: Mapping[str, Any],
    *,
    version: str = "",
    policy: Policy | None = None,
) -> Loaded:
    check_version(name, offered)
    functions = _hooks_of(name, offered)
    plugin = offered
    if inspect.isclass(offered):
        plugin = _instance(name, offered, settings)
        functions = _hooks_of(name, plugin)
    elif settings:
        raise Unusable(f"plug-in '{name}' is a module, which has no settings")
    return Loaded(name, version, policy or _policy_of(offered), functions)


def static_hook(point: EntryPoint, hook: str) -> Any:
    """A hook that is called without an object; None: it has none. Raises Unusable."""
    return _hooks_of(point.name, offered_by(point)).get(hook)


def _instance(name: str, offered: type, settings: Mapping[str, Any]) -> Any:
    schema = getattr(offered, "Settings", None)
    if schema is None and settings:
        raise Unusable(f"plug-in '{name}' has no settings, and '{next(iter(settings))}' is set")
    try:
        return offered() if schema is None else offered(settings_of(schema, settings))
    except OutOfRange as error:
        raise Unusable(f"plug-in '{name}': {error}") from error
    except BaseException as error:  # SystemExit, too: it would end the node without a word
        if isinstance(error, KeyboardInterrupt):
            raise
        raise Unusable(
            f"plug-in '{name}' cannot be started: {type(error).__name__}: {error}"
        ) from error


def declared_policy(name: str) -> Policy:
    """What the plug-in says of itself; closed if it cannot be asked."""
    try:
        return _policy_of(offered_by(find(name)))
    except Unusable:
        return "closed"


def _policy_of(offered: Any) -> Policy:
    policy: Policy = getattr(offered, "policy", "closed")
    return policy if policy in POLICIES else "closed"


def _hooks_of(name: str, plugin: Any) -> dict[str, Any]:
    """By hook, a function of all arguments of the hook. Raises Unusable for hooks unknown here."""
    manager = pluggy.PluginManager("hocket")
    manager.add_hookspecs(specs)
    try:
        manager.register(plugin, name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        text = " ".join(str(error).split())
        raise Unusable(f"plug-in '{name}' wants a hook that is not there: {text}") from error
    found = {}
    for hook in specs.HOOKS:
        for implementation in getattr(manager.hook, hook).get_hookimpls():
            _check_plain(name, hook, implementation.function)
            arguments = tuple(inspect.signature(getattr(specs, hook)).parameters)
            found[hook] = _taking_all(implementation.function, arguments, implementation.argnames)
    if not found:
        raise Unusable(f"plug-in '{name}' has no hook; mark its methods with hocket.plugins.hook")
    return found


def _check_plain(name: str, hook: str, function: Any) -> None:
    """Raises Unusable for what a call only begins: it would judge nothing, and nobody would see."""
    kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    if any(is_kind(function) for is_kind in kinds):
        raise Unusable(
            f"plug-in '{name}': {hook} is asynchronous or a generator, and the node calls plain "
            "functions; write it with `def`, and without `yield`"
        )


def _taking_all(function: Any, arguments: tuple[str, ...], taken: tuple[str, ...]) -> Any:
    """Pluggy lets a plug-in take fewer arguments; most take all of them, and cost no more."""
    if tuple(taken) == arguments:
        return function
    places = [arguments.index(name) for name in taken]
    return lambda *given: function(*(given[place] for place in places))


def _origin(point: EntryPoint) -> tuple[str, str]:
    return ("", "") if point.dist is None else (point.dist.name, point.dist.version)
