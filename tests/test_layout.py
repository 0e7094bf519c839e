"""ARCHITECTURE.md draws the folders of the source; the drawing and the folders say the same."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"


def drawn(text: str) -> list[str]:
    """The folders of the first text block below "## Layout": two columns deeper is inside."""
    block = text.split("## Layout", 1)[1].split("```text\n", 1)[1].split("```", 1)[0]
    folders: list[str] = []
    inside: list[str] = []
    for line in block.splitlines():
        name = line.split()[0]
        depth = (len(line) - len(line.lstrip())) // 2
        if name.endswith("/") and depth <= len(inside):
            inside[depth:] = [name.rstrip("/")]
            folders.append("/".join(inside))
    return folders


def existing() -> list[str]:
    """The folders that hold something of ours; caches and build products are not ours."""
    files = (file for ending in ("py", "capnp") for file in SOURCE.rglob(f"*.{ending}"))
    folders = {folder for file in files for folder in file.relative_to(ROOT).parents}
    return sorted(str(folder) for folder in folders if folder != Path())


def rooms() -> list[str]:
    return [folder for folder in existing() if any((ROOT / folder).glob("*.py"))]


def test_the_drawing_and_the_folders_say_the_same():
    text = (ROOT / "docs/ARCHITECTURE.md").read_text()
    assert sorted(drawn(text)) == existing()


def test_a_drawing_with_another_room_would_be_noticed():
    text = "## Layout\n```text\nsrc/\n  hocket/   the package\n    cellar/  not there\n```\n"
    assert drawn(text) == ["src", "src/hocket", "src/hocket/cellar"]


@pytest.mark.parametrize("folder", rooms())
def test_every_room_says_what_is_in_it(folder: str):
    head = ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text()))
    assert head, f"{folder}/__init__.py does not say what is in the folder"
