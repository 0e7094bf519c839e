"""Writes the archive of classes that the JVMs of the tests begin with (`tests.support.java`).

It has those that a batch and a stream load which go from topic to topic. Without Java it writes an
empty file, which Java, once it is there, leaves alone.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import hocket
from hocket.spark import java
from tests.support.java import CLASS_ARCHIVE, QUICK
from tests.support.processes.server import ServerProcess


def main() -> None:
    part = CLASS_ARCHIVE.with_suffix(".part")  # broken off, it is no archive
    part.unlink(missing_ok=True)
    if java.problem() is None:
        with tempfile.TemporaryDirectory(prefix="hocket-test-") as folder:
            _load_classes(Path(folder), f"{QUICK} -XX:ArchiveClassesAtExit={part}")
    part.touch()
    os.replace(part, CLASS_ARCHIVE)


def _load_classes(folder: Path, options: str) -> None:
    from hocket.spark.session import session

    with ServerProcess(folder / "data") as server:
        with hocket.connect(server.address) as client:
            client.create_topic("from")
            client.create_topic("to")
            client.publish("from", b"1", key=b"k")
        spark = session("classes", config={"spark.driver.extraJavaOptions": options})
        where = {"servers": server.address, "subscribe": "from", "startingOffsets": "earliest"}
        rows = spark.read.format("hocket").options(**where).load()
        rows.groupBy("key").count().collect()
        rows.select("key", "value").write.format("hocket").mode("append").options(
            servers=server.address, topic="to"
        ).save()
        query = (
            spark.readStream.format("hocket").options(**where).load().repartition(2, "key")
            .groupBy("key").count().selectExpr("key", "cast(count as string) as value")
            .writeStream.format("hocket").outputMode("complete").trigger(availableNow=True)
            .options(servers=server.address, topic="to", checkpointLocation=str(folder / "check"))
            .start()
        )  # fmt: skip
        query.awaitTermination()
        gateway = spark.sparkContext._gateway
        spark.stop()
        assert gateway is not None
        gateway.proc.stdin.close()  # Java ends then, and writes the archive as its last deed
        gateway.proc.wait()


if __name__ == "__main__":
    main()
