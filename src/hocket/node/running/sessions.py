"""The sessions of a node's connections, by the number of the connection."""

from __future__ import annotations

from hocket.core.session.session import Session

Address = tuple[int, int]  # connection and handle: where a producer or a subscription is open


class Sessions(dict[int, Session]):
    def forget_handle(self, address: Address) -> None:
        """The broker has ended what was open there. The connection may be gone by now."""
        connection, handle = address
        session = self.get(connection)
        if session is not None:
            session.handles.pop(handle, None)
