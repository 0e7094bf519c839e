"""The runs of pipelines, kept in a topic of the broker, so that any terminal sees them.

Every run tells the topic what it does: that it began, each update, how it ended. A run reads the
topic too, by an index of the pipeline's name: so it hears when somebody asks it to stop. While the
run is alive it is attached to that index, and the broker knows at once when it is not; no clock and
no heartbeat decides.

Two runs of one pipeline: the second finds the index attached, and is refused by name. Should two
begin at the same moment, the order in the topic decides: the one that began later goes on, and the
other one hears of it and stops.
"""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import dataclass, field
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from hocket.errors import Fenced, HocketError, Timeout, UnknownTopic

if TYPE_CHECKING:
    from hocket.client.faces.blocking.client import Client
    from hocket.client.faces.blocking.subscription import Subscription
    from hocket.client_core.consuming.message import Message

TOPIC = "hocket.pipelines"
RETENTION = "30d"
READ_SECONDS = 10.0

NUMBER_MAX = 1e11  # of seconds: the year 5138
# What the messages of each kind have, beside `at`.
FIELDS: dict[str, dict[str, type]] = {
    "started": {"run": str, "host": str, "pid": int, "directory": str, "master": str},
    "update": {
        "run": str, "number": int, "seconds": float, "rows": int, "rows_per_second": float,
        "bad": int, "lag": dict, "rows_in_all": int, "bad_in_all": int,
    },
    "ended": {"run": str, "state": str, "error": str},
}  # fmt: skip

RUNNING, STOPPED, FINISHED, FAILED, DIED = "running", "stopped", "finished", "failed", "died"


class AlreadyRunning(HocketError):
    """Another run of the same pipeline is alive."""


class UnknownPipeline(HocketError):
    """No run of a pipeline of this name is known to the broker."""


@dataclass(slots=True)
class Run:
    """What is known of the last run of one pipeline."""

    pipeline: str
    run: str = ""
    state: str = RUNNING
    host: str = ""
    pid: int = 0
    directory: str = ""
    master: str = ""
    began: float = 0.0  # seconds since 1970
    changed: float = 0.0
    updates: int = 0
    rows: int = 0  # read since the run began
    bad: int = 0  # records that did not fit, since the run began
    update: dict[str, Any] = field(default_factory=dict)  # the last one
    error: str = ""

    def fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


class Runs:
    """What the topic says of runs, for those who only look."""

    def __init__(self, client: Client, timeout: float = READ_SECONDS) -> None:
        self._client = client
        self._timeout = timeout

    def all(self) -> dict[str, Run]:
        """The last run of each pipeline, by name."""
        found: dict[str, Run] = {}
        for message in self._messages():
            note_in(found, message)
        attached = self._attached()
        for name, run in found.items():
            if run.state == RUNNING and name not in attached:
                run.state = DIED
        return dict(sorted(found.items()))

    def one(self, name: str) -> Run:
        found = self.all()
        if name not in found:
            known = ", ".join(found) or "none"
            raise UnknownPipeline(f"no run of a pipeline {name!r} is known; there are: {known}")
        return found[name]

    def events(self, name: str) -> list[dict[str, Any]]:
        """What the runs of one pipeline said, the oldest first."""
        return [_event(message) for message in self._messages() if message.key == name.encode()]

    def ask_to_stop(self, name: str) -> Run:
        run = self.one(name)
        if run.state == RUNNING:
            tell(self._client, name, {"kind": "stop", "run": run.run}, self._timeout)
        return run

    def is_attached(self, name: str) -> bool:
        return name in self._attached()

    def _attached(self) -> set[str]:
        try:
            indexes = self._client.indexes(TOPIC, timeout=self._timeout)
        except UnknownTopic:
            return set()
        return {each.name for each in indexes if any(one.attached for one in each.partitions)}

    def _messages(self) -> list[Message]:
        """Everything that is in the topic now."""
        try:
            start, end = (
                self._client.find_offsets(TOPIC, where, timeout=self._timeout)[0]
                for where in ("earliest", "latest")
            )
            if start >= end:
                return []
            found: list[Message] = []
            with self._client.subscribe(TOPIC, positions={0: start}) as subscription:
                while not found or found[-1].offset < end - 1:
                    found.append(subscription.receive(self._timeout))
        except UnknownTopic:
            return []
        return found


def note_in(found: dict[str, Run], message: Message) -> None:
    """Take one message of the topic into account."""
    name, event = (message.key or b"").decode(errors="replace"), _event(message)
    kind = event.get("kind")
    if kind == "started":
        found[name] = Run(
            name,
            **{each: event[each] for each in ("run", "host", "pid", "directory", "master")},
            began=event["at"],
            changed=event["at"],
        )
    run = found.get(name)
    if run is None or event.get("run") != run.run:
        return  # it is of a run that came before, or whose beginning is gone
    run.changed = event.get("at", run.changed)
    if kind == "update":
        run.update = {key: value for key, value in event.items() if key not in ("kind", "run")}
        run.updates, run.rows = event["number"], event["rows_in_all"]
        run.bad = event["bad_in_all"]
    elif kind == "ended":
        run.state, run.error = event["state"], event.get("error", "")


def _event(message: Message) -> dict[str, Any]:
    """What a message says; nothing if no run can have written it: others may publish there, too."""
    try:
        found = json.loads(message.value)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict) or not isinstance(found.get("kind"), str):
        return {}
    fields = {"at": float, **FIELDS.get(found["kind"], {})}
    return found if all(_is(found.get(name), kind) for name, kind in fields.items()) else {}


def _is(value: Any, kind: type) -> bool:
    if kind is float:
        return isinstance(value, int | float) and 0 <= value < NUMBER_MAX
    if kind is dict:
        return isinstance(value, dict) and all(isinstance(each, int) for each in value.values())
    return isinstance(value, kind)


def tell(client: Client, name: str, event: dict[str, Any], timeout: float) -> int:
    """Put an event of a pipeline into the topic; returns its offset."""
    value = json.dumps({"at": round(time.time(), 3), **event}).encode()
    return client.publish(TOPIC, value, key=name.encode(), timeout=timeout).offset


class LiveRun:
    """This process's run of a pipeline, from `begin` to `end`."""

    def __init__(self, client: Client, name: str, timeout: float = READ_SECONDS) -> None:
        self._client = client
        self._name = name
        self._timeout = timeout
        self._began_at = -1  # the offset at which the run was announced
        self._subscription: Subscription | None = None
        self.run = token_hex(4)
        self.stop_reason = ""

    def begin(self, *, directory: str, master: str) -> None:
        """Announce the run. Raises AlreadyRunning if another one is alive."""
        client, name = self._client, self._name
        client.create_topic(TOPIC, disk_retention=RETENTION, exist_ok=True, timeout=self._timeout)
        runs = Runs(client, self._timeout)
        if runs.is_attached(name):
            other = runs.all().get(name)
            where = f" as process {other.pid} on {other.host}" if other else ""
            raise AlreadyRunning(
                f"the pipeline {name!r} runs already{where}; two runs of one pipeline would undo "
                f"each other's work. `hocket pipeline stop {name}` ends it"
            )
        self._subscription = client.subscribe(
            TOPIC, index=name, start="latest", timeout=self._timeout
        )
        self._began_at = self.say(
            "started", host=socket.gethostname(), pid=os.getpid(), directory=directory,
            master=master,
        )  # fmt: skip

    def say(self, kind: str, **fields: Any) -> int:
        event = {"kind": kind, "run": self.run, **fields}
        return tell(self._client, self._name, event, self._timeout)

    def listen(self, seconds: float) -> bool:
        """Hear what others say for so long; True: this run must stop, and `stop_reason` says why.

        A broker that is away for a while is no reason to stop.
        """
        assert self._subscription is not None
        deadline = time.monotonic() + seconds
        while not self.stop_reason:
            left = deadline - time.monotonic()
            try:
                message = self._subscription.receive(max(0.0, left))
            except Timeout:
                break
            except Fenced:  # for good: it would hear neither of that run nor of a request to stop
                self.stop_reason = f"another run of {self._name!r} has taken its place"
                break
            message.ack()
            if message.offset > self._began_at and message.key == self._name.encode():
                self._heard(_event(message))
        return bool(self.stop_reason)

    def _heard(self, event: dict[str, Any]) -> None:
        if event.get("kind") == "stop" and event.get("run") == self.run:
            self.stop_reason = "asked to stop"
        elif event.get("kind") == "started" and event.get("run") != self.run:
            self.stop_reason = (
                f"another run of {self._name!r} has begun, as process {event.get('pid')} on "
                f"{event.get('host')}"
            )

    def end(self, state: str, error: str = "") -> None:
        """Tell how the run ended, and let go of the pipeline's name."""
        try:
            self.say("ended", state=state, error=error)
        finally:
            if self._subscription is not None:
                subscription, self._subscription = self._subscription, None
                subscription.close(self._timeout)
