"""Rules for every test: nothing is left behind, and hypothesis says how to replay a failure."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support.leaks import LeakCheck
from tests.support.threads import LONG

# The same examples in every run, so that what is covered does not depend on chance either.
settings.register_profile(
    "hocket", deadline=None, print_blob=True, derandomize=True, max_examples=30
)
settings.register_profile("hocket-long", deadline=None, print_blob=True, max_examples=1000)
settings.load_profile("hocket-long" if LONG else "hocket")

# A shell starts what it puts into the background with Ctrl-C ignored, which the commands that tests
# start and interrupt would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Take what collecting has made out of the collector's sight.

    It stays until the end, and a collection that visits it takes 50 ms and more: there are many, in
    the leak check and of the interpreter's own accord.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)  # a young collection every 700 objects is a twentieth of all


def pytest_exception_interact(node: pytest.Item, call: pytest.CallInfo[object]) -> None:
    """End the run also when Ctrl-C hits a finalizer, which makes a mere failure of it."""
    if call.excinfo is not None and isinstance(call.excinfo.value.__cause__, KeyboardInterrupt):
        node.session.shouldstop = "interrupted"


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves a thread, an open file or a registered broker behind."""
    check = LeakCheck()
    yield
    check.verify()
