"""Nodes with real links and nothing above, all on one loop that the test turns by hand."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

from hocket.adapters import node_certificate, socket_owner
from hocket.adapters.executor import ThreadExecutor
from hocket.adapters.loop import READ, Loop
from hocket.adapters.tls import TlsTransport, dialling_context, server_context
from hocket.adapters.transport import Certificate, PlainTransport
from hocket.cli.authority import Pair
from hocket.core.ring.circle import candidates
from hocket.core.ring.contact import Contact
from hocket.core.session.session import Caller
from hocket.model import Limits
from hocket.node.door.connections import Connections
from hocket.node.links.links import NodeLinks, Own
from hocket.node_frames import HelloRefused, NodeHello

CLUSTER = "c" * 32
PATIENCE = 20.0


class NoClients:
    """Stands for the node: it is told of connections, and takes no frames from them."""

    def connected(self, connection: int, caller: Caller) -> None: ...
    def disconnected(self, connection: int) -> None: ...


class Shown:
    """The certificate that a node shows, and the authority by which it judges others'."""

    def __init__(self, files: Pair, authority: Path) -> None:
        self.accepting = server_context(files.certificate, files.key, authority)
        self.dialling = dialling_context(files.certificate, files.key, authority)


def certificate_fault(certificate: Certificate, node: str) -> str:
    return node_certificate.check_node_certificate(certificate, node, time.time()) or ""


class End:
    """A node with its door and its links, and nothing above. `tls`: None is plain."""

    def __init__(self, world: World, name: str, tls: Shown | None = None, /, **hello: Any) -> None:
        self.world = world
        self.name = name
        self.heard_messages: list[tuple[Contact, int, object]] = []
        self.lost: list[Contact] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.port = self.listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        node = hello.pop("node", name * 32)
        greeting: dict[str, Any] = {
            "cluster": CLUSTER, "node": node, "name": name, "address": self.address,
            "position": candidates(node.encode())[0], "boot": world.chance.getrandbits(60),
        }  # fmt: skip
        self.hello = NodeHello(**(greeting | hello))
        self.is_starting = False
        self.sees_another_user = socket_owner.is_of_another_user
        own = Own(
            self.hello, lambda: 8, lambda: (1, 2), lambda: "root:1", certificate_fault,
            lambda: self.is_starting,
        )  # fmt: skip
        self.from_address = "127.0.0.1"  # where those who connect seem to come from
        self.connections = Connections(world.loop, Limits())
        self.links = NodeLinks(
            own, loop=world.loop, executor=world.executor, chance=world.chance,
            tls=lambda: None if tls is None else tls.dialling, refusals=self.connections.refusals,
            is_of_another_user=lambda descriptor: self.sees_another_user(descriptor),
        )  # fmt: skip
        self.links.receiver = self
        self._accepting = None if tls is None else tls.accepting
        self.connections.node = NoClients()  # type: ignore[assignment]
        self.connections.links = self.links
        world.loop.register(self.listener, READ, lambda _events: self._accept())
        self.gone: list[str] = []
        world.ends.append(self)

    @property
    def me(self) -> Contact:
        return Contact(self.hello.position, self.hello.node, 5, self.address)

    def heard(self, sender: Contact, to_incarnation: int, message: object) -> None:
        self.heard_messages.append((sender, to_incarnation, message))

    def link_lost(self, contact: Contact) -> None:
        self.lost.append(contact)

    def link_broken(self, node: str) -> None: ...

    def process_gone(self, node: str) -> None:
        self.gone.append(node)

    def link_refused(self, address: str, answer: HelloRefused) -> None: ...

    def send(self, to: End, message: object) -> None:
        self.links.send(self.me, to.me, message)

    def stop_listening(self) -> None:
        self.world.loop.unregister(self.listener)
        self.listener.close()

    def _accept(self) -> None:
        sock, address = self.listener.accept()
        sock.setblocking(False)
        place = f"{address[0]}:{address[1]}"
        tls = self._accepting
        transport = PlainTransport(sock) if tls is None else TlsTransport(sock, tls)
        self.connections.accept(transport, Caller(address=self.from_address), place)


class World:
    def __init__(self) -> None:
        self.loop = Loop()
        self.executor = ThreadExecutor(self.loop.post)
        self.chance = Random(1)
        self.ends: list[End] = []
        self.loop.after_turn(self._flush)

    def _flush(self) -> None:
        for end in self.ends:
            end.connections.flush()
            end.links.flush()

    def until(self, holds: Callable[[], object]) -> None:
        deadline = monotonic() + PATIENCE
        while not holds():
            assert monotonic() < deadline, "it did not happen in time"
            self.loop.turn(0.01)

    def close(self) -> None:
        for end in self.ends:
            end.links.close()
            end.connections.abort()
            if end.listener.fileno() >= 0:
                end.stop_listening()
        self.executor.close()
        self.loop.close()
