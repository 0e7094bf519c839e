"""A pipeline's directory is read, and what is wrong with it is said with its file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("yaml")

from hocket.errors import BadName
from hocket.pipelines import making, project
from hocket.pipelines.faults import PipelineFault, Place, Places, fault, plain

GOOD = """\
name: shop
storage: state
libraries:
  - glob:
      include: transformations/**
"""


def write(directory: Path, spec: str, **files: str) -> Path:
    (directory / "transformations").mkdir(exist_ok=True)
    (directory / "transformations" / "a.py").write_text("")
    (directory / "spark-pipeline.yml").write_text(spec)
    return directory


def test_a_directory_is_read(tmp_path: Path) -> None:
    found = project.load(write(tmp_path, GOOD))
    assert found.name == "shop"
    assert found.storage == (tmp_path / "state").as_uri()
    assert found.state == tmp_path / "state"
    assert [file.name for file in found.files] == ["a.py"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (GOOD + "nmae: x\n", "spark-pipeline.yml:6: there is no field 'nmae'"),
        (GOOD + "  - [\n", "spark-pipeline.yml:7: "),
        (GOOD.replace("name: shop\n", ""), "spark-pipeline.yml: name is missing"),
        (GOOD.replace("shop", "-shop"), "spark-pipeline.yml:1: a pipeline's name must be"),
        (GOOD.replace("transformations", "elsewhere"), "spark-pipeline.yml:3: libraries names no"),
        (GOOD + "configuration:\n  spark.ui.enabled: 'true'\n", "yml:7: spark.ui.enabled is fixed"),
        (GOOD + "configuration:\n  spark.sql.ansi: true\n", "yml:7: spark.sql.ansi must be a text"),
        ("- a\n", "spark-pipeline.yml:1: it must have fields"),
        (GOOD.replace("transformations", "/srv"), "yml:3: '/srv/**' is no pattern of files within"),
        (GOOD.replace("transformations/**", "''"), "yml:3: '' is no pattern of files within"),
        (GOOD.partition("libraries")[0] + "libraries: 5\n", "yml:3: each of libraries looks like"),
        (GOOD.replace("state", "my state"), "yml:2: Spark would keep its checkpoints elsewhere"),
        (GOOD.replace("state", "file:///a%20b"), "because of '%'; name a storage without it"),
        (GOOD.replace("state", "file:x"), "spark-pipeline.yml:2: file:x is no URI of a file"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(tmp_path: Path, spec: str, words: str) -> None:
    with pytest.raises(PipelineFault) as caught:
        project.load(write(tmp_path, spec))
    assert words in str(caught.value)


def test_a_file_of_another_kind_is_named(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    (tmp_path / "transformations" / "notes.txt").write_text("")
    with pytest.raises(PipelineFault, match=r"^transformations/notes.txt: only .py and .sql"):
        project.load(tmp_path)


def test_a_directory_without_a_pipeline_says_how_to_make_one(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "none"):
        with pytest.raises(PipelineFault, match="hocket pipeline init NAME"):
            project.load(directory)


def test_the_state_of_another_pipeline_is_refused(tmp_path: Path) -> None:
    assert not project.load(write(tmp_path, GOOD)).check_owner("cluster-1")
    project.load(write(tmp_path, GOOD)).claim("cluster-1")
    assert project.load(write(tmp_path, GOOD)).check_owner("cluster-1")
    project.load(write(tmp_path, GOOD)).claim("cluster-1")
    with pytest.raises(PipelineFault, match=r"yml:2: the state in .* is of the pipeline 'shop'"):
        project.load(write(tmp_path, GOOD.replace("shop", "other"))).claim("cluster-1")
    with pytest.raises(PipelineFault, match=r"yml:2: .* on cluster cluster-1, whose offsets"):
        project.load(write(tmp_path, GOOD)).claim("cluster-2")


def test_a_path_may_have_letters_of_any_language(tmp_path: Path) -> None:
    directory = tmp_path / "Übung"
    directory.mkdir()
    found = project.load(write(directory, GOOD))
    assert found.storage == f"file://{directory}/state"
    assert found.state == directory / "state"


@pytest.mark.parametrize("note", ["[]", "{", None])
def test_what_is_no_pipeline_s_state_is_told_by_the_place_that_names_it(
    tmp_path: Path, note: str | None
) -> None:
    found = project.load(write(tmp_path, GOOD))
    if note is None:
        found.state.write_text("a file, and no folder")
    else:
        found.state.mkdir()
        (found.state / project.OWNER).write_text(note)
    with pytest.raises(PipelineFault) as caught:
        found.claim("cluster")
    assert "spark-pipeline.yml:2: " in str(caught.value)
    assert "is this a pipeline's state?" in str(caught.value)


@pytest.mark.parametrize("kind", [making.PLAIN, *making.BUILT_IN])
def test_each_pipeline_is_written_out_as_a_directory_that_is_read(
    tmp_path: Path, kind: str
) -> None:
    directory, topics = making.make(
        "my-shop.eu", tmp_path, kind=kind, topic="orders", to="result", lake=None
    )
    found = project.load(directory)
    assert found.name == "my-shop.eu"
    text = found.files[0].read_text()
    assert "@" not in text.replace("@dp.", "")
    compile(text, str(found.files[0]), "exec")
    assert topics
    with pytest.raises(PipelineFault, match="is there already"):
        making.make("my-shop.eu", tmp_path, kind=kind, topic=None, to=None, lake=None)


def test_a_bad_name_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(BadName):
        making.make("no/name", tmp_path, kind="plain", topic=None, to=None, lake=None)
    assert list(tmp_path.iterdir()) == []


# --- faults --------------------------------------------------------------------------------------


def test_an_error_in_a_python_file_has_its_line(tmp_path: Path) -> None:
    file = tmp_path / "transformations" / "a.py"
    file.parent.mkdir()
    file.write_text("x = 1\n\nopen('/no/such/file')\n")
    places = Places(tmp_path)
    with pytest.raises(FileNotFoundError) as caught:
        exec(compile(file.read_text(), str(file), "exec"), {})
    assert str(fault(caught.value, places)).startswith("transformations/a.py:3: [Errno 2]")
    with pytest.raises(SyntaxError) as broken:
        compile("x = (\n", str(file), "exec")
    assert str(fault(broken.value, places)) == "transformations/a.py:1: '(' was never closed"


def test_an_error_in_sql_has_the_line_of_its_statement(tmp_path: Path) -> None:
    words = (
        "[PARSE_SYNTAX_ERROR] Syntax error at or near 'SELEC'. SQLSTATE: 42601 (line 3, pos 7)\n\n"
        "== SQL ==\nCREATE MATERIALIZED VIEW v AS SELEC 1\n"
    )
    found = fault(RuntimeError(words), Places(tmp_path), Place("transformations/b.sql"))
    assert str(found).startswith("transformations/b.sql:3: Syntax error at or near 'SELEC'.")
    assert str(found).endswith("(PARSE_SYNTAX_ERROR)")


def test_an_error_of_a_flow_has_the_place_of_the_flow(tmp_path: Path) -> None:
    places = Places(tmp_path, flows={"large": Place("transformations/b.sql", 4)})
    words = "Flow 'spark_catalog.default.large' has FAILED fatally. [UNRESOLVED_COLUMN] no column x"
    assert str(fault(RuntimeError(words), places)).startswith(
        "transformations/b.sql:4: no column x"
    )


def test_our_own_error_is_found_in_a_traceback_of_spark_s() -> None:
    words = (
        "[PYTHON_EXCEPTION] Job failed\nTraceback (most recent call last):\n"
        '  File "x.py", line 1, in read\n'
        "hocket.errors.UnknownTopic: there is no topic 'orders'\n"
    )
    assert plain(words) == "there is no topic 'orders'"
    full = words + "hocket.spark.lake.LakeFull: the lake /srv/lake cannot be written\n"
    assert plain(full) == "the lake /srv/lake cannot be written"


def test_what_a_query_fails_of_is_said_and_not_its_name() -> None:
    words = (
        "Flow 'aggregated' has FAILED more than 2 times and will not be restarted.\n"
        "org.apache.spark.sql.streaming.StreamingQueryException: Python worker failed.\n"
        "=== Streaming Query ===\nIdentifier: aggregated [id = cf77, runId = d0a7]\n"
        "Current Committed Offsets: {}\n\nCurrent State: INITIALIZING\nThread State: RUNNABLE\n"
        "\tat org.apache.spark.Some.method(Some.scala:3)\n"
        "Caused by: org.apache.spark.SparkException: Python worker failed to connect back.\n"
        "\t... 73 more\n"
    )
    assert plain(words) == "Python worker failed to connect back."


def test_our_own_complaint_has_the_line_of_the_call_that_it_is_about(tmp_path: Path) -> None:
    file = tmp_path / "transformations" / "a.py"
    text = "from hocket.pipelines import json_values\n\njson_values(None, misfits='m')\n"
    with pytest.raises(PipelineFault) as caught:
        exec(compile(text, str(file), "exec"), {})
    assert str(fault(caught.value, Places(tmp_path))) == (
        "transformations/a.py:3: json_values needs a schema, or the topic to infer it from"
    )
