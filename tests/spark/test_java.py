"""Whether there is a Java for Spark, asked of fake ones on a PATH of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from hocket.spark import java

OPENJDK = 'openjdk version "{}" 2025-04-15'


def install(directory: Path, script: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / "java"
    program.write_text(script)
    program.chmod(0o755)
    return program


def saying(line: str, code: int = 0) -> str:
    return f"#!/bin/sh\necho '{line}' >&2\nexit {code}\n"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only directory on the PATH."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


@pytest.mark.parametrize(
    "line",
    [
        OPENJDK.format("17.0.15"),
        OPENJDK.format("21"),
        OPENJDK.format("25-ea"),
        'java version "17" 2021-09-14 LTS',
        'Picked up JAVA_TOOL_OPTIONS: -Dversion="1"\nopenjdk version "17.0.1"',
    ],
)
def test_a_java_that_is_new_enough_is_no_problem(path: Path, line: str) -> None:
    install(path, saying(line))
    assert java.problem() is None
    java.require()


@pytest.mark.parametrize(
    ("line", "version"),
    [('java version "1.8.0_392"', 8), (OPENJDK.format("11.0.2"), 11), (OPENJDK.format("16"), 16)],
)
def test_an_old_one_is_named_with_its_version(path: Path, line: str, version: int) -> None:
    program = install(path, saying(line))
    assert java.problem() == f"Spark needs Java 17, and {program} is Java {version}: {java.REMEDY}"


def test_none_at_all(path: Path) -> None:
    found = java.problem()
    assert found == f"Spark needs Java, and there is no `java` on the PATH: {java.REMEDY}"
    assert "apt-get install openjdk-17-jre-headless" in found
    with pytest.raises(java.NoJava, match="there is no `java` on the PATH"):
        java.require()


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (saying(OPENJDK.format("17.0.15"), code=1), "-version` failed"),
        (saying("Hello"), "-version` failed"),
        ("this is not a program", "does not run (OSError)"),
    ],
)
def test_a_broken_one(path: Path, script: str, words: str) -> None:
    install(path, script)
    found = java.problem()
    assert found is not None
    assert words in found
    assert "\n" not in found


def test_one_that_never_answers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "ANSWER_SECONDS", 0.2)
    install(path, "#!/bin/sh\nexec /bin/sleep 60\n")
    assert "does not run (TimeoutExpired)" in (java.problem() or "")


def test_java_home_comes_before_the_path(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(path, saying(OPENJDK.format("17.0.15")))
    home = tmp_path / "jdk-11"
    program = install(home / "bin", saying(OPENJDK.format("11.0.2")))
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert f"{program} is Java 11" in (java.problem() or "")

    program.unlink()  # Spark does not look at the PATH then, and neither do we
    assert f"JAVA_HOME is set but {program} cannot be run" in (java.problem() or "")

    monkeypatch.setenv("JAVA_HOME", "")
    assert java.problem() is None
