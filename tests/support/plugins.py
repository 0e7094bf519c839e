"""Packages with plug-ins, as an installer would leave them."""

from __future__ import annotations

from pathlib import Path


def package(path: Path, name: str, source: str) -> None:
    """A package that offers `Plugin` of `source` as plug-in `name`; `path` is to be importable."""
    module = f"{name}_of_the_tests"
    (path / f"{module}.py").write_text(source)
    info = path / f"{name}_package-1.5.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-package\nVersion: 1.5\n")
    (info / "entry_points.txt").write_text(f"[hocket.plugins]\n{name} = {module}:Plugin\n")
