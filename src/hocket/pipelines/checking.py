"""Whether a pipeline can run: Java, its files, its topics and the rights to them, its master.

Nothing is run and nothing is changed. What is wrong is said all at once, each with its place.
"""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

from hocket.errors import HocketError, NotAllowed, OutOfRange, UnknownTopic
from hocket.pipelines.faults import PipelineFault, Place
from hocket.spark.options import ReadOptions, WriteOptions
from hocket.spark.session import is_local

if TYPE_CHECKING:
    from hocket.client.faces.blocking.client import Client
    from hocket.pipelines.declared import Declared

MASTER_SECONDS = 5.0
MASTER_PORT = 7077


def check_topics(client: Client, declared: Declared, timeout: float) -> None:
    """Raise PipelineFault with all that is wrong with the topics that are named."""
    found = problems(client, declared, timeout)
    if found:
        raise PipelineFault("; ".join(found))


def problems(client: Client, declared: Declared, timeout: float) -> list[str]:
    """What is wrong with the options and the topics of sources and sinks, each with its place."""
    found: dict[str, None] = {}
    for source in declared.sources:
        said = _option_problem(source.options, streaming=bool(source.index), reading=True)
        if said:
            found[_at(source.place, said)] = None
            continue
        if "servers" in source.options:
            for topic in source.topics:
                if said := _topic_problem(client, topic, timeout, reading=True):
                    found[_at(source.place, said)] = None
    for target in declared.targets:
        said = _option_problem(target.options, streaming=True, reading=False)
        if not said and target.topic:
            said = _topic_problem(client, target.topic, timeout, reading=False)
        if said:
            found[_at(target.place, said)] = None
    return list(found)


def _at(place: Place | None, words: str) -> str:
    return f"{place}: {words}" if place is not None else words


def _option_problem(options: dict[str, str], *, streaming: bool, reading: bool) -> str:
    try:
        if reading:
            ReadOptions.parse(options, streaming=streaming)
        else:
            WriteOptions.parse(options, streaming=streaming)
    except HocketError as error:
        return str(error)
    return ""


def _topic_problem(client: Client, topic: str, timeout: float, *, reading: bool) -> str:
    """Ask the broker by doing it: open a subscription to read, a producer to write."""
    verb = "read" if reading else "write"
    try:
        if reading:
            client.subscribe(topic, credit_bytes=1, timeout=timeout).close(timeout)
        else:
            client.producer(topic, timeout=timeout).close(timeout)
    except UnknownTopic:
        return f"there is no topic {topic!r} to {verb}; `hocket topic create {topic}` makes it"
    except NotAllowed as error:
        return f"the topic {topic!r} may not be {'read' if reading else 'written'}: {error}"
    except OutOfRange as error:
        return str(error)
    return ""


def master_problem(master: str) -> str:
    """What is wrong with the master; empty: nothing that can be seen from here."""
    if is_local(master):
        return ""
    if not re.fullmatch(r"spark://[^/]+", master):
        if re.match(r"(yarn|k8s://)", master):
            return ""
        return f"{master!r} is no master; it looks like local[2] or spark://host:{MASTER_PORT}"
    problems = []
    for each in master.removeprefix("spark://").split(","):  # one leads, the others stand by
        host, _, port = each.partition(":")
        try:
            socket.create_connection((host, int(port or MASTER_PORT)), MASTER_SECONDS).close()
        except ValueError:
            return f"{master!r} is no master: {port!r} is no port"
        except OSError as error:
            why = error.strerror or error
            problems.append(f"no master answers at {host}:{port or MASTER_PORT} ({why})")
        else:
            return ""
    return "; ".join(problems)
