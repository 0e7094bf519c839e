"""A pipeline's directory: its specification, its files, and where it keeps its state.

The specification is Spark's `spark-pipeline.yml`. Everything that a pipeline keeps lies under its
storage: checkpoints (Spark's), tables and their catalogue, logs, and a note of whose state it is.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hocket.errors import HocketError
from hocket.model import check_name
from hocket.pipelines.faults import PipelineFault, Place

SPEC_NAMES = ("spark-pipeline.yml", "spark-pipeline.yaml")
FIELDS = ("name", "storage", "catalog", "database", "schema", "configuration", "libraries")
STATIC = ("spark.ui.", "spark.sql.catalogImplementation", "spark.master", "spark.driver.")
SUFFIXES = (".py", ".sql")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
# Spark quotes these in the path of a storage, as in URIs, and takes what comes of it for the path.
_ODD = re.compile(r'[\s\x00-\x1f"<>\\^`{|}%#?\[\]]')
OWNER = "pipeline.json"  # within the storage: which pipeline it belongs to


@dataclass(frozen=True, slots=True)
class Project:
    directory: Path
    spec: Path
    name: str
    storage: str  # a URI, as Spark wants it
    catalog: str | None
    database: str | None
    configuration: dict[str, str]
    files: tuple[Path, ...]  # in the order of their names

    @property
    def state(self) -> Path:
        """Where the catalogue, the tables and the logs are: always on this machine."""
        path = local_path(self.storage)
        return path if path is not None else self.directory / "state"

    @property
    def log(self) -> Path:
        return self.state / "logs" / "spark.log"

    def claim(self, cluster: str) -> None:
        """Note whose state this is. Raises PipelineFault if it is that of another pipeline."""
        if not self.check_owner(cluster):
            mine = {"pipeline": self.name, "cluster": cluster}
            self.state.mkdir(parents=True, exist_ok=True)
            (self.state / OWNER).write_text(json.dumps(mine) + "\n")

    def check_owner(self, cluster: str) -> bool:
        """Whether the state is known to be ours; False: nobody has claimed it.

        Raises PipelineFault if it is that of another pipeline.
        """
        note = self.state / OWNER
        try:
            found = json.loads(note.read_text())
        except FileNotFoundError:
            return False
        except (ValueError, OSError):
            raise self._no_state() from None
        if not isinstance(found, dict):
            raise self._no_state()
        if found.get("pipeline") != self.name:
            raise PipelineFault(
                f"{self.place('storage')}: the state in {self.state} is of the pipeline "
                f"{found.get('pipeline')!r}, with its checkpoints, and this one is {self.name!r}. "
                "Give each pipeline a storage of its own"
            )
        if cluster and found.get("cluster") and found["cluster"] != cluster:
            raise PipelineFault(
                f"{self.place('storage')}: the state in {self.state} is of a pipeline on cluster "
                f"{found['cluster']}, whose offsets mean nothing on cluster {cluster}. Go back to "
                "that cluster, or begin anew with another storage"
            )
        return True

    def _no_state(self) -> PipelineFault:
        return PipelineFault(
            f"{self.place('storage')}: {self.state / OWNER} cannot be read; is this a pipeline's "
            "state?"
        )

    def place(self, field: str) -> Place:
        return Place(self.spec.name, _line_of(self.spec, field))


def local_path(uri: str) -> Path | None:
    """The path of a file: URI; None for another file system."""
    found = urlsplit(uri)
    return Path(found.path) if found.scheme in ("", "file") else None


def load(directory: Path) -> Project:
    """The pipeline in this directory. Raises PipelineFault with the file and the line."""
    directory = directory.resolve()
    if not directory.is_dir():
        raise PipelineFault(
            f"there is no directory {directory}; `hocket pipeline init NAME` makes one"
        )
    found = [directory / name for name in SPEC_NAMES if (directory / name).is_file()]
    if not found:
        raise PipelineFault(
            f"{directory} has no {SPEC_NAMES[0]}; `hocket pipeline init NAME` makes a pipeline"
        )
    if len(found) > 1:
        raise PipelineFault(f"{directory} has {' and '.join(SPEC_NAMES)}; keep one of them")
    spec = found[0]
    fields = _fields(spec)
    name = _checked_name(spec, fields)
    return Project(
        directory=directory,
        spec=spec,
        name=name,
        storage=_storage(directory, spec, fields),
        catalog=_text(spec, fields, "catalog"),
        database=_text(spec, fields, "database") or _text(spec, fields, "schema"),
        configuration=_configuration(spec, fields),
        files=_files(directory, spec, fields),
    )


def _fields(spec: Path) -> dict[str, Any]:
    import yaml  # type: ignore[import-untyped]

    try:
        found = yaml.safe_load(spec.read_text())
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise PipelineFault(f"{Place(spec.name, line)}: {error.problem}") from None
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        raise PipelineFault(f"{spec.name}: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict):
        raise PipelineFault(f"{spec.name}:1: it must have fields, as in `name: orders`")
    for name in found:
        if name not in FIELDS:
            raise PipelineFault(
                f"{Place(spec.name, _line_of(spec, str(name)))}: there is no field {name!r}; the "
                f"fields are {', '.join(FIELDS)}"
            )
    for name in ("name", "storage"):
        if not isinstance(found.get(name), str) or not found[name]:
            raise PipelineFault(f"{Place(spec.name, _line_of(spec, name))}: {name} is missing")
    return found


def _checked_name(spec: Path, fields: dict[str, Any]) -> str:
    try:
        return check_name(fields["name"], "a pipeline's name")
    except HocketError as error:
        raise PipelineFault(f"{Place(spec.name, _line_of(spec, 'name'))}: {error}") from None


def _storage(directory: Path, spec: Path, fields: dict[str, Any]) -> str:
    text = str(fields["storage"])
    place = Place(spec.name, _line_of(spec, "storage"))
    scheme = _SCHEME.match(text)
    if scheme is None:  # a path, which is relative to the directory
        text = f"file://{(directory / text).resolve()}"
    if odd := _ODD.search(text):
        raise PipelineFault(
            f"{place}: Spark would keep its checkpoints elsewhere than in {text}, because of "
            f"{odd.group()!r}; name a storage without it, as in `storage: file:///srv/orders`"
        )
    if scheme is not None and scheme.group() == "file:" and not urlsplit(text).path.startswith("/"):
        raise PipelineFault(
            f"{place}: {text} is no URI of a file, which looks like file:///srv/orders"
        )
    return text


def _text(spec: Path, fields: dict[str, Any], name: str) -> str | None:
    found = fields.get(name)
    if found is not None and not isinstance(found, str):
        raise PipelineFault(f"{Place(spec.name, _line_of(spec, name))}: {name} must be a text")
    return found


def _configuration(spec: Path, fields: dict[str, Any]) -> dict[str, str]:
    found = fields.get("configuration") or {}
    line = _line_of(spec, "configuration")
    if not isinstance(found, dict):
        raise PipelineFault(f"{Place(spec.name, line)}: configuration must have names and values")
    for key, value in found.items():
        place = Place(spec.name, _line_of(spec, str(key)) or line)
        if not isinstance(value, str):
            raise PipelineFault(f"{place}: {key} must be a text; put {value} in quotes")
        if str(key).startswith(STATIC):
            raise PipelineFault(
                f"{place}: {key} is fixed when Spark starts and cannot be changed here; give it to "
                f"`hocket pipeline run` with --conf {key}={value}"
            )
    return {str(key): str(value) for key, value in found.items()}


def _files(directory: Path, spec: Path, fields: dict[str, Any]) -> tuple[Path, ...]:
    line = _line_of(spec, "libraries")
    patterns = []
    try:
        for entry in fields.get("libraries") or []:
            patterns.append(str(entry["glob"]["include"]))
    except (KeyError, TypeError):
        raise PipelineFault(
            f"{Place(spec.name, line)}: each of libraries looks like `- glob: {{include: "
            "transformations/**}`"
        ) from None
    files: set[Path] = set()
    for pattern in patterns:
        # As Spark has it: a file, or a folder with all that is in it.
        try:
            found = list(directory.glob(f"{pattern}/*" if pattern.endswith("/**") else pattern))
        except (ValueError, NotImplementedError) as error:
            raise PipelineFault(
                f"{Place(spec.name, line)}: {pattern!r} is no pattern of files within the "
                f"directory: {error}"
            ) from None
        files |= {each for each in found if each.is_file() and "__pycache__" not in each.parts}
    if not files:
        raise PipelineFault(
            f"{Place(spec.name, line)}: libraries names no file: nothing is declared"
        )
    for file in sorted(files):
        if file.suffix not in SUFFIXES:
            raise PipelineFault(
                f"{file.relative_to(directory)}: only {' and '.join(SUFFIXES)} files declare parts "
                "of a pipeline; put others elsewhere"
            )
    return tuple(sorted(files))


def _line_of(spec: Path, field: str) -> int:
    """The line, counted from 1, that begins with the field; 0: there is none."""
    for number, line in enumerate(spec.read_text(errors="replace").splitlines(), 1):
        if line.strip().strip("\"'").startswith((f"{field}:", f'{field}":', f"{field}':")):
            return number
    return 0
