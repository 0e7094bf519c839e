"""The variables of the environment that say where the broker is, and as whom to go there.

This is the one place that knows their names: the command line and the clients take them from here.
A variable that is empty counts as one that is not set.
"""

from __future__ import annotations

import os

from hocket.addresses import DEFAULT_PORT

SERVER = "HOCKET_SERVER"
TOKEN = "HOCKET_TOKEN"
TLS_CA = "HOCKET_TLS_CA"
TLS_CERT = "HOCKET_TLS_CERT"
TLS_KEY = "HOCKET_TLS_KEY"
NAMES = (SERVER, TOKEN, TLS_CA, TLS_CERT, TLS_KEY)

SERVER_DEFAULT = f"hocket://127.0.0.1:{DEFAULT_PORT}"


def value(name: str) -> str | None:
    """What the variable says, without the white space around it; None: nothing."""
    return os.environ.get(name, "").strip() or None
