"""Every option of `hocket serve` has a variable; what is wrong in one is told by its name."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hocket.cli.commands.serve import serve
from hocket.cli.program import program
from tests.support.cli import Outcome, fails

OPTIONS = [each for each in serve.params if isinstance(each, click.Option)]


def run(*args: str, **env: str) -> Outcome:
    result = CliRunner(env=env).invoke(program, args)
    return Outcome(result.exit_code, result.stdout_bytes, result.stderr)


def test_every_option_has_one_and_the_help_shows_it():
    assert len(OPTIONS) > 14
    shown = "".join(run("serve", "--help").text().split())  # the help breaks lines anywhere
    for option in OPTIONS:
        variable = f"HOCKET_SERVE_{option.opts[0].lstrip('-').replace('-', '_').upper()}"
        assert option.envvar == variable
        assert f"{variable}]" in shown or f"{variable};" in shown


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("LISTEN", "nowhere", "HOST:PORT"),
        ("RPC_LISTEN", "nowhere", "HOST:PORT"),
        ("CONNECTIONS", "0", "0"),
        ("CHECKPOINT_BYTES", "lots", "64MiB"),
        ("SCRUB_INTERVAL", "daily", "7d"),
        ("LOG_LEVEL", "loud", "debug"),
        ("LOG_FORMAT", "xml", "json"),
        ("TLS_CERT", "/nonexistent", "/nonexistent"),
        ("CONFIG", "/nonexistent", "/nonexistent"),
        ("DATA", __file__, "is a file"),
        ("DEBUG", "perhaps", "perhaps"),
    ],
)
def test_a_bad_value_is_told_by_the_name_of_its_variable(variable: str, value: str, words: str):
    name = f"HOCKET_SERVE_{variable}"
    outcome = run("serve", **{name: value})
    fails(outcome, 2, f"the variable {name}", words)
    flag = f"--{variable.lower().replace('_', '-')}"
    assert f"({flag})" in outcome.stderr
    if variable != "DEBUG":
        told = run("serve", flag, value, **{name: value})
        fails(told, 2, f"'{flag}'")
        assert "the variable" not in told.stderr  # it was the option's value


@pytest.mark.parametrize("variable", ["HOCKET_TIMEOUT", "HOCKET_TLS_CA"])
def test_so_it_is_with_those_of_every_command(variable: str):
    fails(run("ping", **{variable: "/nonexistent"}), 2, f"the variable {variable}")


def test_an_option_wins_over_its_variable_and_a_variable_over_the_file(tmp_path: Path):
    config = tmp_path / "hocket.toml"
    config.write_text('listen = "from-file"\n')
    given = ["serve", "--config", str(config)]
    fails(run(*given), 2, "from-file", "the setting 'listen' in the file of --config")
    fails(run(*given, HOCKET_SERVE_LISTEN="from-variable"), 2, "from-variable")
    by_option = run(*given, "--listen", "from-option", HOCKET_SERVE_LISTEN="from-variable")
    fails(by_option, 2, "from-option")
    by_variable = run("serve", HOCKET_SERVE_CONFIG=str(config))
    fails(by_variable, 2, "from-file")


def test_an_empty_variable_is_none_at_all(tmp_path: Path):
    outcome = run("serve", "--listen", "x", HOCKET_SERVE_CONNECTIONS="", HOCKET_SERVE_LOG_LEVEL="")
    fails(outcome, 2, "'--listen'")


@pytest.mark.usefixtures("usual_logging")
@pytest.mark.parametrize("first", ["--config", "--log-format"])
def test_a_bad_file_is_told_in_json_if_that_was_asked_for(first: str, tmp_path: Path):
    config = tmp_path / "hocket.toml"
    config.write_text('listn = "localhost:4150"\n')
    given = {"--config": str(config), "--log-format": "json"}
    order = sorted(given, key=lambda option: option != first)
    in_order = run("serve", *(word for option in order for word in (option, given[option])))
    by_variables = run("serve", HOCKET_SERVE_CONFIG=str(config), HOCKET_SERVE_LOG_FORMAT="json")
    for outcome in (in_order, by_variables):
        assert outcome.code == 2
        assert "unknown setting 'listn'" in json.loads(outcome.stderr)["message"]


def test_levels_may_be_written_large():
    fails(run("serve", "--listen", "x", HOCKET_SERVE_LOG_LEVEL="INFO"), 2, "'--listen'")
