"""`hocket pipeline init`: writes a pipeline's directory out, as files to be changed."""

from __future__ import annotations

import json
import shutil
from importlib import resources
from pathlib import Path

from hocket.model import check_name
from hocket.pipelines.faults import PipelineFault

BUILT_IN = ("archive", "replay", "aggregate", "route")
PLAIN = "plain"

_SPEC = """\
# A declarative pipeline of Spark. `hocket pipeline run` runs it, and so does `spark-pipelines run`.
name: {name}
storage: {storage}
libraries:
  - glob:
      include: transformations/**
"""


def make(
    name: str, parent: Path, *, kind: str, topic: str | None, to: str | None, lake: Path | None
) -> tuple[Path, list[str]]:
    """Write the directory `name`; returns it, and the topics that the pipeline needs.

    Nothing is left of it if a file cannot be written.
    """
    check_name(name, "a pipeline's name")
    directory = parent.resolve() / name
    if directory.exists():
        raise PipelineFault(f"{directory} is there already; choose another name, or remove it")
    words = {
        "TOPIC": check_name(topic or f"{name}.in"),
        "TO": check_name(to or f"{name}.out"),
        "LAKE": str((lake or directory / "lake").resolve()),
    }
    text = (resources.files("hocket.pipelines.templates") / f"{kind}.py").read_text()
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    try:
        (directory / "transformations").mkdir(parents=True)
        file = f"{name if kind == PLAIN else kind}".replace(".", "_").replace("-", "_")
        (directory / "transformations" / f"{file}.py").write_text(text)
        storage = json.dumps(f"file://{directory / 'state'}", ensure_ascii=False)
        (directory / "spark-pipeline.yml").write_text(_SPEC.format(name=name, storage=storage))
        (directory / ".gitignore").write_text("state/\nlake/\n")
    except OSError:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    return directory, _topics(kind, words["TOPIC"], words["TO"])


def _topics(kind: str, topic: str, to: str) -> list[str]:
    return {
        "archive": [topic],
        "replay": [to],
        "aggregate": [topic, to, f"{topic}.misfits"],
        "route": [topic, f"{to}.large", f"{to}.small", f"{topic}.misfits"],
    }.get(kind, [topic, to])
