"""The settings of a plug-in, `[plugins.NAME]` of a configuration file, by its own dataclass.

The dataclass is the schema: a field without a default must be set, a name that is no field is
refused, and so is a value of another type. Names are written with '-' or '_'.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hocket.errors import OutOfRange

_PLAIN = (bool, int, float, str)


def settings_of(schema: type, given: Mapping[str, Any]) -> Any:
    """An object of the dataclass `schema`. Raises OutOfRange that says which setting is wrong."""
    fields = {each.name: each for each in dataclasses.fields(schema)}
    hints = typing.get_type_hints(schema)
    values = {}
    for name, value in given.items():
        field = name.replace("-", "_")
        if field not in fields:
            known = ", ".join(each.replace("_", "-") for each in fields) or "none"
            raise OutOfRange(f"the setting '{name}' is unknown; there are: {known}")
        if field in values:
            raise OutOfRange(f"the setting '{name}' is set twice, once with '-' and once with '_'")
        values[field] = _checked(name, value, hints[field])
    missing = [
        name
        for name, each in fields.items()
        if each.default is dataclasses.MISSING
        and each.default_factory is dataclasses.MISSING
        and name not in values
    ]
    if missing:
        raise OutOfRange(f"the setting '{missing[0].replace('_', '-')}' is missing")
    return schema(**values)


def _checked(name: str, value: Any, wanted: Any) -> Any:
    alternatives = typing.get_args(wanted) if _is_union(wanted) else (wanted,)
    for each in alternatives:
        if each is float and type(value) is int:
            return float(value)
        if each is Path and isinstance(value, str):
            return Path(value)
        if each in _PLAIN and type(value) is each:
            return value
        if typing.get_origin(each) is typing.Literal and value in typing.get_args(each):
            return value
        if typing.get_origin(each) in (list, dict) and isinstance(value, typing.get_origin(each)):
            *_, inner = typing.get_args(each)
            items = value.items() if isinstance(value, dict) else enumerate(value)
            checked = {key: _checked(f"{name}.{key}", item, inner) for key, item in items}
            return checked if isinstance(value, dict) else list(checked.values())
    words = " or ".join(_in_words(each) for each in alternatives if each is not type(None))
    raise OutOfRange(f"the setting '{name}' must be {words}, not {value!r}")


def _is_union(wanted: Any) -> bool:
    return typing.get_origin(wanted) in (typing.Union, types.UnionType)


def _in_words(kind: Any) -> str:
    names = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
    names[Path] = "a path"
    if typing.get_origin(kind) is typing.Literal:
        return " or ".join(map(repr, typing.get_args(kind)))
    return names.get(kind) or {list: "a list", dict: "a table"}.get(
        typing.get_origin(kind), str(kind)
    )
