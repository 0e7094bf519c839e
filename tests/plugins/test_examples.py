"""The packages in `examples/plugins`, installed from their own pyproject, in a served broker."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

import jwt
import pytest

import hocket
from hocket.errors import Closed, CorruptData, NotAllowed, Rejected
from hocket.plugins.testing import broker_with
from tests.support.cli import Hocket, environment, serving
from tests.support.threads import LONG, PATIENCE, until

EXAMPLES = Path(__file__).parents[2] / "examples" / "plugins"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the packages are installed, from copies: a build leaves files behind."""
    sources, site = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("site")
    copies = [
        shutil.copytree(EXAMPLES / name, sources / name)
        for name in ("schema", "signed_tokens", "cold_tier", "taskiq_hocket")
    ]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
         "--no-deps", "--no-index", "--no-build-isolation", "--target", str(site),
         *map(str, copies)],
        check=True,
        timeout=100,
    )  # fmt: skip
    return site


def test_messages_fit_the_schema_of_their_topic(site: Path, tmp_path: Path):
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    (schemas / "orders.json").write_text(
        json.dumps(
            {"type": "object", "required": ["price"],
             "properties": {"price": {"type": "number", "minimum": 0, "multipleOf": 0.5}}}
        )
    )  # fmt: skip
    config = tmp_path / "hocket.toml"
    config.write_text(f'plugin = ["schema"]\n[plugins.schema]\ndirectory = "{schemas}"\n')
    with (
        serving(tmp_path / "data", "--config", str(config), PYTHONPATH=str(site)) as broker,
        hocket.connect(broker.url) as client,
    ):
        client.create_topic("orders")
        client.create_topic("notes")
        client.publish("orders", b'{"price": 3}')
        client.publish("notes", b"anything")
        for value, words in [
            (b'{"price": -1}', r"message 0, \$\.price: -1 is less than the minimum of 0"),
            (b"{}", "'price' is a required property"),
            (b"{", "message 0 is not JSON"),
            (b"[" * 100_000, "message 0 is not JSON"),
            (b'{"price": NaN}', "NaN is not a number of JSON"),
            (b'{"price": 1e400}', "message 0 cannot be checked"),
        ]:
            with pytest.raises(Rejected, match=words):
                client.publish("orders", value)
        assert client.describe("orders").partitions[0].end == 1


def key_set(**secrets: bytes) -> dict[str, object]:
    return {
        "keys": [
            {"kty": "oct", "kid": name, "alg": "HS256",
             "k": base64.urlsafe_b64encode(secret).rstrip(b"=").decode()}
            for name, secret in secrets.items()
        ]
    }  # fmt: skip


def test_users_log_in_with_signed_tokens(site: Path, tmp_path: Path):
    secret, other = b"s" * 32, b"o" * 32
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps(key_set(now=secret)))
    config = tmp_path / "hocket.toml"
    config.write_text(
        f'plugin = ["signed-tokens"]\n[plugins.signed-tokens]\nkeys = "{keys}"\n'
        'audience = "hocket"\n'
    )

    def token(key: bytes | None = secret, algorithm: str = "HS256", **changes: object) -> str:
        claims = {"sub": "alice", "aud": "hocket", "exp": time.time() + 60, **changes}
        claims = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(claims, key, algorithm, headers={"kid": "now"})

    with serving(tmp_path / "data", "--config", str(config), PYTHONPATH=str(site)) as broker:
        with hocket.connect(broker.url) as client:
            client.create_user("alice", roles=["admin"])
        with hocket.connect(broker.url, token=token()) as client:
            client.create_topic("t")
        for wrong in (
            token(other),
            token(exp=time.time() - 60),
            token(exp=None),
            token(aud="another"),
            token(sub="nobody"),
            token(None, "none"),
        ):
            with pytest.raises(NotAllowed):
                hocket.connect(broker.url, token=wrong)


TASKS = """
import asyncio
import os
from pathlib import Path

from taskiq import SimpleRetryMiddleware
from taskiq_hocket import HocketBroker

HERE = Path(os.environ["TASKS_HERE"])
broker = HocketBroker(os.environ["TASKS_AT"], lease=1.0)
broker.add_middlewares(SimpleRetryMiddleware(default_retry_count=3))


def note(line):
    with (HERE / "notes").open("a") as notes:
        notes.write(line + "\\n")


@broker.task
async def plain(text):
    note(text)


@broker.task(retry_on_error=True)
async def faulty():
    note("tried")
    raise ValueError("again")


@broker.task
async def slow():
    note("begun by a worker")
    await asyncio.sleep(3.0 if (HERE / "second").exists() else 3_600)  # more than its lease
    note("slow is done")
"""
KICK = """
import asyncio
from tasks import broker, faulty, plain, slow

async def main():
    await broker.startup()
    await plain.kicker().with_labels(delay=1.5).kiq("delayed")
    await plain.kiq("at once")
    await faulty.kiq()
    await slow.kiq()
    await broker.shutdown()

asyncio.run(main())
"""


@pytest.mark.skipif(not LONG, reason="five processes: in the long slice")
def test_tasks_of_taskiq_are_run_retried_delayed_and_run_again_when_a_worker_is_killed(
    site: Path, tmp_path: Path
):
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "kick.py").write_text(KICK)
    notes = tmp_path / "notes"
    notes.touch()

    def wait_for(line: str, times: int) -> None:
        until = time.monotonic() + PATIENCE
        while notes.read_text().splitlines().count(line) < times:
            assert time.monotonic() < until, notes.read_text()
            time.sleep(0.02)

    with serving(tmp_path / "data") as broker, ExitStack() as workers:
        env = environment(
            PYTHONPATH=f"{site}{os.pathsep}{tmp_path}",
            TASKS_AT=broker.url,
            TASKS_HERE=str(tmp_path),
        )

        def worker() -> subprocess.Popen[bytes]:
            """With the processes that it starts, in a group of their own."""
            process = subprocess.Popen(
                [sys.executable, "-m", "taskiq", "worker", "tasks:broker", "--workers", "1"],
                env=env, cwd=tmp_path, start_new_session=True,
            )  # fmt: skip
            workers.callback(kill, process)
            return process

        def kill(process: subprocess.Popen[bytes]) -> None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE)

        subprocess.run([sys.executable, "kick.py"], env=env, cwd=tmp_path, check=True, timeout=60)
        first = worker()
        wait_for("begun by a worker", 1)
        wait_for("tried", 3)
        wait_for("delayed", 1)
        found = notes.read_text().splitlines()
        assert found.index("at once") < found.index("delayed")

        with hocket.connect(broker.url) as client:

            def wait_until_left(tasks: int) -> None:
                until = time.monotonic() + PATIENCE
                while sum(each.lag for each in client.indexes("taskiq")[0].partitions) > tasks:
                    assert time.monotonic() < until
                    time.sleep(0.02)

            wait_until_left(1)  # what was done and not yet acked would be done again
            (tmp_path / "second").touch()
            kill(first)
            worker()
            wait_for("begun by a worker", 2)
            wait_for("slow is done", 1)
            wait_until_left(0)
    counted = Counter(notes.read_text().splitlines())
    assert counted == {
        "at once": 1, "delayed": 1, "tried": 3, "begun by a worker": 2, "slow is done": 1,
    }  # fmt: skip


def test_a_task_of_taskiq_is_run_once(site: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(site))
    from taskiq import AckableMessage, BrokerMessage  # type: ignore[attr-defined]
    from taskiq_hocket import HocketBroker  # type: ignore[import-not-found]

    async def story(url: str) -> None:
        broker = HocketBroker(url, partitions=1)
        with pytest.raises(Closed):
            await broker.kick(message(b"too early"))
        await broker.startup()
        await broker.kick(message(b"later", delay="0.2"))
        await broker.kick(message(b"now"))
        listening = broker.listen()
        got = [await anext(listening), await anext(listening)]
        assert [each.data for each in got] == [b"now", b"later"]
        for each in got:
            assert isinstance(each, AckableMessage)
            await each.ack()
        await broker.kick(message(b"left"))
        await anext(listening)
        await listening.aclose()
        await broker.shutdown()  # and `left` was not acknowledged
        await broker.startup()
        listening = broker.listen()
        assert (await anext(listening)).data == b"left"
        await listening.aclose()
        await broker.shutdown()

    def message(data: bytes, **labels: str) -> BrokerMessage:
        return BrokerMessage(task_id="1", task_name="t", message=data, labels=labels)

    with broker_with() as broker:
        asyncio.run(story(broker.listen()))


def test_tasks_that_no_worker_has_begun_survive_any_number_of_workers(
    site: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(str(site))
    from taskiq import BrokerMessage  # type: ignore[attr-defined]
    from taskiq_hocket import HocketBroker

    async def story(url: str) -> list[bytes]:
        broker, run = HocketBroker(url, partitions=1, max_deliveries=2), []
        for workers in range(4):
            await broker.startup()
            for number in range(0 if workers else 4):
                await broker.kick(
                    BrokerMessage(task_id="1", task_name="t", message=b"%d" % number, labels={})
                )
            listening = broker.listen()
            task = await asyncio.wait_for(anext(listening), 10)
            await asyncio.sleep(0.05)  # the others have come, too
            run.append(task.data)
            await task.ack()
            await listening.aclose()
            await broker.shutdown()
        return run

    with broker_with() as broker:
        assert asyncio.run(story(broker.listen())) == [b"0", b"1", b"2", b"3"]


def test_old_segments_go_to_a_cold_tier_and_are_read_after_a_kill(site: Path, tmp_path: Path):
    archive, data = tmp_path / "archive", tmp_path / "data"
    archive.mkdir()
    config = tmp_path / "hocket.toml"
    config.write_text(
        f'plugin = ["cold-tier"]\ncheckpoint-bytes = "4kB"\n[plugins.cold-tier]\n'
        f'url = "{archive.as_uri()}"\nafter-days = 0\ndeadline-seconds = 0.5\n'
    )
    values = [b"%03d" % number + bytes(497) for number in range(40)]

    def is_away(client: hocket.Client) -> bool:
        partition = client.describe("t").partitions[0]
        return partition.tier_bytes > 2 * partition.disk_bytes

    def read_all(client: hocket.Client) -> list[bytes]:
        with client.subscribe("t", start="earliest") as subscription:
            return [subscription.receive(10).value for _ in values]

    with serving(data, "--config", str(config), PYTHONPATH=str(site)) as broker:
        with hocket.connect(broker.url) as client:
            client.create_topic("t", segment_bytes=2_048, memory_retention=0)
            with client.producer("t", linger=0, batch_bytes=600) as producer:
                for value in values:
                    producer.send(value)
                    producer.flush(20)
            until(lambda: is_away(client), timeout=30)
        assert list(archive.rglob("*.log"))
        broker.stop(signal.SIGKILL)
    archive.rename(tmp_path / "lost")
    with (
        serving(data, "--config", str(config), PYTHONPATH=str(site)) as broker,
        hocket.connect(broker.url) as client,
    ):
        assert is_away(client)
        run = Hocket(broker.url)
        assert "TIER" in run("topic", "describe", "t").text()
        assert "TIER" in run("topic", "list").text()
        with (
            client.subscribe("t", index="i", start="earliest") as subscription,
            pytest.raises(CorruptData, match=r"offsets 0 to .* storage tier 'cold-tier'"),
        ):
            subscription.receive(10)
        (tmp_path / "lost").rename(archive)
        assert read_all(client) == values
    said = subprocess.run(
        [sys.executable, "-m", "hocket.cli", "log", "verify", str(data)],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert "in a storage tier" in said.stdout
    assert "no damage" in said.stdout
