"""The client's cores do no I/O, start no thread, read no clock, log nothing: by their imports."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import hocket.client_core

HOME = Path(hocket.client_core.__file__).parent
FORBIDDEN = {"asyncio", "logging", "os", "select", "socket", "ssl", "threading", "time"}
CORES = sorted(HOME.rglob("*.py"))


@pytest.mark.parametrize("path", CORES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_core_imports_nothing_of_the_world(path: Path):
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            imported.add(node.module.partition(".")[0])
            assert not node.module.startswith("hocket.adapters"), node.module
    assert not imported & FORBIDDEN


def test_what_is_looked_at_holds_the_cores():
    names = {f"{path.parent.name}/{path.stem}" for path in CORES}
    assert {"session/session", "producing/core", "consuming/core", "sharing/core"} <= names
