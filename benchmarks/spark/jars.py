"""Kafka's broker and Spark's Kafka connector, fetched by the machine's own Maven into .cache.

Nothing of it is part of this repository. Where Maven or Java is missing, or what it is asked for
cannot be had, the benchmark runs without Kafka and says why.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(__file__).parent / ".cache"
FETCH_SECONDS = 600

SCALA = "2.13"
BROKER = "4.3.1"
CLIENTS = "3.9.2"  # what the connector is built with
POOL = "2.13.1"
LOGGING = "1.7.36"

# The newest of each that Maven Central has. The token provider only matters to those who log in.
CONNECTOR = "4.2.0"
TOKEN_PROVIDERS = ("4.2.0", "4.1.0-preview1")


class NoKafka(Exception):
    """Kafka cannot be measured here; the message says why."""


@dataclass(frozen=True, slots=True)
class Jar:
    group: str
    name: str
    version: str
    alone: bool = False  # without what it depends on: Spark has that already

    def xml(self) -> str:
        every = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
        exclusions = f"<exclusions>{every}</exclusions>" if self.alone else ""
        return (
            f"<dependency><groupId>{self.group}</groupId><artifactId>{self.name}</artifactId>"
            f"<version>{self.version}</version>{exclusions}</dependency>"
        )


def broker_jars() -> list[Path]:
    """All that a Kafka broker needs to run."""
    return fetched(
        f"kafka-{BROKER}",
        [
            Jar("org.apache.kafka", f"kafka_{SCALA}", BROKER),
            Jar("org.slf4j", "slf4j-simple", LOGGING),
        ],
    )


def connector_jars() -> tuple[list[Path], str]:
    """What Spark needs beside itself to read and write Kafka, and which versions these are."""
    for provider in TOKEN_PROVIDERS:
        try:
            versions = f"kafka-clients {CLIENTS}, token provider {provider}"
            return connector_with(provider), f"{CONNECTOR} ({versions})"
        except NoKafka as error:
            problem = error
    raise problem


def connector_with(provider: str) -> list[Path]:
    spark = "org.apache.spark"
    return fetched(
        f"connector-{CONNECTOR}-{provider}",
        [
            Jar(spark, f"spark-sql-kafka-0-10_{SCALA}", CONNECTOR, alone=True),
            Jar(spark, f"spark-token-provider-kafka-0-10_{SCALA}", provider, alone=True),
            Jar("org.apache.kafka", "kafka-clients", CLIENTS, alone=True),
            Jar("org.apache.commons", "commons-pool2", POOL, alone=True),
        ],
    )


def fetched(name: str, jars: list[Jar]) -> list[Path]:
    """The jars in .cache/NAME, from there if an earlier run has fetched them."""
    directory = CACHE / name
    if not directory.is_dir():
        fetch(directory, jars)
    return sorted(directory.glob("*.jar"))


def fetch(directory: Path, jars: list[Jar]) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise NoKafka("there is no Maven (Debian: apt-get install maven)")
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        (Path(scratch) / "pom.xml").write_text(project(jars))
        try:
            run = subprocess.run(
                [maven, "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime",
                 "-DoutputDirectory=jars"],
                cwd=scratch, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                timeout=FETCH_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise NoKafka(f"Maven took more than {FETCH_SECONDS} s") from None
        if run.returncode:
            raise NoKafka(f"Maven could not fetch {directory.name}: {reason(run.stdout)}")
        (Path(scratch) / "jars").rename(directory)  # whole, or not there


def project(jars: list[Jar]) -> str:
    """The least that Maven takes for a project."""
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>bench</groupId><artifactId>bench</artifactId><version>1</version>"
        "<packaging>pom</packaging><dependencies>"
        + "".join(jar.xml() for jar in jars)
        + "</dependencies></project>"
    )


def reason(output: str) -> str:
    """The first line with an error in it, without the rest of Maven's page."""
    lines = [line for line in output.splitlines() if "ERROR" in line]
    return (lines or output.splitlines() or ["it said nothing"])[0][:300]
