"""Headers as text: what `to_json(headers)` makes of them, turned into headers again.

Spark measures each batch for Python after every row, and for a column of lists of structs that
costs more than all else that is done with a row. As text they are one plain column. Few records
have headers, and where there are none, nothing is made.
"""

from __future__ import annotations

import json
from base64 import b64decode
from typing import TYPE_CHECKING, Any, TypeAlias

from hocket.errors import WrongType

if TYPE_CHECKING:
    Array: TypeAlias = Any  # pyarrow has no type hints


def as_lists(column: Array) -> Array:
    """The column as it is, or, if it is text, the headers that the text means.

    Raises WrongType for text that means none.
    """
    import pyarrow as pa  # type: ignore[import-untyped]

    from hocket.spark.columns import arrow_schema

    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return column
    kind = arrow_schema(("headers",)).field("headers").type
    if column.null_count == len(column):
        return pa.nulls(len(column), kind)
    return pa.array([None if text is None else _parsed(text) for text in column.to_pylist()], kind)


def _parsed(text: str) -> list[dict[str, Any]]:
    try:
        pairs = [(each["key"], _value(each.get("value"))) for each in json.loads(text)]
        if not all(isinstance(key, str) for key, _ in pairs):
            raise TypeError
    except (ValueError, TypeError, KeyError, AttributeError):
        raise WrongType(
            f"headers as text must be what to_json(headers) makes, not {text[:60]!r}"
        ) from None
    return [{"key": key, "value": value} for key, value in pairs]


def _value(text: str | None) -> bytes | None:
    """Spark writes binary as Base64, and leaves out what is null."""
    return None if text is None else b64decode(text, validate=True)
