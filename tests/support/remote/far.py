"""Objects of another process, used as if they were here: what lets a test act on both sides.

    python -m tests.support.remote.far        (its standard input is a socket)

A `Far` is a process; `far.call(function, ...)` runs a function of a module there. Plain values,
bytes and errors travel by value. Everything else stays where it is, and the other side gets a
`Proxy`, always the same one for the same object.

Rule 1: a thread goes on in the other process. What it calls there runs on one thread of its own
        there, its *shadow*; what that calls back runs on the thread that waits for it. So a pump's
        thread has one shadow here, and what a listener calls is called on the pump's thread.
Rule 2: what happens to an object happens in its own process. Only the test is here.
"""

from __future__ import annotations

import array
import asyncio
import faulthandler
import importlib
import inspect
import itertools
import os
import pickle
import queue
import signal
import socket
import struct
import subprocess
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

from hocket.addresses import Address
from hocket.local import Channel
from tests.support import threads
from tests.support.certificates import Certificates
from tests.support.leaks import LeakCheck
from tests.support.processes.forked import popen
from tests.support.queues.listeners import History

LENGTH = struct.Struct("!Q")
# Each call is handed from thread to thread four times, and each time a thread that computes may
# keep the next one waiting for so long; 5 ms is usual.
SWITCH_SECONDS = 2e-4
BY_VALUE = (array.array, type, Address, Certificates)
# Where a class has the same methods as long as it lives.
STEADY = {
    "hocket.local.broker",
    "hocket.local.channel",
    "hocket.local.event_pump",
    "hocket.local.queue_broker",
    "hocket.remote.manager",
    "hocket.remote.queue_end",
    "tests.support.queues.listeners",
    "tests.support.remote.worlds",
}
PLAIN = (type(None), bool, int, float, str, bytes)


class Line:
    """One thread, of whichever process, as far as it goes on in the other one."""

    def __init__(self, token: tuple[str, int]) -> None:
        self.token = token
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.thread: threading.Thread | None = None  # here


class Conversation:
    """One side of what two processes say to each other."""

    def __init__(self, connection: socket.socket, side: str) -> None:
        self._socket = connection
        self._side = side
        self._sending = threading.Lock()
        self._changing = threading.Lock()
        self._numbers = itertools.count(1)
        self._local = threading.local()
        self._lines: dict[tuple[str, int], Line] = {}
        self._shadows: list[Line] = []
        self._shown: dict[int, Any] = {}  # objects of ours that the other side knows, by id
        self._proxies: dict[int, Proxy] = {}
        self._methods: set[tuple[str, str]] = set()  # what is known to be one, by class and name
        self._awaited_buffers: dict[int, list[Any]] = {}  # that coroutines of ours fill
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread: threading.Thread | None = None
        self._lost = False

    # --- frames ------------------------------------------------------------------------------

    def _send(self, *frame: Any) -> None:
        data = pickle.dumps(frame, protocol=5)
        with self._sending:
            self._socket.sendall(LENGTH.pack(len(data)) + data)

    def read(self) -> None:
        """Hands out what comes, until the other side ends."""
        with self._socket.makefile("rb") as stream:
            while len(head := stream.read(LENGTH.size)) == LENGTH.size:
                token, *what = pickle.loads(stream.read(LENGTH.unpack(head)[0]))
                with self._changing:
                    line = self._lines.get(token)
                    if line is None:
                        line = self._shadow(token)
                line.inbox.put(what)
        with self._changing:
            self._lost = True
            for line in self._lines.values():
                line.inbox.put(("lost",))

    def _shadow(self, token: tuple[str, int]) -> Line:
        line = self._lines[token] = Line(token)
        self._shadows.append(line)
        line.thread = threading.Thread(
            target=self._serve, args=(line,), name=f"test: shadow of {token}", daemon=True
        )
        line.thread.start()
        return line

    def _serve(self, line: Line) -> None:
        self._local.line = line
        while (what := line.inbox.get()) and what[0] in ("call", "told"):
            if what[0] == "call":
                self._answer(line, *what[1:])
            else:
                self._note(*what[1:])

    def _note(self, given: Any) -> None:
        target, name, arguments = self._decode(given, [])
        getattr(target, name)(*arguments)

    def _answer(self, line: Line, number: int, operation: str, given: Any) -> None:
        buffers: list[Any] = []
        try:
            arguments = self._decode(given, buffers)
            result = getattr(self, "_do_" + operation)(*arguments)
            if inspect.iscoroutine(result):
                self._awaited_buffers[id(result)], buffers = buffers, []
            outcome = ("result", self._encode(result))
        except BaseException as error:
            outcome = ("error", self._encode(error))
        self._send(line.token, "answer", number, *outcome, _contents(buffers))

    def _line(self) -> Line:
        """Of this thread."""
        line = getattr(self._local, "line", None)
        if line is None or line.token not in self._lines:
            line = self._local.line = Line((self._side, next(self._numbers)))
            line.thread = threading.current_thread()
            with self._changing:
                self._lines[line.token] = line
        assert isinstance(line, Line)
        return line

    def tell(self, target: Proxy, name: str, arguments: tuple[Any, ...]) -> None:
        """Have it done there, on this thread's shadow, in order, without waiting for it."""
        self._send(self._line().token, "told", self._encode((target, name, arguments)))

    def ask(self, operation: str, *arguments: Any) -> Any:
        """Have it done there, on this thread's shadow, and serve what that calls back."""
        line = self._line()
        buffers: list[Any] = []
        number = next(self._numbers)
        self._send(line.token, "call", number, operation, self._encode(arguments, buffers))
        known = threads.elsewhere.setdefault(threading.get_ident(), [])
        known.append(lambda: self.ask("is_parked", line.token))
        try:
            while True:
                kind, *what = (None, None) if self._lost else line.inbox.get()
                if kind == "call":
                    self._answer(line, *what)
                elif kind == "told":
                    self._note(*what)
                elif kind == "answer":
                    if what.pop(0) == number:  # else the test gave up waiting for it
                        break
                else:
                    raise ConnectionError("the other process is gone")
        finally:
            known.pop()
        how, value, filled = what
        if type(value) is tuple and value[0] == "coroutine":
            return self._awaited(self._proxy(value[1], "builtins", "object"), buffers)
        _fill(buffers, filled)
        decoded = self._decode(value, [])
        if how == "error":
            raise decoded
        return decoded

    def end(self) -> None:
        """Forget all objects and threads of a test; both sides do."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            assert self._loop_thread is not None
            self._loop_thread.join()
            self._loop.close()
            self._loop = None
        for each in list(self._shown.values()):
            if isinstance(each, Channel):
                each.disconnect()  # one that is dropped instead gives a warning
        own = getattr(self._local, "line", None)
        for line in self._shadows:
            if line is not own:
                line.inbox.put(None)
        for line in self._shadows:
            if line is not own and line.thread is not None:
                line.thread.join(10)
        with self._changing:
            self._shadows[:] = [line for line in self._shadows if line is own]
            self._lines = {} if own is None else {own.token: own}
            self._shown.clear()
            self._proxies.clear()

    # --- what one side does for the other ----------------------------------------------------

    def _do_call(self, target: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        return target(*arguments, **named)

    def _do_call_method(
        self, target: Any, name: str, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        return getattr(target, name)(*arguments, **named)

    def _do_call_named(
        self, module: str, name: str, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        return getattr(importlib.import_module(module), name)(*arguments, **named)

    def _do_get(self, target: Any, name: str) -> Any:
        value = getattr(target, name)
        return Method(target, name) if isinstance(value, types.MethodType) else value

    def _do_set(self, target: Any, name: str, value: Any) -> None:
        setattr(target, name, value)

    def _do_apply(self, function: str, *arguments: Any) -> Any:
        return {"repr": repr, "len": len, "bool": bool, "list": list, "iter": iter, "next": next}[
            function
        ](*arguments)

    def _do_function_of(self, target: Any, name: str) -> Any:
        function = getattr(getattr(target, name), "__func__", None)
        of_both = getattr(function, "__module__", "").startswith("hocket.")
        return pickle.dumps(function) if of_both else None

    def _do_is_parked(self, token: tuple[str, int]) -> bool:
        line = self._lines.get(token)
        return line is not None and line.thread is not None and threads.is_parked(line.thread)

    def _do_await(self, coroutine: Any, cancelling: Any) -> Any:
        """Runs it on the loop of this process; `cancelling` is set once it shall be cancelled."""
        with self._changing:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._loop_thread = threading.Thread(
                    target=self._loop.run_forever, name="test: loop", daemon=True
                )
                self._loop_thread.start()
        running = Awaiting(coroutine, self._loop)
        cancelling.cancel = running.cancel
        if cancelling.wanted:
            running.cancel()
        return running.result()

    def _do_filled(self, coroutine: Any) -> list[bytes]:
        return _contents(self._awaited_buffers.pop(id(coroutine)))

    def _do_end(self) -> None:
        self.end()

    # --- values ------------------------------------------------------------------------------

    def _encode(self, value: Any, buffers: list[Any] | None = None) -> Any:
        kind = type(value)
        if kind in PLAIN:
            return value
        if kind in (list, tuple, set, frozenset):
            return kind, [self._encode(each, buffers) for each in value]
        if kind is dict:
            return dict, [
                (self._encode(key), self._encode(each, buffers)) for key, each in value.items()
            ]
        if kind is Proxy and value._far is self:
            return "yours", value._number
        if kind is Method:
            if isinstance(value.target, Proxy) and value.target._far is self:
                return "your method", value.target._number, value.name
            self._show(value.target)
            return "method", self._encode(value.target), value.name
        if kind is bytearray:
            if buffers is not None:
                buffers.append(value)
                return "filled", bytes(value)
            return kind, bytes(value)
        if kind is memoryview:
            return self._encode_view(value, buffers)
        if buffers is not None and (view := _writable(value)) is not None:
            buffers.append(view)
            return "filled", bytes(view)
        if kind in BY_VALUE:
            return "pickled", pickle.dumps(value)
        if isinstance(value, BaseException):
            made = [self._encode(each) for each in (value.args, vars(value), value.__cause__)]
            return "error", kind, *made
        if inspect.iscoroutine(value):
            return "coroutine", self._show(value)
        only_notes = kind is History and not (
            value.on_received or value.on_sent or value.on_writable or value.on_closed
        )
        return "mine", self._show(value), kind.__module__, kind.__qualname__, only_notes

    def _encode_view(self, view: memoryview, buffers: list[Any] | None) -> Any:
        try:
            data = view.tobytes()
        except ValueError:
            return "released view", None
        if not view.contiguous:
            return "strided view", data
        if view.readonly or buffers is None:
            return "view", data, view.format
        buffers.append(view)
        return "filled view", data

    def _show(self, value: Any) -> int:
        self._shown[id(value)] = value  # it stays, and so its id is its own
        return id(value)

    def _decode(self, value: Any, buffers: list[Any]) -> Any:
        if type(value) in PLAIN:
            return value
        kind, given, *more = value
        if kind in (list, tuple, set, frozenset):
            return kind(self._decode(each, buffers) for each in given)
        if kind is dict:
            return {self._decode(key, buffers): self._decode(each, buffers) for key, each in given}
        if kind is bytearray:
            return bytearray(given)
        if kind == "filled":
            buffers.append(bytearray(given))
            return buffers[-1]
        if kind == "filled view":
            buffers.append(bytearray(given))
            return memoryview(buffers[-1])
        if kind == "view":
            return memoryview(given).cast(more[0]) if more[0] != "B" else memoryview(given)
        if kind == "strided view":
            return memoryview(bytearray(2 * len(given)))[::2]
        if kind == "released view":
            view = memoryview(bytearray(4))
            view.release()
            return view
        if kind == "pickled":
            return pickle.loads(given)
        if kind == "error":
            return self._decode_error(given, *more)
        if kind == "yours":
            return self._shown[given]
        if kind == "your method":
            return getattr(self._shown[given], more[0])
        if kind == "method":
            return Method(self._decode(given, []), more[0])
        assert kind == "mine"
        return self._proxy(given, *more)

    def _decode_error(self, kind: type[BaseException], *parts: Any) -> BaseException:
        arguments, fields, cause = (self._decode(each, []) for each in parts)
        error = kind.__new__(kind, *arguments)
        error.args = arguments
        vars(error).update(fields)
        error.__cause__ = cause
        return error

    def _proxy(self, number: int, module: str, name: str, only_notes: bool = False) -> Proxy:
        with self._changing:
            found = self._proxies.get(number)
            if found is None:
                found = self._proxies[number] = Proxy(self, number, module, name, only_notes)
            return found

    async def _awaited(self, coroutine: Proxy, buffers: list[Any]) -> Any:
        try:
            return await self._await(coroutine)
        finally:
            _fill(buffers, self.ask("filled", coroutine))

    async def _await(self, coroutine: Proxy) -> Any:
        cancelling = Cancelling()
        running = asyncio.get_running_loop().run_in_executor(
            None, self.ask, "await", coroutine, cancelling
        )
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            cancelling.wanted = True
            if cancelling.cancel is not None:
                await asyncio.to_thread(cancelling.cancel)
            await asyncio.wait([running])
            if running.cancelled() or running.exception() is not None:
                raise
            return running.result()  # it was done before


def _contents(buffers: list[Any]) -> list[bytes]:
    return [memoryview(each).tobytes() for each in buffers]


def _fill(buffers: list[Any], contents: list[bytes]) -> None:
    for buffer, data in zip(buffers, contents, strict=True):
        if memoryview(buffer).tobytes() != data:
            memoryview(buffer).cast("B")[:] = data


def _writable(value: Any) -> memoryview | None:
    """The bytes of any other object that can be filled."""
    try:
        view = memoryview(value)
    except TypeError:
        return None
    return None if view.readonly else view.cast("B")


class Cancelling:
    wanted = False
    cancel: Any = None


class Awaiting:
    """A coroutine that runs on the loop of another thread.

    What it gives is what its task gave: `run_coroutine_threadsafe` calls one cancelled that had its
    result when the cancellation came.
    """

    def __init__(self, coroutine: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: queue.SimpleQueue[asyncio.Task[Any]] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[asyncio.Task[Any]] = queue.SimpleQueue()
        loop.call_soon_threadsafe(self._begin, coroutine)
        self._task = self._tasks.get()

    def _begin(self, coroutine: Any) -> None:
        task = self._loop.create_task(coroutine)
        task.add_done_callback(self._ended.put)
        self._tasks.put(task)

    def cancel(self) -> None:
        self._loop.call_soon_threadsafe(self._task.cancel)

    def result(self) -> Any:
        return self._ended.get().result()


class Method:
    """A method of an object of the other process."""

    def __init__(self, target: Any, name: str) -> None:
        self.target = target
        self.name = name

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self.target._only_notes:
            self.target._far.tell(self.target, self.name, arguments)
            return None
        return self.target._far.ask("call_method", self.target, self.name, arguments, named)

    @property
    def __func__(self) -> Any:
        """The function, if both processes have it: hocket knows its own by identity."""
        found = self.target._far.ask("function_of", self.target, self.name)
        return found and pickle.loads(found)

    def __repr__(self) -> str:
        return f"<far method {self.name}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Method) and (self.target, self.name) == (other.target, other.name)

    def __hash__(self) -> int:
        return hash((id(self.target), self.name))


class Proxy:
    """An object of the other process."""

    __slots__ = ("_far", "_module", "_name", "_number", "_only_notes")
    _far: Conversation
    _number: int
    _module: str
    _name: str
    _only_notes: bool  # its methods need not be waited for

    def __init__(
        self, far: Conversation, number: int, module: str, name: str, only_notes: bool
    ) -> None:
        for field, value in zip(
            ("_far", "_number", "_module", "_name", "_only_notes"),
            (far, number, module, name, only_notes),
            strict=True,
        ):
            object.__setattr__(self, field, value)

    @property
    def __class__(self) -> type:  # type: ignore[override]
        """Its own, where there is one of that name here: for `isinstance`."""
        if not self._module.startswith("hocket."):
            return Proxy
        found: Any = sys.modules.get(self._module)
        return getattr(found, self._name, Proxy)

    def __getattr__(self, name: str) -> Any:
        known = (self._module + self._name, name)
        if known in self._far._methods:
            return Method(self, name)
        value = self._far.ask("get", self, name)
        if type(value) is Method and value.target is self and self._module in STEADY:
            self._far._methods.add(known)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        self._far.ask("set", self, name, value)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._far.ask("call", self, arguments, named)

    def __enter__(self) -> Any:
        return self._far.ask("call_method", self, "__enter__", (), {})

    def __exit__(self, *_error: object) -> None:
        self._far.ask("call_method", self, "__exit__", (None, None, None), {})

    def __repr__(self) -> str:
        return str(self._far.ask("apply", "repr", self))

    def __len__(self) -> int:
        return int(self._far.ask("apply", "len", self))

    def __bool__(self) -> bool:
        return bool(self._far.ask("apply", "bool", self))

    def __iter__(self) -> Any:
        return self._far.ask("apply", "iter", self)

    def __next__(self) -> Any:
        return self._far.ask("apply", "next", self)


class Far:
    """A process of its own, for the tests of a session."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.process: subprocess.Popen[Any] = popen(
                [sys.executable, "-m", "tests.support.remote.far"], stdin=theirs
            )
        self._socket = ours
        self._talk = Conversation(ours, "here")
        self._reading = threading.Thread(target=self._talk.read, name="test: far", daemon=True)
        self._reading.start()

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Run a function or make an object of a class there, which its module has by name."""
        return self._talk.ask(
            "call_named", function.__module__, function.__qualname__, arguments, named
        )

    def begin(self) -> None:
        """The beginning of a test."""
        self._interval = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_SECONDS)
        self.call(_look_around)

    def end(self, *, verify: bool = True) -> None:
        """The end of a test: all is forgotten, and nothing may be left behind there."""
        self._talk.ask("end")
        self._talk.end()
        sys.setswitchinterval(self._interval)
        if verify:
            self.call(_verify)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._reading.join(10)
        self._socket.close()
        self.process.wait(30)


_leaks: list[LeakCheck] = []  # of this process, since the test began


def _look_around() -> None:
    _leaks[:] = [LeakCheck()]


def _verify() -> None:
    _leaks[0].verify()


def main() -> None:
    faulthandler.register(signal.SIGUSR2)  # to see where it stands
    sys.setswitchinterval(SWITCH_SECONDS)
    connection = socket.socket(fileno=os.dup(0))
    Conversation(connection, "there").read()
    os._exit(0)


if __name__ == "__main__":
    from tests.support.remote import far  # what is called here by name lives there

    far.main()
