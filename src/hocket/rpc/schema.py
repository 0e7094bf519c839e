"""The compiled `schema/rpc.capnp`. It is read once, when this module is first imported."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

import capnp  # type: ignore[import-untyped]


def _load() -> Any:
    packaged = resources.files("hocket").joinpath("schema", "rpc.capnp")
    # The files that the schema imports as /capnp/... lie beside pycapnp's own modules.
    standard = Path(capnp.__file__).parent.parent
    with resources.as_file(packaged) as path:
        return capnp.load(str(path), imports=[str(standard)])


# pycapnp makes its types at run time, so a type checker can know nothing about them.
rpc_capnp: Any = _load()
