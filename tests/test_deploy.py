"""What is in `deploy`: read by the tools that are there, and held to the options of `hocket`."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from hocket.cli.commands.ping import ping
from hocket.cli.commands.serve import serve
from hocket.cli.program import program

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
UNIT = (DEPLOY / "hocket.service").read_text()
IMAGE_HOME = "/var/lib/hocket"


def tool(name: str) -> str:
    beside = Path(sys.executable).with_name(name)  # of the same environment
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def known_variables() -> set[str]:
    options = [*program.params, *serve.params, *ping.params]
    return {str(each.envvar) for each in options if isinstance(each, click.Option) and each.envvar}


def test_every_variable_is_one_that_hocket_reads():
    named = {
        each: set(re.findall(r"\b(HOCKET_[A-Z_]+)=", (DEPLOY / each).read_text()))
        for each in ("Dockerfile", "hocket.service", "compose.yaml")
    }
    assert named["Dockerfile"] >= {"HOCKET_SERVE_LISTEN", "HOCKET_TOKEN_FILE"}
    assert named["hocket.service"] >= {"HOCKET_SERVE_DATA"}
    for variables in named.values():
        assert variables <= known_variables()


# --- the image -----------------------------------------------------------------------------------


def instructions(word: str) -> list[str]:
    joined = DOCKERFILE.replace("\\\n", " ")
    return re.findall(rf"^{word} (.*)$", joined, re.MULTILINE)


def test_hadolint_has_nothing_to_say():
    said = run(tool("hadolint"), str(DEPLOY / "Dockerfile"))
    assert (said.returncode, said.stdout) == (0, ""), said


def test_the_image_has_two_stages_of_a_python_that_is_claimed():
    first, last = instructions("FROM")
    version = re.match(r"python:(3\.\d+)-slim", last)
    assert version is not None
    assert first == f"{last} AS build"
    classifiers = (ROOT / "pyproject.toml").read_text()
    assert f'"Programming Language :: Python :: {version.group(1)}"' in classifiers


def test_the_image_runs_as_nobody_and_keeps_its_state_in_its_volume():
    (user,) = instructions("USER")
    assert user == "10001:10001"
    assert instructions("VOLUME") == [IMAGE_HOME]
    environment = dict(each.split("=", 1) for each in shlex.split(instructions("ENV")[0]))
    for variable, value in environment.items():
        if re.search(r"_(DATA|FILE|CERT|KEY|CA)$", variable):
            assert value.startswith(f"{IMAGE_HOME}/"), variable
    assert environment["HOCKET_SERVE_LISTEN"] == "0.0.0.0:4150"
    assert environment["HOCKET_TOKEN_FILE"] == environment["HOCKET_SERVE_ADMIN_TOKEN_FILE"]


def test_the_image_runs_and_asks_commands_that_there_are():
    (probe,) = instructions("HEALTHCHECK")
    command, *options = re.findall(r'"([^"]+)"', probe)[1:]
    assert (command, re.findall(r'"([^"]+)"', probe)[0]) == ("ping", "hocket")
    ping.make_context("ping", options)  # raises if one of them is wrong
    assert instructions("ENTRYPOINT") == ['["hocket"]']
    assert instructions("CMD") == ['["serve"]']


def test_what_is_copied_into_the_image_is_there_and_not_ignored():
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    kept = {line[1:] for line in ignored if line.startswith("!")}
    assert "*" in ignored
    sources = {
        name
        for line in instructions("COPY")
        if not line.startswith("--from")
        for name in line.split()[:-1]
    }
    assert sources == kept
    assert all((ROOT / name).exists() for name in sources)


def test_compose_builds_and_confines_it():
    yaml = pytest.importorskip("yaml")
    found = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    service = found["services"]["hocket"]
    build = service["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).samefile(DEPLOY / "Dockerfile")
    assert service["volumes"] == [f"state:{IMAGE_HOME}"]
    assert set(found["volumes"]) == {"state"}
    assert service["read_only"] is True
    assert service["init"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert "user" not in service  # the image's own, which is not root
    assert service["ports"] == ["4150:4150"]


# --- the service ---------------------------------------------------------------------------------


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit, with a program that is there: what it names is the installation's."""
    path = tmp_path / "hocket.service"
    path.write_text(UNIT.replace("ExecStart=/opt/hocket/bin/hocket", f"ExecStart={sys.executable}"))
    return path


def test_systemd_reads_the_unit_without_a_word(unit: Path):
    said = run(tool("systemd-analyze"), "verify", "--man=no", str(unit))
    ours = [line for line in said.stderr.splitlines() if "hocket" in line]
    assert (said.returncode, ours) == (0, []), said


def test_systemd_finds_little_to_attack(unit: Path):
    """The threshold is in tenths of systemd's own measure, in which 10 is a service without any
    of these settings."""
    analyze = tool("systemd-analyze")
    version = re.search(r"systemd (\d+)", run(analyze, "--version").stdout)
    if version is None or int(version.group(1)) < 250:
        pytest.skip("this systemd-analyze cannot look at a file")
    said = run(
        analyze, "security", "--no-pager", "--offline=true", "--threshold=20", str(unit)
    )  # fmt: skip
    assert said.returncode == 0, said.stdout[-400:]


def test_the_unit_waits_for_the_broker_to_say_that_it_is_ready():
    lines = UNIT.splitlines()
    assert "Type=notify" in lines
    assert "ExecStart=/opt/hocket/bin/hocket serve" in lines
    assert "DynamicUser=yes" in lines
    assert "StateDirectory=hocket" in lines
