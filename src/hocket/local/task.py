"""A thread that belongs to a `with` block."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hocket.deadline import check_seconds, in_seconds
from hocket.errors import BusyResource, Timeout
from hocket.local.checks import check_callable

if TYPE_CHECKING:
    from typing import Self

    from hocket.local.broker import Broker

_running = threading.local()


class Task:
    """Runs `target(*args)` on a thread of its own, which ends before its `with` block does.

    An error of the target is raised at the end of the block, or by `join`. If the block raises too,
    the block's error becomes the context of the task's.
    """

    def __init__(
        self,
        target: Callable[..., Any],
        *args: Any,
        name: str | None = None,
        broker: Broker | None = None,
    ) -> None:
        check_callable(target, "a task's target")
        self.broker = broker
        self.result: Any = None
        self._target = target
        self._args = args
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name)

    @staticmethod
    def current() -> Task | None:
        """The task that the calling code runs in, None outside of any."""
        return getattr(_running, "task", None)

    @property
    def name(self) -> str:
        return self._thread.name

    def start(self) -> Self:
        if self._thread.ident is not None:
            raise BusyResource(f"task {self.name!r} has been started already; make a new one")
        self._thread.start()
        return self

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end of the task, and raise the error of its target if it failed."""
        if timeout is not None:
            check_seconds(timeout, "timeout")
        self._thread.join(None if timeout is None else min(timeout, threading.TIMEOUT_MAX))
        if self._thread.is_alive():
            raise Timeout(f"task {self.name!r} is still running after {in_seconds(timeout)}")
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        _running.task = self
        try:
            self.result = self._target(*self._args)
        except BaseException as failure:  # noqa: BLE001 - its owner gets it, whatever it is
            self._failure = failure

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.join()

    def __repr__(self) -> str:
        return f"<Task {self.name!r}>"
