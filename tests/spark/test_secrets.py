"""Tokens and certificates reach the broker, and are nowhere to be seen on the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import hocket
from hocket.spark import java
from tests.spark.programs.running import run
from tests.spark.programs.secrets_job import VISIBLE, explained, failure
from tests.support import certificates
from tests.support.certificates import Certificates
from tests.support.processes.server import ServerProcess
from tests.support.threads import LONG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = 300  # far more than it takes, also on a busy machine


@dataclass
class Guarded:
    """A broker with TLS and users, and the token of one who may read and write."""

    address: str
    files: Certificates
    token: str
    token_file: Path

    @property
    def servers(self) -> dict[str, str]:
        return {"servers": self.address, "tlsCa": str(self.files.authority)}

    @property
    def secret(self) -> str:
        """The part of the token that nobody may see, and that a wrong one made of it shares."""
        found = self.token.removeprefix("hocket_pipeline_")[:-6]
        assert 16 <= len(found) < len(self.token) - 16
        return found

    @property
    def wrong(self) -> dict[str, str]:
        return {**self.servers, "token": self.token[:-6] + "wrong!"}

    def count(self, topic: str) -> int:
        with hocket.connect(self.address, token=self.token, tls_ca=self.files.authority) as client:
            return client.describe(topic).partitions[0].end


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    scratch = tmp_path_factory.mktemp("guarded")
    files = certificates.made(scratch)
    with hocket.embedded(scratch / "data") as admin:
        admin.create_topic("orders")
        admin.create_topic("copies")
        for number in range(10):
            admin.publish("orders", b"%d" % number)
        admin.create_user("admin", ["admin"])
        admin.create_role("pipeline")
        for action in ("publish", "subscribe"):
            admin.grant("pipeline", action)
        token = admin.create_user("pipeline", ["pipeline"])
        admin.create_user("alice", ["pipeline"])  # whom a certificate names
    token_file = scratch / "token"
    token_file.write_text(token + "\n")
    flags = ["--tls-cert", files.server.certificate, "--tls-key", files.server.key]
    flags += ["--tls-ca", files.authority]
    with ServerProcess(scratch / "data", *map(str, flags)) as server:
        yield Guarded(server.address, files, token, token_file)


def copy_orders(spark: SparkSession, options: dict[str, str]) -> None:
    rows = spark.read.format("hocket").options(**options, subscribe="orders").load()
    rows.select("value").write.format("hocket").options(**options, topic="copies").mode(
        "append"
    ).save()


@pytest.mark.parametrize("credentials", ["token", "tokenFile", "certificate"])
def test_whatever_the_client_takes_the_options_take(
    spark: SparkSession, guarded: Guarded, credentials: str
) -> None:
    shown = {
        "token": {"token": guarded.token},
        "tokenFile": {"tokenFile": str(guarded.token_file)},
        "certificate": {
            "tlsCert": str(guarded.files.alice.certificate),
            "tlsKey": str(guarded.files.alice.key),
        },
    }
    before = guarded.count("copies")
    copy_orders(spark, guarded.servers | shown[credentials])
    assert guarded.count("copies") == before + 10


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "asks for a token"),
        ({"tokenFile": "/nowhere/at/all"}, "/nowhere/at/all"),
        ({"tlsCa": "/nowhere/ca.pem"}, "/nowhere/ca.pem"),
    ],
)
def test_what_is_missing_is_said(
    spark: SparkSession, guarded: Guarded, options: dict[str, str], words: str
) -> None:
    with pytest.raises(Exception, match=words):
        copy_orders(spark, guarded.servers | options)


def test_neither_the_plan_nor_an_error_shows_the_token(
    spark: SparkSession, guarded: Guarded
) -> None:
    options = guarded.servers | {"token": guarded.token}
    rows = spark.read.format("hocket").options(**options, subscribe="orders").load()
    plans = explained(rows)
    assert "BatchScan hocket" in plans
    refused = failure(lambda: copy_orders(spark, guarded.wrong))
    assert "token" in refused
    assert guarded.secret not in plans + refused


@pytest.mark.skipif(not LONG, reason="a Spark of its own, logging at DEBUG: make test-spark-long")
@pytest.mark.timeout(SECONDS + 60)
def test_the_token_is_nowhere_that_spark_shows_options(guarded: Guarded, tmp_path: Path) -> None:
    """Plans, progress, the UI, its REST API, the event log, logs at DEBUG, errors, checkpoint."""
    if problem := java.problem():
        pytest.skip(problem)
    before = guarded.count("copies")
    run(
        "secrets_job",
        guarded.address,
        str(guarded.files.authority),
        str(guarded.token_file),
        "orders",
        "copies",
        str(tmp_path),
        scratch=tmp_path,
        timeout=SECONDS,
    )
    assert guarded.count("copies") == before + 20  # by the batch and by the stream
    texts = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    names = {path.relative_to(tmp_path).parts[0] for path in texts}
    assert names >= {"explained.txt", "streamed.txt", "wrong-reading.txt", "wrong-writing.txt"}
    assert names >= {"events", "checkpoint", "secrets_job.err", "ui-SQL.txt", "ui-api-sql.txt"}
    for path, text in texts.items():
        if path.name.startswith("wrong"):
            assert b"token" in text, text

    secret = guarded.secret.encode()
    showing = [
        (path.name, line[:200])
        for path, text in texts.items()
        if secret in text
        for line in text.splitlines()
        # At DEBUG Spark logs the text of every statement as it was written.
        if secret in line and b"DEBUG SparkSqlParser: Parsing command: CREATE" not in line
    ]
    assert showing == []
    # The same search finds an option that is not secret where Spark shows options, which it does
    # of a view made by a statement. So it looks in the right places.
    visible = {path for path, text in texts.items() if VISIBLE.encode() in text}
    found = {path.relative_to(tmp_path).parts[0] for path in visible}
    assert found >= {"events", "view.txt", "ui-api-sql.txt"}
