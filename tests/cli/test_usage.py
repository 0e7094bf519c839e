"""Command lines that are wrong, or ask for help: no broker is needed to tell."""

from __future__ import annotations

import ast
import logging
import os
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner, Result

import hocket
from hocket.cli.program import program


def run(*args: str, **kwargs: object) -> Result:
    return CliRunner().invoke(program, list(args), **kwargs)  # type: ignore[arg-type]


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*path, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


EVERY_COMMAND = sorted(commands(program))


def test_the_commands_are_those_of_the_design():
    assert {" ".join(path) for path in EVERY_COMMAND} >= {
        "serve", "topic create", "topic list", "topic describe", "topic alter", "topic delete",
        "publish", "produce", "consume", "index list", "index reset", "index lag", "index delete",
        "completion",
    }  # fmt: skip


@pytest.mark.parametrize("path", EVERY_COMMAND, ids=" ".join)
def test_every_command_has_help_with_examples_that_name_it(path: tuple[str, ...]):
    result = run(*path, "--help")
    assert result.exit_code == 0
    usage, _, examples = result.output.partition("Examples:")
    assert f"Usage: hocket {' '.join(path)}" in usage
    assert f"hocket {' '.join(path)}" in examples
    assert max(map(len, result.output.splitlines())) <= 100


@pytest.mark.parametrize("path", [("topic", "list"), ("consume",)], ids=" ".join)
def test_client_commands_explain_how_to_reach_the_broker(path: tuple[str, ...]):
    connection = run(*path, "--help").output.partition("Connection:")[2]
    for word in ("--server", "HOCKET_SERVER", "--token-file", "HOCKET_TOKEN", "--tls-ca"):
        assert word in connection


def test_the_version():
    result = run("--version")
    assert (result.exit_code, result.output) == (0, f"hocket {hocket.__version__}\n")


def test_without_arguments_there_is_help_and_the_code_of_a_usage_error():
    result = run()
    assert result.exit_code == 2
    assert "Usage: hocket" in result.stderr
    assert result.stdout == ""


WRONG = {
    "no such command": (["topci"], "'topci'"),
    "no such subcommand": (["topic", "make"], "'make'"),
    "no such option": (["topic", "create", "t", "--partition", "3"], "--partitions"),
    "a value is missing": (["topic", "create"], "NAME"),
    "a bad topic name": (["topic", "create", "a b"], "'a b'"),
    "a bad topic name in publish": (["publish", "a/b", "x"], "'a/b'"),
    "a bad index name": (["consume", "t", "--index", "a b"], "'a b'"),
    "partitions that are no number": (["topic", "create", "t", "--partitions", "x"], "'x'"),
    "no partitions": (["topic", "create", "t", "--partitions", "0"], "0"),
    "too many partitions": (["topic", "create", "t", "--partitions", "5000"], "4096"),
    "a bad duration": (["topic", "create", "t", "--memory-retention", "10x"], "10m"),
    "memory for ever": (["topic", "create", "t", "--memory-retention", "forever"], "10m"),
    "a negative duration": (["topic", "create", "t", "--disk-retention=-5s"], "7d"),
    "a retention without its unit": (["topic", "alter", "t", "--disk-retention", "7"], "7d"),
    "nothing without its unit": (["topic", "alter", "t", "--disk-retention", "0"], "0s"),
    "a memory without its unit": (["topic", "create", "t", "--memory-retention", "2.5"], "2.5h"),
    "an index not to be made": (["consume", "t", "--no-create"], "--index"),
    "a bad size": (["topic", "create", "t", "--memory-bytes", "lots"], "64MiB"),
    "memory without limit": (["topic", "create", "t", "--memory-bytes", "unlimited"], "64MiB"),
    "a bad durability": (["topic", "create", "t", "--durability", "hope"], "quorum"),
    "nothing to alter": (["topic", "alter", "t"], "at least one option"),
    "an index delete without --yes": (["index", "delete", "t", "i"], "--yes"),
    "a header without value": (["publish", "t", "v", "--header", "kind"], "NAME=VALUE"),
    "a header twice": (["publish", "t", "v", "--header", "a=1", "--header", "a=2"], "twice"),
    "a negative partition": (["publish", "t", "v", "--partition", "-1"], "-1"),
    "a bad start": (["consume", "t", "--start", "soon"], "earliest"),
    "a start that is long ago twice": (["consume", "t", "--start", "5m5m"], "2h30m"),
    "a start that begins with minutes": (["consume", "t", "--start", "5m2h"], "2h30m"),
    "an end that is none": (["consume", "t", "--to", "soon"], "2h30m"),
    "an end before everything": (["consume", "t", "--to", "earliest"], "later"),
    "an end, and no end": (["consume", "t", "--to", "5m", "--follow"], "choose one"),
    "an end of a shared index": (
        ["consume", "t", "--to", "5", "--index", "i", "--mode", "shared"],
        "--max",
    ),
    "an offset of two topics": (["consume", "a", "b", "--to", "5"], "one topic"),
    "an offset of a pattern": (["consume", "a*", "--to", "5"], "one topic"),
    "a field that is none": (["consume", "t", "--format", "{vlaue}"], "{value}"),
    "a field without a name": (["consume", "t", "--format", "{}"], "{value}"),
    "a brace alone": (["consume", "t", "--format", "{value"], "'}'"),
    "a field of a field": (["consume", "t", "--format", "{value.x}"], "{value}"),
    "a field with a width": (["consume", "t", "--format", "{offset:>9}"], "behind the name"),
    "a field that is converted": (["consume", "t", "--format", "{key!r}"], "behind the name"),
    "an empty template": (["consume", "t", "--format", ""], "empty"),
    "a template and JSON": (["consume", "t", "--json", "--format", "{key}"], "choose one"),
    "a bad mode": (["consume", "t", "--mode", "mine"], "key_shared"),
    "max of nothing": (["consume", "t", "--max", "0"], "0"),
    "no acks without an index": (["consume", "t", "--no-ack"], "--index"),
    "a shared mode without an index": (["consume", "t", "--mode", "shared"], "--index"),
    "a lease of an own index": (["consume", "t", "--index", "i", "--lease", "5s"], "--mode shared"),
    "a bad lease": (["consume", "t", "--index", "i", "--mode", "shared", "--lease", "long"], "30s"),
    "prefetching nothing": (["consume", "t", "--prefetch", "0"], "0"),
    "too many deliveries": (["consume", "t", "--max-deliveries", "251"], "250"),
    "a shared index without acks": (
        ["consume", "t", "--index", "i", "--mode", "shared", "--no-ack"],
        "dead letter",
    ),
    "reset without a place": (["index", "reset", "t", "i"], "--to"),
    "a bad place": (["index", "reset", "t", "i", "--to", "-3"], "earliest"),
    "a file that is not there": (["produce", "t", "--file", "/nonexistent/f"], "/nonexistent/f"),
    "a directory as file": (["produce", "t", "--file", "/"], "'/'"),
    "an empty delimiter": (["produce", "t", "--delimiter", ""], "empty"),
    "an empty separator": (["produce", "t", "--key-separator", ""], "empty"),
    "an unknown codec": (["produce", "t", "--codec", "gzip"], "zstd"),
    "a bad linger": (["produce", "t", "--linger", "soon"], "500ms"),
    "a server that is no URL": (["topic", "list", "--server", "http://localhost"], "hocket://"),
    "a server with a bad port": (["topic", "list", "--server", "hocket://h:99999"], "65535"),
    "a certificate that is not there": (["topic", "list", "--tls-ca", "/nonexistent"], "--tls-ca"),
    "a bad timeout": (["topic", "list", "--timeout", "never"], "500ms"),
    "an address without port": (["serve", "--listen", "localhost"], "HOST:PORT"),
    "an address without host": (["serve", "--listen", ":4150"], "HOST:PORT"),
    "IPv6 without brackets": (["serve", "--listen", "::1:4150"], "[::1]"),
    "a port out of range": (["serve", "--listen", "127.0.0.1:65536"], "65535"),
    "a port that is no number": (["serve", "--listen", "127.0.0.1:http"], "'http'"),
    "a bad log level": (["serve", "--log-level", "loud"], "debug"),
    "a shell we do not know": (["completion", "cmd"], "fish"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_command_line_is_one_line_that_says_what_is_wrong(name: str):
    args, words = WRONG[name]
    result = run(*args)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("hocket: ")
    assert result.stderr.count("\n") == 1
    assert words in result.stderr


SLIPS = {
    "a command": (["prodcue", "t"], "command 'prodcue'", "produce"),
    "a command of a group": (["topic", "craete", "t"], "command 'craete'", "create"),
    "an option": (["topic", "list", "--sever", "x"], "option '--sever'", "--server"),
    "an option before the command": (["--sever", "x", "topic", "list"], "option '--sever'", "--server"),  # noqa: E501
    "an option with its value": (["topic", "list", "--sever=x"], "option '--sever'", "--server"),
    "an option that is another's": (["topic", "create", "t", "--partition", "3"], "option '--partition'", "--partitions"),  # noqa: E501
}  # fmt: skip


@pytest.mark.parametrize("name", SLIPS)
def test_a_slip_is_met_with_the_nearest_name(name: str):
    args, what, meant = SLIPS[name]
    result = run(*args)
    assert result.exit_code == 2
    said = f"hocket: No such {what}. Did you mean '{meant}'? Try 'hocket"
    assert result.stderr.startswith(said), result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("option", ["--join", "--advertise"])
@pytest.mark.parametrize("address", ["a..b:1", f"[::1%{'a' * 70}]:1", "ab." * 90 + "c:1"])
def test_an_address_that_can_be_nobodys_is_refused(option: str, address: str):
    result = run("serve", option, address)
    assert result.exit_code == 2
    assert f"Invalid value for '{option}': no host can have the name" in result.stderr


@pytest.mark.parametrize("args", [["xyzzy"], ["topic", "xyzzy"], ["topic", "list", "--xyzzy"]])
def test_nothing_is_suggested_for_what_is_like_nothing(args: list[str]):
    result = run(*args)
    assert result.exit_code == 2
    assert "xyzzy'. Try 'hocket" in result.stderr


def test_debug_adds_the_traceback():
    result = run("--debug", "topic", "list", "--server", "http://localhost")
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("hocket: ")
    assert "Traceback" in run("topic", "list", "--debug", "--server", "http://localhost").stderr


def test_debug_logs_in_detail_for_as_long_as_the_command_runs(monkeypatch: pytest.MonkeyPatch):
    levels: list[int] = []
    logger = logging.getLogger("hocket")
    monkeypatch.setattr(
        hocket, "connect", lambda *_, **__: levels.append(logger.level), raising=False
    )
    before = logger.level
    run("topic", "list")
    run("topic", "list", "--debug")
    assert levels == [before, logging.DEBUG]
    assert logger.level == before


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_that_says_how_to_install_it(shell: str):
    result = run("completion", shell)
    assert result.exit_code == 0
    assert "_HOCKET_COMPLETE" in result.stdout
    install = result.stdout.splitlines()[-1]
    assert install.startswith("# To install it: ")
    assert f"hocket completion {shell} > " in install


def test_the_zsh_script_begins_as_zsh_demands():
    assert run("completion", "zsh").stdout.startswith("#compdef hocket\n")


def test_nothing_heavy_is_loaded_before_it_is_needed():
    """`import hocket` loads next to nothing, `--version` no client, and `--help` no frames."""
    code = (
        "import sys; before = set(sys.modules); import hocket; import warnings\n"
        "print(sorted(set(sys.modules) - before))\n"
        "from hocket.cli.program import program\n"
        "heavy = {'capnp', 'lz4', 'zstandard', 'tqdm', 'pyarrow', 'asyncio', 'ssl', 'secrets',"
        " 'hocket.frames', 'hocket.node.node', 'hocket.client.faces.blocking.client'}\n"
        "for option in ('--version', '--help'):\n"
        "    try: program.main([option])\n"
        "    except SystemExit: pass\n"
        "    print('loaded:', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    lines = done.stdout.splitlines()
    loaded = set(ast.literal_eval(lines[0]))
    assert loaded <= {
        "__future__", "atexit", "hocket", "hocket.version", "importlib", "importlib._bootstrap",
        "importlib._bootstrap_external", "warnings", "_warnings",
    }, done.stderr  # fmt: skip
    assert [line for line in lines if line.startswith("loaded:")] == ["loaded: []"] * 2, done.stderr
