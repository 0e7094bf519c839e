"""The compiled schema: `schema/hocket.capnp`, read once when the wire is first imported.

Loading it starts no event loop; only Cap'n Proto RPC, which is not used here, would need one.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

import capnp  # type: ignore[import-untyped]


def load(name: str) -> Any:
    packaged = resources.files("hocket").joinpath("schema", name)
    with resources.as_file(packaged) as path:
        return capnp.load(str(path))


# pycapnp makes its types at run time, so there is nothing a type checker could know about them.
hocket_capnp: Any = load("hocket.capnp")
