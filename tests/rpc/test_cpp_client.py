"""A client in C++, compiled from the schema: it shares no code with us, and none with pycapnp."""

from __future__ import annotations

import shutil
import subprocess
from importlib import resources
from pathlib import Path

import pytest

import hocket
from tests.support.cli import serving

TOOLS = [name for name in ("capnp", "capnpc-c++", "g++", "pkg-config") if not shutil.which(name)]
HEADERS = Path("/usr/include/capnp/ez-rpc.h")
COUNT = 10_000


def run(*command: str | Path, where: Path) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=where, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, f"{command[0]}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def client(tmp_path: Path) -> Path:
    if TOOLS or not HEADERS.exists():
        pytest.skip(
            "needs g++ and Cap'n Proto's headers (Debian: apt-get install g++ pkg-config capnproto "
            f"libcapnp-dev); missing: {', '.join(TOOLS) or HEADERS}"
        )
    with resources.as_file(resources.files("hocket") / "schema") as schema:
        files = [schema / "rpc.capnp", schema / "hocket.capnp"]
        run("capnp", "compile", "-oc++:.", f"--src-prefix={schema}", *files, where=tmp_path)
    libraries = run("pkg-config", "--cflags", "--libs", "capnp-rpc", where=tmp_path).split()
    sources = [Path(__file__).with_name("client.cpp"), "rpc.capnp.c++", "hocket.capnp.c++"]
    compiler = ["g++", "-std=c++17", "-O0", "-I."]
    run(*compiler, "-o", "client", *sources, *libraries, where=tmp_path)
    return tmp_path / "client"


def test_a_client_in_cpp_publishes_pushes_receives_and_acknowledges(tmp_path: Path, client: Path):
    with serving(tmp_path / "data", "--rpc-listen", "127.0.0.1:0") as broker:
        address = broker.ready.split("RPC on ")[1].split(",")[0]
        said = run(client, address, "letters", str(COUNT), where=tmp_path)
        assert said.splitlines()[0].startswith(
            "remote exception: unknownTopic: there is no topic 'no-such-topic'"
        )
        assert said.splitlines()[-1] == f"received {COUNT}"
        with hocket.connect(broker.url) as native:  # both doors lead to the same place
            [index] = native.indexes("letters")
            assert (index.name, index.lag) == ("everything", 0)
            assert native.describe("letters").partitions[0].end == COUNT
        assert broker.stop() == 0
