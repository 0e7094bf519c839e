"""The frames about names of brokers in a cluster. Others find them in `hocket.frames`."""

from __future__ import annotations

from dataclasses import dataclass, field

from hocket.cluster_model import NameDescription


@dataclass(slots=True)
class RegisterName:
    """Register a broker's name for the process behind this connection. Answered by Done.

    The same lease may register its name again, at any node: that is how a name follows a process
    that has lost its connection.
    """

    request: int
    name: str
    kind: str
    lease: bytes  # 16 random bytes: whoever knows them may move and release the name
    key: bytes = field(repr=False)  # 32 random bytes, by which nodes make tickets: see `tickets`
    address: str = ""  # where the process listens; empty: it is reached through its node only
    fingerprint: bytes = b""  # SHA-256 of the certificate that it shows there; empty: no TLS


@dataclass(slots=True)
class ReleaseName:
    """Free a name, if this lease has it. Answered by Done."""

    request: int
    name: str
    lease: bytes


@dataclass(slots=True)
class FindName:
    """Ask where the broker of this name is, and for a ticket to call it. Answered by NameIs."""

    request: int
    name: str


@dataclass(slots=True)
class NameIs:
    request: int
    kind: str
    lease: bytes  # its first half: enough to tell one registration from the next
    address: str
    fingerprint: bytes
    node: str  # the address of the node that its process is connected to; empty: this one
    ticket: bytes
    secret: bytes = field(repr=False)  # proves that the ticket is the caller's


@dataclass(slots=True)
class ListNames:
    """Ask for the names that the user may know of. Answered by NamesAre."""

    request: int
    after: str = ""  # only those behind this one


@dataclass(slots=True)
class NamesAre:
    request: int
    names: tuple[NameDescription, ...]  # by name
    next: str = ""  # there are more behind this one


@dataclass(slots=True)
class OpenPipe:
    """Have this node pass bytes on between this connection and the broker's process.

    Answered by PipeIs. From then on the connection has no frames, but the bytes of that process.
    """

    request: int
    name: str


@dataclass(slots=True)
class PipeWanted:
    """Somebody wants to reach a broker of this connection through the node."""

    request: int  # 0
    name: str
    pipe: bytes = field(repr=False)


@dataclass(slots=True)
class TakePipe:
    """Be the other end of a pipe, on a connection of its own. Answered by PipeIs, as OpenPipe."""

    request: int
    pipe: bytes = field(repr=False)


@dataclass(slots=True)
class PipeIs:
    """The last frame of this connection: bytes follow."""

    request: int
