"""A node that is served within the tests' own process or another, and managers of its names."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hocket.addresses import Address
from hocket.node.broker import Broker as NodeBroker
from hocket.node.settings import NodeSettings
from hocket.remote.manager import NameManager
from hocket.remote.reach import AUTO, Reach
from tests.support.certificates import Certificates

GRACE_US = 500_000  # after which the names of a process that is gone are free


class NodeAt:
    """A node, wherever it is served. `way` is "direct", "node" (processes do not listen) or "tls"
    (directly, with TLS)."""

    def __init__(
        self, way: str, address: Address | None, certificates: Certificates | None = None
    ) -> None:
        self.way = way
        self._certificates = certificates
        if address is not None:
            self.address = address

    def reach(self, **options: Any) -> Reach:
        settings: dict[str, Any] = {
            "addresses": (self.address,),
            "listen": None if self.way == "node" else AUTO,
        }
        known = self._certificates
        if known is not None:
            settings |= {
                "context": known.client(of=known.alice),
                "tls_cert": known.alice.certificate,
                "tls_key": known.alice.key,
            }
        return Reach(**(settings | options))

    def manager(self, **options: Any) -> NameManager:
        return NameManager(self.reach(**options))


class ServedNode(NodeAt):
    """One that is served in this process."""

    def __init__(self, way: str = "direct", certificates: Certificates | None = None) -> None:
        super().__init__(way, None, certificates)
        self._directory = tempfile.mkdtemp(prefix="hocket-names-")
        self.node = NodeBroker(Path(self._directory), NodeSettings(name_grace_us=GRACE_US))
        tls = None if certificates is None else certificates.broker(asks=True)
        self.address = Address(*self.node.listen("127.0.0.1", 0, tls))
        self.node.start()

    def close(self) -> None:
        self.node.close()
        shutil.rmtree(self._directory)

    def __enter__(self) -> ServedNode:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
