"""The simulator has no logic of the system of its own: it drives the production node."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import hocket

SOURCE = Path(hocket.__file__).parent
SIMULATOR = sorted((SOURCE / "sim").rglob("*.py"))
MUTANTS = SOURCE / "sim" / "mutants"  # they break the cores on purpose, so they know them
VALUES = (
    "hocket.core.ring.circle",
    "hocket.core.ring.contact",
    "hocket.core.ring.events",
    "hocket.core.ring.messages",
    "hocket.core.ring.settings",
    "hocket.core.relay.events",
    "hocket.core.relay.messages",
    "hocket.core.relay.settings",
    "hocket.core.group0.settings",
)


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def defined(path: Path) -> list[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [node.name for node in ast.walk(tree(path)) if isinstance(node, kinds)]


def called(path: Path) -> list[str]:
    return [
        node.func.attr
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]


def imported(path: Path) -> Iterator[str]:
    """Modules, and what is taken from them, which may be a module too. Not for types alone."""
    for_types = [
        each
        for node in ast.walk(tree(path))
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for each in node.body
    ]
    lines = {each.lineno for each in for_types}
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import) and node.lineno not in lines:
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.lineno not in lines:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def module(path: Path) -> str:
    return ".".join(["hocket", *path.relative_to(SOURCE).with_suffix("").parts])


CORES = [
    module(path) for path in sorted((SOURCE / "core").rglob("*.py")) if "step" in defined(path)
]


def test_what_is_looked_for_is_there():
    assert {
        "hocket.core.ring.ring",
        "hocket.core.relay.relay",
        "hocket.core.partition.partition",
    } <= set(CORES)
    assert len(SIMULATOR) > 10


@pytest.mark.parametrize("path", SIMULATOR, ids=module)
def test_the_simulator_defines_no_step_and_takes_none(path):
    assert "step" not in defined(path)
    if MUTANTS not in path.parents:
        assert "step" not in called(path)


@pytest.mark.parametrize("path", SIMULATOR, ids=module)
def test_the_simulator_knows_no_core_but_by_its_driver(path):
    if MUTANTS in path.parents:
        return
    names = list(imported(path))
    assert not [core for core in CORES if core in names]


def test_the_simulator_drives_the_production_node():
    machine = list(imported(SOURCE / "sim" / "machine.py"))
    assert "hocket.node.cluster.cluster_node" in machine


def test_checkers_stand_on_values_alone():
    for path in [SOURCE / "sim" / "ring_view.py", *(SOURCE / "sim" / "checkers").glob("*.py")]:
        for name in imported(path):
            if name.startswith("hocket.core"):
                assert name.startswith(VALUES), f"{module(path)} imports {name}"


def test_every_checker_is_a_file_named_as_its_sentence():
    from hocket.sim import checkers

    for kind in checkers.CHECKERS:
        assert (SOURCE / "sim" / "checkers" / f"{kind.name}.py").exists()
        assert kind.__name__ == "".join(word.capitalize() for word in kind.name.split("_"))
        assert kind.sentence.endswith(".")
