"""One broker process for all tests of the command line; each test has topics of its own."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from itertools import count

import pytest

import hocket.client.faces.blocking.client
import hocket.wire.node_schema  # it keeps its file open: no test that serves is to blame
from tests.support.cli import Hocket, serving

_NUMBERS = count()


@pytest.fixture(autouse=True)
def own_config(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The contexts of whoever runs the tests are none of the tests' business."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.getbasetemp() / "no-config"))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("broker") / "data") as broker:
        yield broker.url
        assert broker.stop() == 0


@pytest.fixture
def hocket(server: str) -> Hocket:
    return Hocket(server)


@pytest.fixture
def topic(hocket: Hocket) -> str:
    """A topic with one partition."""
    name = f"topic-{next(_NUMBERS)}"
    assert hocket("topic", "create", name).code == 0
    return name


@pytest.fixture
def topic_of_four(hocket: Hocket) -> str:
    """A topic with four partitions."""
    name = f"four-{next(_NUMBERS)}"
    assert hocket("topic", "create", name, "--partitions", "4").code == 0
    return name


@pytest.fixture
def usual_logging() -> Iterator[None]:
    """As it was, after a test in whose process `serve` has set up its log and its signals."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    handlers = {number: signal.getsignal(number) for number in numbers}
    interval = sys.getswitchinterval()
    root, audit = logging.getLogger(), logging.getLogger("hocket.audit")
    before = root.handlers[:], root.level, audit.level
    hooks = warnings.showwarning, threading.excepthook, sys.unraisablehook
    yield
    warnings.showwarning, threading.excepthook, sys.unraisablehook = hooks
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    audit.setLevel(before[2])
    sys.setswitchinterval(interval)
    for number, handler in handlers.items():
        signal.signal(number, handler)
