"""`hocket plugin list`, and plug-ins that `hocket serve` runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import hocket as package
from hocket.cli.program import program
from hocket.errors import Rejected
from tests.support import plugins
from tests.support.cli import Hocket, Outcome, fails, serving

GUARD = """
from dataclasses import dataclass
from hocket.plugins import Rejected, hook

class Plugin:
    api = 1

    @dataclass
    class Settings:
        word: str = "no"

    def __init__(self, settings):
        self.word = settings.word.encode()

    @hook
    def on_publish(self, batch):
        if self.word in batch.values:
            raise Rejected(f"nobody says {self.word.decode()} here")
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    path = tmp_path / "site"
    path.mkdir()
    plugins.package(path, "guard", GUARD)
    return path


def run(*args: str) -> Outcome:
    result = CliRunner().invoke(program, args)
    return Outcome(result.exit_code, result.stdout_bytes, result.stderr)


def test_what_is_installed_is_listed_without_a_broker(site: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(site)
    outcome = run("plugin", "list", "--json")
    assert outcome.code == 0
    (found,) = [each for each in outcome.json() if each["name"] == "guard"]
    assert found["hooks"] == ["on_publish"]
    assert found["settings"] == ["word"]
    assert found["problem"] == ""
    shown = run("plugin", "list").stdout.decode()
    assert "guard-package" in shown
    assert "closed" in shown


def test_a_node_runs_it_with_its_settings(site: Path, tmp_path: Path):
    config = tmp_path / "hocket.toml"
    config.write_text('plugin = ["guard"]\n[plugins.guard]\nword = "never"\nslow-ms = 50\n')
    with (
        serving(tmp_path / "data", "--config", str(config), PYTHONPATH=str(site)) as broker,
        package.connect(broker.url) as client,
    ):
        client.create_topic("t")
        client.publish("t", b"no")
        with pytest.raises(Rejected, match="nobody says never here"):
            client.publish("t", b"never")
        fails(Hocket(broker.url)("publish", "t", "never"), 1, "nobody says never here")
        told = run("plugin", "list", "--server", broker.url, "--json").json()
        (node,) = told["nodes"]
        (state,) = node["hooks"]
        assert (state["plugin"], state["hook"], state["on"]) == ("guard", "on_publish", True)
        assert (state["calls"], state["rejections"], state["failures"]) == (3, 2, 0)
        assert 0 < state["max_us"] <= state["total_us"]
        assert told["silent"] == []
        assert b"guard" in run("plugin", "list", "--server", broker.url).stdout
        assert broker.stop() == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            'plugin = ["guard"]\n[plugins.guard]\nwords = "x"\n',
            "'words' is unknown; there are: word",
        ),
        ('plugin = ["nobody"]\n', "plug-in 'nobody' is not installed"),
        ("[plugins]\nguard = 3\n", r"[plugins.NAME]"),
    ],
)
def test_a_node_that_cannot_run_it_does_not_start(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, words: str
):
    monkeypatch.syspath_prepend(site)
    config = tmp_path / "hocket.toml"
    config.write_text(text)
    outcome = run("serve", "--config", str(config), "--data", str(tmp_path / "data"))
    fails(outcome, 2 if "NAME" in words else 1, words)
    assert not (tmp_path / "data").exists()


GREETER = """
import click
from hocket.plugins import hook

class Plugin:
    api = 1

    @staticmethod
    @hook
    def command():
        @click.command()
        @click.argument("name")
        def greet(name):
            "Greet somebody."
            click.echo(f"hello {name}")
        return greet
"""


def test_it_may_add_a_command(site: Path, monkeypatch: pytest.MonkeyPatch):
    plugins.package(site, "greet", GREETER)
    plugins.package(site, "broken", "import nothing_of_that_name\n")
    plugins.package(site, "topic", GREETER)  # whose name is taken
    monkeypatch.syspath_prepend(site)
    assert run("greet", "you").stdout == b"hello you\n"
    shown = run("--help").stdout.decode()
    assert "Greet somebody." in shown
    assert shown.count("  topic ") == 1
    fails(run("gret", "you"), 2, "greet")
    fails(run("broken"), 2, "broken")
    assert run("topic", "--help").stdout.startswith(b"Usage: hocket topic")
