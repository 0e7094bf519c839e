"""ARCHITECTURE.md draws the folders of the source; the drawing and the folders say the same."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
LINES_MAX = 600  # a file is read in one sitting


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


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def named_files(text: str) -> list[tuple[str, str]]:
    """What a text names as `folder/file.py` or `folder/file.py::test`, within backticks."""
    return re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", text)


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_that_a_document_names_is_there(document: Path):
    """A path is written from the root, from `src/hocket`, or, for tests, from `tests`."""
    homes = (ROOT, SOURCE, SOURCE / "hocket", ROOT / "tests", document.parent)
    text = document.read_text()
    for name, test in named_files(text):
        found = [home / name for home in homes if (home / name).is_file()]
        bare = "/" not in name and any(ROOT.rglob(name))  # beside the file named before it
        shown = f"```python\n# {name}\n" in text  # for the reader to save
        assert found or bare or shown, f"{name} is not there"
        if test and found:
            defined = re.compile(rf"^\s*(?:async def|def|class) {test}\b", re.MULTILINE)
            assert any(defined.search(file.read_text()) for file in found), f"{name}::{test}"


def test_a_document_that_names_a_missing_file_would_be_noticed():
    assert named_files("see `core/nowhere.py` and `node/test_x.py::test_y`") == [
        ("core/nowhere.py", ""),
        ("node/test_x.py", "test_y"),
    ]


def test_no_file_is_too_long_to_be_read_in_one_sitting():
    lengths = {
        str(file.relative_to(ROOT)): len(file.read_text().splitlines())
        for file in SOURCE.rglob("*.py")
    }
    assert {file: length for file, length in lengths.items() if length > LINES_MAX} == {}
