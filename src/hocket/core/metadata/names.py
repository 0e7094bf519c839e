"""The names of brokers in other processes, kept in the metadata's log: who has which.

Rule 1: a change takes effect when it is committed, and is judged as if the changes on their way
        before it had been.
Rule 2: a name is of one lease at a time. The same lease may register its name again, at another
        node or with another address; another lease is refused.
Rule 3: a node releases a name by the lease and its own id. So a node that has lost a process does
        not free a name that has followed the process to another node.

Whether a process lives is not in the log: the node that it is connected to knows
(`node.requests.naming`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from hocket.core.metadata.metadata import AppendChange, Indexes, Proposer
from hocket.errors import BadName, LimitExceeded, NameInUse, OutOfRange
from hocket.model import check_broker_name
from hocket.tickets import KEY_BYTES, LEASE_BYTES

NAMES_MAX = 100_000
KINDS = ("full-event", "mixed", "thread")
ADDRESS_BYTES_MAX = 255


@dataclass(frozen=True, slots=True)
class Registration:
    """Bytes are kept as hexadecimal text, as JSON has them."""

    name: str
    kind: str
    lease: str
    key: str
    node: str  # the id of the node that the process is connected to
    user: str = ""
    address: str = ""
    fingerprint: str = ""


@dataclass(slots=True)
class Changed:
    """The change is committed: the name is this registration's now, or nobody's."""

    origin: Any  # who asked for it, only handed back; None: nobody at this node waits for it
    name: str
    registration: Registration | None


class Names(Proposer):
    """The machine of the metadata's log; see `core.metadata.metadata`."""

    def __init__(self, indexes: Indexes | None = None) -> None:
        super().__init__(indexes)
        self.committed: dict[str, Registration] = {}
        self._leading: dict[str, Registration] = {}
        self._used = False  # there was a name once

    def register(self, origin: object, wanted: Registration) -> AppendChange:
        """Raises NameInUse, BadName, OutOfRange or LimitExceeded."""
        _check(wanted)
        holder = self._leading.get(wanted.name)
        if holder is not None and holder.lease != wanted.lease:
            by = f" by user {holder.user!r}" if holder.user else ""
            raise NameInUse(
                f"there is already a broker called {wanted.name!r} in the cluster, registered{by}; "
                "close it first or choose another name. The name of a process that has died is "
                "free a few seconds later"
            )
        if holder is None and len(self._leading) >= NAMES_MAX:
            raise LimitExceeded(f"the cluster has {NAMES_MAX} names of brokers already")
        self._leading[wanted.name] = wanted
        fields = {name: value for name, value in asdict(wanted).items() if value}
        return self._propose(origin, json.dumps(fields).encode())

    def release(self, origin: object, name: str, lease: str, node: str = "") -> AppendChange:
        """Free the name if it is this lease's, and at this node if one is given."""
        if _holds(self._leading.get(name), lease, node):
            del self._leading[name]
        freed = {"name": name, "free": lease}
        if node:
            freed["node"] = node
        return self._propose(origin, json.dumps(freed).encode())

    def _lead(self, body: bytes) -> None:
        _apply(self._leading, json.loads(body))

    def _take_effect(self, index: int, body: bytes, origin: object) -> list[Changed]:
        self.applied_index = index
        self._used = True
        change = json.loads(body)
        _apply(self.committed, change)
        name = change["name"]
        return [Changed(origin, name, self.committed.get(name))]

    def _go_back(self) -> None:
        self._leading = dict(self.committed)

    def snapshot(self) -> tuple[int, dict[str, Any]]:
        """The state is empty if nobody ever had a name: older versions can read it then."""
        held = [asdict(each) for each in self.committed.values()]
        return self.applied_index, {"held": held} if self._used else {}

    def restore(self, index: int, state: dict[str, Any]) -> None:
        self._indexes.last = self.applied_index = index
        self._used = True
        self.committed = {each["name"]: Registration(**each) for each in state["held"]}
        self._leading = dict(self.committed)

    def replace(self, index: int, state: dict[str, Any]) -> list[Changed]:
        before = self.committed
        self.restore(index, state)
        changed = [name for name in before if name not in self.committed]
        changed += [name for name in self.committed if self.committed[name] != before.get(name)]
        return [Changed(None, name, self.committed.get(name)) for name in changed]


def _apply(names: dict[str, Registration], change: dict[str, Any]) -> None:
    name = change["name"]
    if "free" in change:
        if _holds(names.get(name), change["free"], change.get("node", "")):
            del names[name]
        return
    change.pop("asked", None)
    names[name] = Registration(**change)


def _holds(held: Registration | None, lease: str, node: str) -> bool:
    return held is not None and held.lease == lease and node in ("", held.node)


def _check(wanted: Registration) -> None:
    check_broker_name(wanted.name)
    if wanted.kind not in KINDS:
        raise OutOfRange(f"a broker is of kind {', '.join(KINDS)}, not {wanted.kind[:80]!r}")
    if len(wanted.lease) != 2 * LEASE_BYTES or len(wanted.key) != 2 * KEY_BYTES:
        raise OutOfRange(f"a lease has {LEASE_BYTES} bytes, and a key {KEY_BYTES}")
    if len(wanted.fingerprint) not in (0, 64):
        raise OutOfRange("a fingerprint has 32 bytes")
    if len(wanted.address.encode()) > ADDRESS_BYTES_MAX or not _printable(wanted.address):
        raise BadName(f"an address has at most {ADDRESS_BYTES_MAX} bytes, all printable")


def _printable(text: str) -> bool:
    return not text or text.isprintable()
