"""Plug-ins are found by their entry points; what is wrong with one is said in one line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from hocket.errors import OutOfRange
from hocket.plugins import hook
from hocket.plugins.enabling import enable
from hocket.plugins.found import Unusable, describe, make
from hocket.plugins.installed import installed
from hocket.plugins.settings import settings_of
from tests.support.plugins import package


@dataclass
class Settings:
    directory: Path
    limit: int = 5
    share: float = 0.5
    mode: Literal["a", "b"] = "a"
    names: list[str] = field(default_factory=list)
    rates: dict[str, float] = field(default_factory=dict)
    owner: str | None = None
    strict: bool = False
    dry_run: bool = False


def test_settings_are_made_by_their_dataclass():
    made = settings_of(
        Settings,
        {"directory": "/x", "share": 1, "mode": "b", "names": ["n"], "rates": {"r": 2},
         "owner": "o", "strict": True},
    )  # fmt: skip
    assert made == Settings(Path("/x"), 5, 1.0, "b", ["n"], {"r": 2.0}, "o", True)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "'directory' is missing"),
        ({"directory": "/x", "limits": 1}, "'limits' is unknown; there are: directory, limit"),
        ({"directory": 3}, "'directory' must be a path, not 3"),
        ({"directory": "/x", "limit": "5"}, "'limit' must be a whole number, not '5'"),
        ({"directory": "/x", "limit": True}, "'limit' must be a whole number, not True"),
        ({"directory": "/x", "mode": "c"}, "'mode' must be 'a' or 'b', not 'c'"),
        ({"directory": "/x", "names": ["n", 3]}, "'names.1' must be a text, not 3"),
        ({"directory": "/x", "owner": 3}, "'owner' must be a text, not 3"),
        ({"directory": "/x", "dry-run": True, "dry_run": False}, "'dry_run' is set twice"),
    ],
)
def test_a_wrong_setting_is_named(given: dict[str, object], words: str):
    with pytest.raises(OutOfRange, match=words):
        settings_of(Settings, given)


class Plain:
    api = 1

    @hook
    def on_close(self) -> None: ...


class Newer(Plain):
    api = 2


class Silent:
    @hook
    def on_close(self) -> None: ...


class Unheard:
    api = 1

    @hook
    def on_thursday(self) -> None: ...


class WrongArgument:
    api = 1

    @hook
    def on_publish(self, message: object) -> None: ...


class Empty:
    api = 1


class Breaks(Plain):
    def __init__(self) -> None:
        raise RuntimeError("no licence")


class Leaves:
    api = 1

    def __init__(self) -> None:
        raise SystemExit(4)

    @hook
    def on_close(self) -> None: ...


class Later:
    api = 1

    @hook
    async def on_publish(self, batch: object) -> None:
        raise AssertionError("nobody would wait for this")


class Yields:
    api = 1

    @hook
    def on_publish(self, batch: object) -> Iterator[None]:
        yield


@pytest.mark.parametrize(
    ("offered", "settings", "words"),
    [
        (Later, {}, "on_publish is asynchronous or a generator"),
        (Yields, {}, "on_publish is asynchronous or a generator"),
        (Newer, {}, "is for version 2, and this broker has version 1"),
        (Silent, {}, "does not say `api"),
        (Unheard, {}, "wants a hook that is not there.*on_thursday"),
        (WrongArgument, {}, "wants a hook that is not there.*message"),
        (Empty, {}, "has no hook"),
        (Breaks, {}, "cannot be started: RuntimeError: no licence"),
        (Leaves, {}, "cannot be started: SystemExit: 4"),
        (Plain, {"x": 1}, "has no settings, and 'x' is set"),
    ],
)
def test_a_plugin_that_does_not_fit_says_why_in_one_line(offered, settings, words: str):
    with pytest.raises(Unusable, match=f"plug-in 'p'.*{words}") as caught:
        make("p", offered, settings)
    assert "\n" not in str(caught.value)


def test_installed_packages_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    package(tmp_path, "tuner", "class Plugin:\n    import hocket.plugins as p\n    api = 1\n"
            "    policy = 'open'\n    @p.hook\n    def on_close(self): pass\n")  # fmt: skip
    package(tmp_path, "broken", "import nothing_of_that_name\n")
    package(tmp_path, "hostile", "class Meta(type):\n    @property\n    def api(cls): 1 / 0\n"
            "class Plugin(metaclass=Meta): pass\n")  # fmt: skip
    monkeypatch.syspath_prepend(tmp_path)
    by_name = {each.name: each for each in map(describe, installed())}
    assert by_name["tuner"].package == "tuner-package"
    assert by_name["tuner"].version == "1.5"
    assert (by_name["tuner"].hooks, by_name["tuner"].policy) == (("on_close",), "open")
    assert "cannot be imported: ModuleNotFoundError" in by_name["broken"].problem
    assert "cannot be imported: ZeroDivisionError" in by_name["hostile"].problem


def test_one_that_cannot_be_used_keeps_a_node_from_starting_unless_it_may_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    package(tmp_path, "broken", "import nothing_of_that_name\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Unusable, match="cannot be imported"):
        enable(["broken"], {})
    host = enable(["broken"], {"broken": {"policy": "open"}, "other": {}})
    assert host.plugins == []
    assert "the node starts without a plug-in: plug-in 'broken' cannot be imported" in caplog.text
    assert "settings for plug-in 'other', which is not enabled" in caplog.text
    with pytest.raises(Unusable, match=r"'nowhere' is not installed; there are: .*broken"):
        enable(["nowhere"], {})
    with pytest.raises(Unusable, match="named twice"):
        enable(["broken", "broken"], {"broken": {"policy": "open"}})
    with pytest.raises(Unusable, match="'policy' must be 'open' or 'closed', not 'ajar'"):
        enable(["broken"], {"broken": {"policy": "ajar"}})
