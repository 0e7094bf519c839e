"""Telling the service manager that the broker is ready, or going: Type=notify of systemd.

The manager names a datagram socket in NOTIFY_SOCKET; whoever was started by hand has none, and
nothing is told then. See sd_notify(3).
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

VARIABLE = "NOTIFY_SOCKET"
READY = "READY=1"
STOPPING = "STOPPING=1"


def tell(state: str) -> None:
    """Send the state, if there is somebody to tell. A manager that is gone is no error of ours."""
    address = os.environ.get(VARIABLE, "")
    if not address.startswith(("/", "@")):  # a path, or a name in the abstract namespace
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with (
        suppress(OSError),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager,  # Python closes it in children
    ):
        manager.connect(address)
        manager.sendall(state.encode())
