"""The node's side of a plug-in that runs in a process of its own.

Rule 1: the node's thread never waits: what cannot be written now is written when the socket takes
        it, and what is not answered is given up by a timer.
Rule 2: a question waits at most a deadline for its turn, and then at most a deadline for its
        answer. Who does not answer in time is killed: it hangs, or spins. The one question that it
        had is *spoilt*; those behind it were not looked at, and may be asked again.
Rule 3: while there is no process nothing is asked: the policy decides at once.
Rule 4: what waits is bounded. Questions beyond that are put off; what is only told is dropped, and
        counted. Questions go before what is only told.

The process works on one call after the other, so the first that was sent and is not answered is the
one that it works on.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from hocket import forking
from hocket.adapters.loop import READ, WRITE
from hocket.deadline import in_seconds
from hocket.plugins.letters import Kind, Letter, Nonsense, packed
from hocket.plugins.warden import Process, Ready, Warden
from hocket.timers import Timer

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from hocket.adapters.loop import Loop

log = logging.getLogger("hocket.plugins")

WINDOW = 32  # calls that are with the process; more do not make it faster
QUESTION_BYTES_MAX = 16 << 20  # that wait, and are with the process
TOLD_BYTES_MAX = 4 << 20  # the same, of what is only told
OVERHEAD_BYTES = 512  # of a call, beside its body: so many small ones are bounded, too
READ_BYTES = 256 << 10
PARTS_MAX = 64  # that one call of the system writes
GOODBYE_SECONDS = 2.0  # for `on_close`


@dataclass(slots=True)
class Away:
    """Nobody has judged: there is no process, or it did not answer."""

    why: str
    may_try_again: bool
    is_full: bool = False  # too much waits: that is the fault of those who ask


@dataclass(slots=True)
class Answer:
    kind: int
    head: Any
    body: memoryview
    ns: int


Answered = Callable[[Answer | Away], None]


class Events(Protocol):
    """Who hears what becomes of the process. On the node's thread."""

    def heard(self, hook: str, answer: Answer) -> None:
        """What was only told was taken notice of."""

    def ended(self, why: str, hook: str) -> None:
        """It was killed, or ended by itself; while it was at `hook`, unless that is empty."""


@dataclass(slots=True, eq=False)
class _Call:
    hook: str
    head: list[Any]
    body: Buffer
    size: int
    answered: Answered | None  # None: it is only told
    since: float  # when it was asked, and then when its turn came


class Apart:
    def __init__(self, name: str, setup: dict[str, Any], deadline_seconds: float) -> None:
        """Raises Unusable."""
        self.name = name
        self.deadline_seconds = deadline_seconds
        self.state = "starting"  # then "running", "restarting", "stopped"
        self.kills = 0
        self.ends = 0  # those included
        self.dropped: Counter[str] = Counter()  # by hook: what was to be told
        self.events: Events
        self._warden = Warden(name, setup, self)
        self._lock = threading.Lock()  # over the next five
        self._is_closed = False
        self._latest: Process | None = None  # also one that the loop has not heard of
        self._open: set[Process] = set()  # whose sockets are; a loop that has ended closes none
        self._loop: Loop | None = None
        self._early: list[Callable[[], None]] = []  # to be done on the loop's thread, once it is
        self._process: Process | None = None
        self._questions: deque[_Call] = deque()
        self._told: deque[_Call] = deque()
        self._sent: deque[_Call | None] = deque()  # None: whoever asked has been answered
        self._began = 0.0  # since when the process works on the first of these
        self._question_bytes = 0
        self._told_bytes = 0
        self._number = 0  # of the last call that was sent
        self._unsent: deque[memoryview] = deque()
        self._events = 0
        self._timer: Timer | None = None
        self._will_pump = False
        self._last_hook = ""  # what the process was at when it ended

    def start(self) -> Ready:
        """Waits until the process is ready. Raises Unusable."""
        return self._warden.start()

    def attach(self, loop: Loop) -> None:
        """From now on the loop's thread is the one that asks."""
        forking.tell(self)
        with self._lock:
            self._loop = loop
            for each in self._early:
                loop.post(each)
            self._early.clear()

    def forked(self) -> None:
        """See `forking`: the process is the parent's."""
        if self._process is not None:
            self._process.socket.close()

    @property
    def waiting(self) -> int:
        """Questions that are not answered yet."""
        return len(self._questions) + sum(
            each is not None and each.answered is not None for each in self._sent
        )

    # --- asking ----------------------------------------------------------------------------------

    def ask(self, hook: str, arguments: list[Any], body: Buffer, answered: Answered) -> None:
        """`answered` is called once: now, or within two deadlines. The body must not change."""
        size = memoryview(body).nbytes + OVERHEAD_BYTES
        if self._process is None:
            answered(Away(f"its process is {self.state}", may_try_again=True))
        elif self._question_bytes + size > QUESTION_BYTES_MAX and self._question_bytes:
            answered(Away("too much waits", may_try_again=True, is_full=True))
        else:
            self._question_bytes += size
            self._questions.append(_Call(hook, arguments, body, size, answered, monotonic()))
            self._pump_soon()

    def tell(self, hook: str, arguments: list[Any], body: Buffer = b"") -> None:
        size = memoryview(body).nbytes + OVERHEAD_BYTES
        if self._process is None or self._told_bytes + size > TOLD_BYTES_MAX:
            self.dropped[hook] += 1
        else:
            self._told_bytes += size
            self._told.append(_Call(hook, arguments, body, size, None, monotonic()))
            self._pump_soon()

    def stop(self) -> None:
        """It is not wanted any more. Never waits."""
        self.state = "stopped"
        self._warden.stop()
        self._part("it is switched off", "")

    def close(self) -> None:
        """After the loop: let it say goodbye, and return when the process is gone."""
        with self._lock:
            process, self._process = self._latest, None
        self.state = "stopped"
        drain = threading.Thread(target=self._drain, args=(process,), daemon=True)
        drain.start()
        if process is not None:
            with suppress(OSError):
                process.socket.settimeout(GOODBYE_SECONDS)
                for each in (*self._unsent, *packed(Kind.CALL, 0, head=["on_close"])):
                    process.socket.sendall(each)
        self._warden.close(GOODBYE_SECONDS)
        drain.join(GOODBYE_SECONDS)
        with self._lock:
            for other in self._open:  # one may have started meanwhile
                other.socket.close()
            self._open.clear()
            self._is_closed = True

    def _drain(self, process: Process | None) -> None:
        """Read what a process still says, so that it can end, and log what it logs."""
        if process is None:
            return
        with suppress(OSError, Nonsense):
            process.socket.settimeout(GOODBYE_SECONDS)
            while data := process.socket.recv(READ_BYTES):
                for letter in process.inbox.letters(data):
                    if letter.kind == Kind.LOG:
                        self._log(letter)

    # --- what the warden says, on its thread -----------------------------------------------------

    def started(self, process: Process) -> None:
        with self._lock:
            if self._is_closed:
                process.socket.close()
                return
            self._latest = process
            self._open.add(process)
        self._post(lambda: self._started(process))

    def ended(self, why: str, *, killed: bool) -> None:
        self._post(lambda: self._ended(why, killed))

    def logged(self, letter: Letter) -> None:
        self._log(letter)

    def _post(self, task: Callable[[], None]) -> None:
        with self._lock:
            if self._loop is None:
                self._early.append(task)
            else:
                self._loop.post(task)

    # --- on the node's thread --------------------------------------------------------------------

    def _started(self, process: Process) -> None:
        if self.state == "stopped":
            process.is_over.set()
            return
        self._process = process
        self.state = "running"
        self._watch()

    def _ended(self, why: str, killed: bool) -> None:
        self._part(why, "restarting")
        self.ends += 1
        self.kills += killed
        hook, self._last_hook = self._last_hook, ""
        self.events.ended(why, hook)

    def _part(self, why: str, state: str) -> None:
        """There is no process any more: the policy decides on all that waits."""
        process, self._process = self._process, None
        if self.state != "stopped" and state:
            self.state = state
        if process is not None:
            if self._events:
                assert self._loop is not None
                self._loop.unregister(process.socket)
                self._events = 0
            process.socket.close()
            process.is_over.set()
            with self._lock:
                self._open.discard(process)
        sent, questions, told = self._sent, self._questions, self._told
        self._sent, self._questions, self._told = deque(), deque(), deque()
        self._unsent.clear()
        self._question_bytes = self._told_bytes = 0
        if sent and sent[0] is not None:
            self._last_hook = sent[0].hook
        for place, call in enumerate((*sent, *questions, *told)):
            if call is None:
                continue
            if call.answered is None:
                self.dropped[call.hook] += 1
            else:
                call.answered(Away(why, may_try_again=place > 0 or not sent))

    def _kill(self, why: str) -> None:
        self._warden.kill(why)
        self._part(why, "restarting")

    def _pump_soon(self) -> None:
        """At the end of this turn, so that what one turn brings is written at once."""
        if not self._will_pump:
            self._will_pump = True
            assert self._loop is not None
            self._loop.post(self._pump)

    def _pump(self) -> None:
        self._will_pump = False
        if self._process is None:
            return
        while len(self._sent) < WINDOW and (self._questions or self._told):
            call = self._questions.popleft() if self._questions else self._told.popleft()
            if not self._sent:
                self._began = monotonic()
            self._number = (self._number + 1) & 0xFFFFFFFF
            head = [call.hook, *call.head]
            parts = packed(Kind.CALL, self._number, head=head, body=call.body)
            self._unsent.extend(map(memoryview, parts))
            self._sent.append(call)
        self._write()
        self._set_timer()

    def _write(self) -> None:
        process = self._process
        if process is None:
            return
        try:
            while self._unsent:
                parts = [self._unsent[i] for i in range(min(len(self._unsent), PARTS_MAX))]
                count = process.socket.sendmsg(parts)
                while count:
                    first = self._unsent.popleft()
                    if count < len(first):
                        self._unsent.appendleft(first[count:])
                    count -= min(count, len(first))
        except BlockingIOError:
            pass
        except OSError:
            self._part("its process has ended", "restarting")
            return
        self._watch()

    def _watch(self) -> None:
        process, loop = self._process, self._loop
        assert process is not None
        assert loop is not None
        wanted = READ | WRITE if self._unsent else READ
        if wanted != self._events:
            set_events = loop.modify if self._events else loop.register
            set_events(process.socket, wanted, self._ready)
            self._events = wanted

    def _ready(self, events: int) -> None:
        if events & WRITE:
            self._write()
        process = self._process
        if process is None or not events & READ:
            return
        try:
            data = process.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._part("its process has ended", "restarting")
            return
        try:
            for letter in process.inbox.letters(data):
                self._take(letter)
                if self._process is not process:
                    return
        except Nonsense as error:
            self._kill(f"it has sent {error}")
            return
        if self._questions or self._told:
            self._pump()

    def _take(self, letter: Letter) -> None:
        if letter.kind == Kind.LOG:
            self._log(letter)
            return
        expected = (self._number - len(self._sent) + 1) & 0xFFFFFFFF
        if not self._sent or letter.number != expected:
            raise Nonsense(f"an answer to call {letter.number}, which was not asked")
        call = self._sent.popleft()
        self._began = monotonic()
        if call is None:
            return
        answer = Answer(letter.kind, letter.head, letter.body, letter.ns)
        if call.answered is not None:
            self._question_bytes -= call.size
            call.answered(answer)
        else:
            self._told_bytes -= call.size
            self.events.heard(call.hook, answer)

    def _log(self, letter: Letter) -> None:
        try:
            level, name, text = letter.head
            log.log(int(level), "plug-in '%s'%s: %s", self.name, f" ({name})" if name else "", text)
        except (TypeError, ValueError):
            log.debug("plug-in '%s' logs what cannot be understood", self.name)

    # --- deadlines -------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        if self._timer is not None:
            return
        due = self._next_due()
        if due is not None:
            assert self._loop is not None
            self._timer = self._loop.after(
                max(1_000, int((due - monotonic()) * 1e6)), self._look_at_the_clock
            )

    def _next_due(self) -> float | None:
        dues = [self._began] if self._sent else []
        for place, each in enumerate(self._sent):  # the first one has its turn
            if place and each is not None and each.answered is not None:
                dues.append(each.since)
                break
        if self._questions:
            dues.append(self._questions[0].since)
        return min(dues) + self.deadline_seconds if dues else None

    def _look_at_the_clock(self) -> None:
        self._timer = None
        self._ready(READ)  # it may have answered while the node was busy with something else
        late = monotonic() - self.deadline_seconds
        if self._sent and self._began <= late:
            self._kill(f"it did not answer within {in_seconds(self.deadline_seconds)}")
            return
        limit = in_seconds(self.deadline_seconds)
        away = Away(f"it was not its turn within {limit}", may_try_again=True)
        for place, call in enumerate(list(self._sent)):
            if place and call is not None and call.answered is not None and call.since <= late:
                self._sent[place] = None
                self._question_bytes -= call.size
                call.answered(away)
        while self._questions and self._questions[0].since <= late:
            call = self._questions.popleft()
            self._question_bytes -= call.size
            assert call.answered is not None
            call.answered(away)
        self._set_timer()
