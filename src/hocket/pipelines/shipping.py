"""Hocket for the machines of a cluster that do not have it: an archive that Spark unpacks there.

The archive holds the package and those of its dependencies that Spark does not bring itself. On
each machine it is unpacked beside the task, and the Python there finds it by its path. (Files that
`--py-files` ships reach neither the planning of sources nor the driver's side of a stream.)
"""

from __future__ import annotations

import os
import sys
import tarfile
from importlib import metadata
from pathlib import Path

from hocket.pipelines.faults import PipelineFault
from hocket.version import __version__

FOLDER = "hocket-shipped"
PACKAGES = ("crc32c", "lz4", "pycapnp", "xxhash", "zstandard")
OURS = ("hocket", "pyspark_hocket")


def shipped(folder: Path) -> dict[str, str]:
    """The settings of Spark that ship Hocket; the archive is made in this folder."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    archive = folder / f"hocket-{__version__}-py{python}.tar.gz"
    folder.mkdir(parents=True, exist_ok=True)
    new = archive.with_suffix(".new")
    with tarfile.open(new, "w:gz", compresslevel=1) as tar:
        for path, name in sorted(_contents().items(), key=lambda item: item[1]):
            tar.add(path, name, recursive=False)
    os.replace(new, archive)
    return {
        "spark.archives": f"{archive}#{FOLDER}",
        "spark.executorEnv.PYTHONPATH": FOLDER,
    }


def _contents() -> dict[Path, str]:
    """Files, by the names that they get in the archive."""
    found: dict[Path, str] = {}
    source = Path(__file__).parents[2]
    for package in OURS:
        for path in (source / package).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                found[path] = str(path.relative_to(source))
    for package in PACKAGES:
        try:
            files = metadata.files(package) or []
        except metadata.PackageNotFoundError:
            raise PipelineFault(
                f"{package} is not installed as a package, so it cannot be sent along; install "
                "Hocket on all machines, and use --no-ship"
            ) from None
        for file in files:
            path = Path(str(file.locate()))
            if ".." not in file.parts and path.is_file() and "__pycache__" not in path.parts:
                found[path] = str(file)
    return found
