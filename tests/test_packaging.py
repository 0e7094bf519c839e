"""What is shipped, what it needs, and what its files must not say."""

from __future__ import annotations

import asyncio
import importlib.resources
import inspect
import re
import subprocess
import sys
import tomllib
from itertools import permutations
from pathlib import Path
from types import ModuleType

import pytest

import hocket
import hocket.errors
import hocket.local

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

LOCAL_NAMES = {
    "Broker",
    "BrokerManager",
    "Channel",
    "CircularBuffer",
    "Rendezvous",
    "Task",
    "EventPump",
    "EventQueue",
    "MessageQueue",
    "MixedQueueBroker",
    "QueueBroker",
    "AcceptListener",
    "ConnectListener",
    "MessageListener",
}

ERROR_NAMES = {
    "Aborted",
    "BadName",
    "BusyResource",
    "Closed",
    "Disconnected",
    "NameInUse",
    "OutOfRange",
    "PortInUse",
    "PortNotBound",
    "ReadOnlyBuffer",
    "Timeout",
    "UnknownBroker",
    "WouldBlock",
    "WrongKind",
    "WrongThread",
    "WrongType",
}


# --- what is shipped -----------------------------------------------------------------------------


def test_the_package_says_that_it_is_typed():
    assert importlib.resources.files("hocket").joinpath("py.typed").is_file()
    assert "py.typed" in PROJECT["tool"]["setuptools"]["package-data"]["hocket"]


def test_the_version_is_the_same_everywhere():
    assert hocket.__version__ == PROJECT["project"]["version"]


def test_local_exports_exactly_its_public_names():
    assert set(hocket.local.__all__) == LOCAL_NAMES
    assert len(hocket.local.__all__) == len(LOCAL_NAMES)
    public = {
        name
        for name, value in vars(hocket.local).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public - {"annotations"} == LOCAL_NAMES


@pytest.mark.parametrize("name", sorted(LOCAL_NAMES))
def test_every_public_name_is_a_class_of_that_name_with_a_docstring(name: str):
    value = getattr(hocket.local, name)
    assert inspect.isclass(value)
    assert value.__name__ == name
    assert value.__doc__


@pytest.mark.parametrize("name", sorted(ERROR_NAMES | {"HocketError"}))
def test_every_error_is_importable_and_a_hocket_error(name: str):
    error = getattr(hocket.errors, name)
    assert issubclass(error, hocket.errors.HocketError)
    assert error.__doc__


def test_every_exception_in_the_errors_module_is_a_hocket_error_with_a_docstring():
    found = {
        name: value
        for name, value in vars(hocket.errors).items()
        if inspect.isclass(value) and issubclass(value, BaseException)
    }
    assert set(found) >= ERROR_NAMES | {"HocketError"}
    for name, error in found.items():
        assert issubclass(error, hocket.errors.HocketError), name
        assert "__doc__" in vars(error), name
        assert error.__doc__, name


def test_errors_that_mean_different_things_are_different_types():
    different = [
        getattr(hocket.errors, name)
        for name in (
            "PortInUse",
            "UnknownBroker",
            "NameInUse",
            "Timeout",
            "Disconnected",
            "Closed",
            "BusyResource",
            "WouldBlock",
        )
    ]
    for one, other in permutations(different, 2):
        assert not issubclass(one, other)


def test_errors_about_arguments_are_also_the_builtin_errors_callers_expect():
    errors = hocket.errors
    assert issubclass(errors.WrongType, TypeError)
    assert issubclass(errors.ReadOnlyBuffer, errors.WrongType)
    assert issubclass(errors.OutOfRange, ValueError)
    assert issubclass(errors.BadName, ValueError)
    assert issubclass(errors.Timeout, TimeoutError)


def test_a_timeout_says_by_its_type_whether_the_thing_may_have_happened():
    errors = hocket.errors
    assert issubclass(errors.OutcomeUnknown, errors.Timeout)
    assert not errors.Timeout.may_have_happened
    assert errors.OutcomeUnknown.may_have_happened
    assert errors.OutcomeUnknown.code == errors.Timeout.code  # neither has one on the wire


# --- the names that users import from `hocket` ---------------------------------------------------

NOUNS = {
    "AsyncClient",
    "AsyncProducer",
    "AsyncSubscription",
    "AsyncTransaction",
    "Batch",
    "Client",
    "Message",
    "Position",
    "Producer",
    "Subscription",
    "Transaction",
}


def test_hocket_exports_exactly_its_public_names():
    others = {"__version__", "aio", "connect", "embedded", "errors", "local", "values"}
    assert set(hocket.__all__) == NOUNS | others
    assert hocket.__all__ == sorted(hocket.__all__)
    assert set(hocket.__all__) <= set(dir(hocket))
    for name in hocket.__all__:
        assert getattr(hocket, name) is not None, name


@pytest.mark.parametrize("name", sorted(NOUNS))
def test_every_noun_is_a_class_with_a_docstring(name: str):
    value = getattr(hocket, name)
    assert inspect.isclass(value)
    assert value.__doc__


def test_a_name_that_hocket_does_not_have_is_refused():
    with pytest.raises(AttributeError, match="module 'hocket' has no attribute 'Consumer'"):
        _ = hocket.Consumer


def test_the_nouns_are_what_users_are_given():
    with hocket.embedded() as client:
        assert isinstance(client, hocket.Client)
        client.create_topic("t")
        assert isinstance(client.publish("t", b"zero"), hocket.Position)
        with client.producer("t") as producer:
            assert isinstance(producer, hocket.Producer)
            producer.send(b"one")
            producer.send(b"two")
        with client.transaction("id") as transaction:
            assert isinstance(transaction, hocket.Transaction)
        with client.subscribe("t", start="earliest") as subscription:
            assert isinstance(subscription, hocket.Subscription)
            assert isinstance(subscription.receive(timeout=10), hocket.Message)
            assert isinstance(subscription.receive_batch(timeout=10), hocket.Batch)


def test_the_nouns_are_what_users_of_asyncio_are_given():
    async def use() -> None:
        async with hocket.aio.embedded() as client:
            assert isinstance(client, hocket.AsyncClient)
            await client.create_topic("t")
            async with client.producer("t") as producer:
                assert isinstance(producer, hocket.AsyncProducer)
                await producer.send(b"one")
                await producer.send(b"two")
            async with client.transaction("id") as transaction:
                assert isinstance(transaction, hocket.AsyncTransaction)
            async with client.subscribe("t", start="earliest") as subscription:
                assert isinstance(subscription, hocket.AsyncSubscription)
                assert isinstance(await subscription.receive(timeout=10), hocket.Message)
                assert isinstance(await subscription.receive_batch(timeout=10), hocket.Batch)

    asyncio.run(use())


ANNOTATED = """
import hocket
from hocket import Batch, Client

def last(client: Client, producer: hocket.Producer) -> hocket.Message | None:
    reveal_type(client)
    reveal_type(producer)
    with client.subscribe("t") as subscription:
        reveal_type(subscription.receive_batch())
        return subscription.receive()

def settled(batch: Batch, error: hocket.errors.HocketError) -> None:
    reveal_type(batch)
    reveal_type(error.may_have_happened)

class Order: ...
class OrderCoder:
    def encode(self, value: Order) -> bytes: return b""
    def decode(self, data: bytes) -> Order: return Order()

def typed(client: Client, order: Order, raw: hocket.Subscription) -> None:
    with client.subscribe("t", value=Order) as orders, client.subscribe("t") as plain:
        reveal_type(orders)
        reveal_type(orders.receive().value)
        reveal_type([message.value for message in orders])
        reveal_type(orders.receive_batch().values())
        reveal_type(orders.receive().raw)
        reveal_type(plain.receive().value)
    reveal_type(raw.receive().value)
    reveal_type(client.subscribe("t", value=list[Order]).receive().value)
    reveal_type(client.subscribe("t", value=OrderCoder()).receive().value)
    reveal_type(client.subscribe("t", value=hocket.values.coder(Order | None)).receive().value)
    with client.producer("t", value=Order) as producer:
        reveal_type(producer)
        producer.send(order)
        producer.send_many([order])
        producer.send(b"")
    client.producer("t").send(order)
    client.publish("t", order, value=Order)
    client.publish("t", order)
    client.publish("t", value=b"as the message was called before")
    with client.transaction("id") as transaction:
        transaction.send("t", order, value=Order)
        transaction.send("t", order)
        transaction.send_many("t", [order], value=OrderCoder())

async def awaited(client: hocket.AsyncClient) -> None:
    async with client.subscribe("t", value=Order) as orders:
        reveal_type((await orders.receive()).value)
        async for message in orders:
            reveal_type(message.value)

hocket.Consumer
"""


def test_a_type_checker_knows_the_nouns_the_types_of_values_and_no_others(tmp_path: Path):
    program = tmp_path / "program.py"
    program.write_text(ANNOTATED)
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-color-output",
         "--config-file", str(ROOT / "pyproject.toml"), str(program)],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        cwd=ROOT,
    )  # fmt: skip
    said = [line.split(": ", 1)[1] for line in found.stdout.splitlines() if ": " in line]
    said = [line for line in said if not re.match("note: (Possible|    def)", line)]
    assert said == [
        'note: Revealed type is "hocket.client.faces.blocking.client.Client"',
        'note: Revealed type is "hocket.client.faces.blocking.producer.Producer'
        '[typing_extensions.Buffer]"',
        'note: Revealed type is "hocket.client_core.consuming.message.MessageBatch[bytes]"',
        'note: Revealed type is "hocket.client_core.consuming.message.MessageBatch[bytes]"',
        'note: Revealed type is "bool"',
        'note: Revealed type is "hocket.client.faces.blocking.subscription.Subscription'
        '[program.Order]"',
        'note: Revealed type is "program.Order"',
        'note: Revealed type is "list[program.Order]"',
        'note: Revealed type is "list[program.Order]"',
        'note: Revealed type is "bytes"',
        'note: Revealed type is "bytes"',
        'note: Revealed type is "bytes"',
        'note: Revealed type is "list[program.Order]"',
        'note: Revealed type is "program.Order"',
        'note: Revealed type is "Any"',
        'note: Revealed type is "hocket.client.faces.blocking.producer.Producer[program.Order]"',
        'error: Argument 1 to "send" of "Producer" has incompatible type "bytes"; expected "Order"'
        "  [arg-type]",
        'error: Argument 1 to "send" of "Producer" has incompatible type "Order"; expected "Buffer"'
        "  [arg-type]",
        'error: No overload variant of "publish" of "Client" matches argument types "str", "Order"'
        "  [call-overload]",
        'error: No overload variant of "send" of "Transaction" matches argument types "str", '
        '"Order"  [call-overload]',
        'note: Revealed type is "program.Order"',
        'note: Revealed type is "program.Order"',
        'error: Module has no attribute "Consumer"  [attr-defined]',
    ], found.stdout + found.stderr


@pytest.mark.parametrize("statement", ["import hocket", "import hocket.local", "hocket.errors"])
def test_what_belongs_to_the_broker_is_not_loaded_unasked(statement: str):
    code = (
        f"import sys, hocket; {statement}\n"
        "heavy = {'capnp', 'hocket.client', 'hocket.node', 'hocket.wire', 'click', 'pyarrow',\n"
        "    'json', 'hocket.values', 'pydantic', 'orjson', 'msgspec'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


# --- what it needs -------------------------------------------------------------------------------


def test_the_base_install_is_light():
    names = {_name_of(line) for line in PROJECT["project"]["dependencies"]}
    assert names == {
        "click", "crc32c", "lz4", "pluggy", "pycapnp", "tqdm", "xxhash", "zstandard",
    }  # fmt: skip


def _name_of(requirement: str) -> str:
    return re.split(r"[<>=\[; ]", requirement)[0]


def test_only_spark_holds_pandas_back():
    extras = PROJECT["project"]["optional-dependencies"]
    bounds = {
        extra: [line for line in lines if _name_of(line) == "pandas"]
        for extra, lines in extras.items()
    }
    assert {extra: lines for extra, lines in bounds.items() if lines} == {
        "arrow": ["pandas>=2.2"],
        "spark": ["pandas<3"],
    }


def test_the_architecture_has_every_dependency_with_its_extra():
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    section = text.split("\n## Dependencies\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| (\w+) \|", section, re.MULTILINE)
    drawn: dict[str, set[str]] = {}
    for names, extra in rows[1:]:
        found = {_name_of(name) for name in names.split(", ")}
        drawn[extra] = drawn.get(extra, set()) | found
    declared = {"base": {_name_of(line) for line in PROJECT["project"]["dependencies"]}}
    for extra, lines in PROJECT["project"]["optional-dependencies"].items():
        declared[extra] = {_name_of(line) for line in lines} - {"hocket"}
    for extra in ("console", "metrics"):
        assert declared.pop(extra) == set()  # they have none yet
    assert drawn == declared


def test_the_package_imports_with_nothing_but_the_standard_library():
    source = Path(hocket.__file__).parent.parent
    code = f"import sys; sys.path.insert(0, {str(source)!r}); import hocket, hocket.local"
    # -S: no site-packages, so whatever is not in the standard library cannot be found
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_ci_runs_every_python_that_the_classifiers_claim():
    classifiers = "\n".join(PROJECT["project"]["classifiers"])
    claimed = re.findall(r"Python :: (3\.\d+)$", classifiers, re.MULTILINE)
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    (matrix,) = re.findall(r"^ +python: \[(.*)\]", workflow, re.MULTILINE)
    assert re.findall(r'"([\d.]+)"', matrix) == claimed
    assert PROJECT["project"]["requires-python"] == f">={claimed[0]}"
    for target in ("check", "test", "demo"):
        assert f"run: make {target} " in workflow


def test_the_extras_are_there():
    extras = set(PROJECT["project"]["optional-dependencies"])
    assert extras >= {"spark", "console", "bench", "dev"}


# --- what the files must not say -----------------------------------------------------------------


def project_files() -> list[Path]:
    """Tracked files, and new ones that are not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file()]


def test_no_file_is_so_large_that_it_must_be_data():
    large = {path.name: path.stat().st_size for path in project_files()}
    assert {name for name, size in large.items() if size > 1 << 20} == set()


FORBIDDEN = {
    "a registry host": re.compile(
        rb"(?:pypi|pythonhosted|anaconda|npmjs|yarnpkg|maven|jfrog|artifactory|nexus|devpi)"
        rb"[\w-]*\.(?:org|com|io|net)\b|--?(?:extra-)?index-url|--?find-links",
        re.IGNORECASE,
    ),
    "an absolute path of a machine": re.compile(
        rb"(?<![\w./:])/(?:work|root|home|Users|mnt|builds?|workspaces?)/[\w.-]"
    ),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_names(what: str):
    files = project_files()
    assert ROOT / "pyproject.toml" in files
    found = [
        f"{path.relative_to(ROOT)}: {match.group().decode()}"
        for path in files
        for match in FORBIDDEN[what].finditer(path.read_bytes())
    ]
    assert found == []


def test_no_file_names_the_directory_of_this_checkout():
    here = str(ROOT).encode()
    assert [path for path in project_files() if here in path.read_bytes()] == []


def test_the_patterns_find_what_they_forbid():
    host, path = FORBIDDEN.values()
    assert host.search(b"see https://pypi" + b".org/simple")
    assert host.search(b"--index" + b"-url x")
    assert path.search(b"in /home" + b"/someone/x")
    assert path.search(b'"/work' + b'/main"')
    assert not path.search(b"https://example.org/home" + b"/page")


def test_no_python_block_of_the_documentation_escapes_the_tests():
    """Sybil runs blocks marked exactly ```python; other spellings would be skipped in silence."""
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    wrong = [
        f"{document.relative_to(ROOT)}: {line}"
        for document in documents
        for line in document.read_text().splitlines()
        if re.match(r"\s*(```|~~~)\s*\{?\.?py", line, re.IGNORECASE) and line != "```python"
    ]
    assert wrong == []
    deep = [path for path in documents if len(path.relative_to(ROOT).parts) > 4]
    assert deep == []  # conftest.py looks no deeper


def test_make_test_runs_every_test_folder():
    makefile = (ROOT / "Makefile").read_text()
    variables = dict(re.findall(r"^([\w-]+) +:= (.*)$", makefile, re.MULTILINE))
    suites = variables["SUITES"].split()
    kinds = [variables[kind].split() for kind in ("COVERED", "SPARK", "OTHERS")]
    assert sorted(suites) == sorted(suite for kind in kinds for suite in kind)
    targets = set(re.findall(r"^test-([\w-]+):", makefile, re.MULTILINE))
    assert targets.isdisjoint(suites), "a target of its own would run in place of the suite"
    named = " ".join(variables[f"tests_of_{suite}"] for suite in suites)
    folders = {path.name for path in (ROOT / "tests").iterdir() if (path / "__init__.py").exists()}
    assert folders - {"support"} == set(re.findall(r"tests/(\w+)\b(?!_\*)", named)) - {"test_"}
    assert "$(wildcard tests/test_*.py)" in named
