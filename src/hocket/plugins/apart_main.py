"""The process of a plug-in that runs apart: `python -m hocket.plugins.apart_main FILE PARENT`.

It loads the plug-in, and then answers what the node asks, one call after the other. Whatever goes
wrong here, the node has its deadline: nothing here tries to survive.

Rule 1: it ends with its node, also if that is killed: the system is asked to see to it, where it
        can; else the end of the socket does, once the plug-in returns.
Rule 2: it has as much memory as it was given. One that wants more ends.
Rule 3: what the plug-in logs or prints goes to the node's log, and never to its standard output.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from importlib import import_module
from time import monotonic, perf_counter_ns
from typing import Any, TextIO, cast

from hocket.errors import CorruptData, Rejected
from hocket.model import TopicConfig
from hocket.node.running.hooks import Passing
from hocket.plugins.answers import check_answer, words_for
from hocket.plugins.batches import Delivery, Publish
from hocket.plugins.found import Loaded, Unusable, find, load, make
from hocket.plugins.letters import Inbox, Kind, Letter, packed
from hocket.wire.batch import whole_batches

MEMORY_CODE = 86  # the exit code of one that wants more memory than it may have
LETTER_BYTES_MAX = 1 << 31
READ_BYTES = 256 << 10
LOG_LINES_MAX = 50  # per second; the rest is counted
LOG_TEXT_MAX = 4_000
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class Mail:
    """The process's end of the socket. It may wait: the node reads whatever comes."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._lock = threading.Lock()  # a plug-in may have threads, which log
        self._inbox = Inbox(LETTER_BYTES_MAX)
        self._letters: list[Letter] = []
        self._log_second = 0
        self._logged = 0
        self._unlogged = 0

    def next(self) -> Letter | None:
        """None: the node is gone."""
        while not self._letters:
            try:
                data = self._socket.recv(READ_BYTES)
            except ConnectionError:
                return None
            if not data:
                return None
            self._letters = list(self._inbox.letters(data))
        return self._letters.pop(0)

    def send(
        self, kind: Kind, number: int = 0, ns: int = 0, head: object = None, body: Any = b""
    ) -> None:
        parts = packed(kind, number, ns, head, body)
        with self._lock:  # else another letter might come between the parts of this one
            for each in parts:
                self._socket.sendall(each)

    def log(self, level: int, name: str, text: str) -> None:
        if int(monotonic()) != self._log_second:
            self._log_second, self._logged = int(monotonic()), 0
            if self._unlogged:
                lost, self._unlogged = self._unlogged, 0
                self.send(
                    Kind.LOG, head=[logging.WARNING, "", f"{lost} lines of its log were left out"]
                )
        self._logged += 1
        if self._logged > LOG_LINES_MAX:
            self._unlogged += 1
        else:
            self.send(Kind.LOG, head=[level, name, text[:LOG_TEXT_MAX]])


class _Handler(logging.Handler):
    def __init__(self, mail: Mail) -> None:
        super().__init__()
        self._mail = mail

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
        except Exception:  # noqa: BLE001 - a line that cannot be written fails nothing, as elsewhere
            self.handleError(record)
        else:
            self._mail.log(record.levelno, record.name, text)


class _Printed:
    """Takes the place of sys.stdout: what is printed is logged by lines."""

    encoding = "utf-8"

    def __init__(self, mail: Mail, level: int) -> None:
        self._mail = mail
        self._level = level
        self._begun = ""

    def write(self, text: str) -> int:
        *lines, rest = (self._begun + text).split("\n")
        self._begun = rest[:LOG_TEXT_MAX]
        for line in filter(None, lines):
            self._mail.log(self._level, "", line)
        return len(text)

    def flush(self) -> None: ...
    def isatty(self) -> bool:
        return False


def main() -> None:
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    _die_with(parent)
    with suppress(KeyboardInterrupt), socket.socket(fileno=descriptor) as sock:
        mail = Mail(sock)
        setup = mail.next()
        if setup is not None:
            try:
                _serve(mail, setup.head)
            except MemoryError:
                os._exit(MEMORY_CODE)  # nothing that needs memory: not even an orderly end


def _serve(mail: Mail, setup: dict[str, Any]) -> None:
    sys.path[:] = setup["path"]
    _limit_memory(setup["memory_bytes"])
    logging.basicConfig(level=setup["log_level"], handlers=[_Handler(mail)], force=True)
    sys.stdout = cast(TextIO, _Printed(mail, logging.INFO))
    sys.stderr = cast(TextIO, _Printed(mail, logging.WARNING))
    try:
        loaded = _load(setup)
    except Unusable as error:
        mail.send(Kind.UNUSABLE, head=str(error))
        return
    said = {"hooks": list(loaded.functions), "policy": loaded.policy, "version": loaded.version}
    mail.send(Kind.READY, head=said)
    while (letter := mail.next()) is not None:
        _answer(mail, loaded, letter)
        if letter.head[0] == "on_close":
            return


def _load(setup: dict[str, Any]) -> Loaded:
    name, settings, policy = setup["name"], setup["settings"], setup["policy"]
    if not setup["place"]:
        return load(find(name), settings, policy)
    module, _, inner = setup["place"].partition(":")
    try:
        offered: Any = import_module(module)
        for each in inner.split("."):
            offered = getattr(offered, each)
    except Exception as error:
        raise Unusable(
            f"plug-in '{name}' cannot be imported in a process of its own: "
            f"{type(error).__name__}: {error}"
        ) from error
    return make(name, offered, settings, policy=policy)


def _answer(mail: Mail, loaded: Loaded, letter: Letter) -> None:
    hook, arguments = letter.head[0], letter.head[1:]
    function, number = loaded.functions.get(hook), letter.number
    given, batch = _arguments(hook, arguments, letter.body)
    kind, head, body = Kind.DONE, None, b""
    began = perf_counter_ns()
    try:
        head = function(*given) if function is not None else None
        check_answer(hook, head)
        made = None if batch is None else batch.encoded()
        if made is not None:
            kind, head, body = Kind.CHANGED, None, made
    except MemoryError:
        raise
    except BaseException as error:
        if hook == "on_publish" and isinstance(error, Rejected):
            kind, head = Kind.REJECTED, str(error)
        elif hook == "on_publish" and isinstance(error, CorruptData):
            kind, head = Kind.CORRUPT, str(error)
        else:
            kind, head = Kind.FAILED, words_for(hook, error)[:LOG_TEXT_MAX]
            if hook != "authenticate":
                logging.getLogger("hocket.plugins").debug("where it failed", exc_info=error)
    took = perf_counter_ns() - began
    if not isinstance(head, str):
        head = None
    mail.send(kind, number, took, head, body)


def _arguments(
    hook: str, said: list[Any], body: memoryview
) -> tuple[tuple[Any, ...], Publish | None]:
    """What the hook is called with, and the batch if there is one that it may change."""
    if hook == "on_publish":
        topic, partition, user, delayed, transaction = said
        (info,) = whole_batches(body, verify=False)
        batch = Publish(Passing(topic, partition, user, body, info, delayed, transaction))
        return (batch,), batch
    if hook == "on_deliver":
        delivered: tuple[Any, ...] = (*said, [body])
        return (Delivery(*delivered),), None
    if hook in ("on_topic_created", "on_topic_altered"):
        topic, config = said
        return (topic, TopicConfig(**config)), None
    return tuple(said), None


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:  # it was gone before we asked
            os._exit(0)


def _limit_memory(limit: int) -> None:
    """Of what the process writes to for itself. The node watches the rest."""
    if limit and sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


if __name__ == "__main__":
    main()
