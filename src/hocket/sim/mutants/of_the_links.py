"""Bugs of what carries messages between nodes."""

from __future__ import annotations

from typing import Any

from hocket.sim.mutants.mutant import Replacements, mutant
from hocket.wire import node_codec
from hocket.wire.structs import Field, write_fields


@mutant(seeds=5)
def forget_a_field_of_a_message() -> Replacements:
    """The codec drops the beacon of every message that has one."""

    def forget(fields: list[Field], builder: Any, value: Any) -> None:
        write_fields([field for field in fields if field.attribute != "beacon"], builder, value)

    return [(node_codec, "write_fields", forget)]


OF_THE_LINKS = (forget_a_field_of_a_message,)
