"""Filters that Spark hands down to a batch, applied before rows are made of records.

Spark does not check again what is taken here, so a filter is taken only if it can be applied
exactly. Filters on topic, partition and offset narrow what is read at all; the others become a mask
over each record batch. In SQL a comparison with null is neither true nor false, and a row stays
only if its filter is true. So a `Condition` says only when it is true, and its negation is a
condition of its own.

A known weakness of Spark (seen with 4.3.0) that we cannot mend: Spark keeps the plan of the last
query that handed filters down with the DataFrame that was loaded, and uses this plan for other
queries of the same DataFrame too, whose rows are then wrong. With `filterPushdown`, use a DataFrame
for one query only, and load another for the next.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from hocket.model import timestamp_us
from hocket.spark.planning import Span
from hocket.spark.values import LONG_MAX

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

    from hocket.spark.options import ReadOptions

NEVER = "never"  # true for no row: a comparison with null

_COMPARISONS: dict[type[Filter], str] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}
_STRINGS: dict[type[Filter], str] = {
    StringStartsWith: "starts",
    StringEndsWith: "ends",
    StringContains: "contains",
}
_NEGATED = {
    "=": "!=",
    ">": "<=",
    ">=": "<",
    "<": ">=",
    "<=": ">",
    "in": "not in",
    "is": "is not",  # null counts as a value of its own
    "null": "not null",
    "not null": "null",
    "starts": "not starts",
    "ends": "not ends",
    "contains": "not contains",
    NEVER: NEVER,
}
# Applied to values that are never null: a topic's name, a partition's number.
_TRUE_OF: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "is": operator.eq,
    "!=": operator.ne,
    "is not": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "in": lambda found, values: found in values,
    "not in": lambda found, values: found not in values,
    "null": lambda _found, _value: False,
    "not null": lambda _found, _value: True,
    "starts": lambda found, start: found.startswith(start),
    "not starts": lambda found, start: not found.startswith(start),
    "ends": lambda found, end: found.endswith(end),
    "not ends": lambda found, end: not found.endswith(end),
    "contains": lambda found, part: part in found,
    "not contains": lambda found, part: part not in found,
    NEVER: lambda _found, _value: False,
}
_COMPUTED = {
    "=": "equal",
    "is": "equal",
    "!=": "not_equal",
    ">": "greater",
    ">=": "greater_equal",
    "<": "less",
    "<=": "less_equal",
}


@dataclass(frozen=True, slots=True)
class Condition:
    """What must be true for a column's value; times are in microseconds."""

    column: str
    operator: str
    value: Any = None

    def bounds(self) -> tuple[int | None, int | None]:
        """The half-open range of numbers for which it can be true; None: no limit."""
        if self.operator in ("=", "is"):
            return self.value, self.value + 1
        if self.operator == "in":
            return min(self.value), max(self.value) + 1
        if self.operator in (">", ">="):
            return self.value + (self.operator == ">"), None
        if self.operator in ("<", "<="):
            return None, self.value + (self.operator == "<=")
        return None, None

    def said_by_bounds(self) -> bool:
        """Whether it is true for every number within its bounds."""
        return self.operator in ("=", "is", ">", ">=", "<", "<=", "not null")


@dataclass(frozen=True, slots=True)
class Pushed:
    """The filters that were taken from Spark."""

    conditions: tuple[Condition, ...]

    def prune(self, spans: Sequence[Span]) -> list[Span]:
        """The spans that are left to be read, by topic, partition and offset."""
        if any(_is_of_none(each) for each in self.conditions):
            return []
        by_name = [each for each in self.conditions if each.column in ("topic", "partition")]
        low, high = _overlap(self._of("offset"))
        found = []
        for span in spans:
            if all(_TRUE_OF[c.operator](getattr(span, c.column), c.value) for c in by_name):
                start = span.start if low is None else max(span.start, low)
                end = span.end if high is None else min(span.end, high)
                if start < end:
                    found.append(replace(span, start=start, end=end))
        return found

    def mask(self, batch: pyarrow.RecordBatch) -> pyarrow.BooleanArray | None:
        """Which rows the conditions that `prune` cannot apply are true for; None: all rows."""
        masks = [_computed(batch.column(each.column), each) for each in self._masking()]
        if not masks:
            return None
        import pyarrow.compute as pc  # type: ignore[import-untyped]

        found = masks[0]
        for each in masks[1:]:
            found = pc.and_(found, each)
        return found

    def _of(self, column: str) -> list[Condition]:
        return [each for each in self.conditions if each.column == column]

    def _masking(self) -> list[Condition]:
        return [
            each
            for each in self.conditions
            if each.column in ("key", "value", "timestamp")
            or (each.column == "offset" and not each.said_by_bounds())
        ]


def push(filters: Sequence[Filter], options: ReadOptions) -> tuple[Pushed, list[Filter]]:
    """The filters that are taken, and those that Spark has to apply itself."""
    taken, left = [], []
    for each in filters:
        condition = _condition(each)
        if condition is None or condition.column not in options.columns:
            left.append(each)
        else:
            taken.append(condition)
    return Pushed(tuple(taken)), left


# --- from Spark's filters ------------------------------------------------------------------------


def _condition(given: Filter) -> Condition | None:
    """The condition for a filter; None if it cannot be applied exactly."""
    if isinstance(given, Not):
        child = _condition(given.child)
        return None if child is None else _negation(given.child, child)
    path: tuple[str, ...] = getattr(given, "attribute", ())
    if len(path) != 1 or path[0] not in _LITERALS:
        return None
    column = path[0]
    if isinstance(given, IsNull | IsNotNull):
        return Condition(column, "null" if isinstance(given, IsNull) else "not null")
    if isinstance(given, EqualNullSafe):
        return _compared(column, "null" if given.value is None else "is", given.value)
    if isinstance(given, In):
        return _among(column, given.value)
    if type(given) in _STRINGS:
        is_text = column == "topic" and isinstance(given.value, str)  # type: ignore[attr-defined]
        return Condition(column, _STRINGS[type(given)], given.value) if is_text else None  # type: ignore[attr-defined]
    if type(given) in _COMPARISONS:
        value = given.value  # type: ignore[attr-defined]
        return _compared(column, NEVER if value is None else _COMPARISONS[type(given)], value)
    return None


def _negation(child: Filter, condition: Condition) -> Condition | None:
    if isinstance(child, Not):
        return None  # Spark makes none of these
    if isinstance(child, In) and None in child.value:
        return Condition(condition.column, NEVER)  # in SQL the value may be equal to the null
    return replace(condition, operator=_NEGATED[condition.operator])


def _compared(column: str, how: str, value: object) -> Condition | None:
    if how in ("null", NEVER):
        return Condition(column, how)
    literal = _LITERALS[column](value)
    return None if literal is None else Condition(column, how, literal)


def _among(column: str, values: object) -> Condition | None:
    if not isinstance(values, list | tuple) or not values:
        return None
    literals = [_LITERALS[column](each) for each in values if each is not None]
    if any(each is None for each in literals):
        return None
    return Condition(column, "in", tuple(literals)) if literals else Condition(column, NEVER)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int) or not abs(value) <= LONG_MAX:
        return None
    return value


def _bytes(value: object) -> bytes | None:
    return bytes(value) if isinstance(value, bytes | bytearray) else None


def _time(value: object) -> int | None:
    """A time without a zone is of another SQL type, and cannot be compared with ours."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return timestamp_us(value)


_LITERALS: dict[str, Callable[[object], Any]] = {
    "topic": _text,
    "partition": _number,
    "offset": _number,
    "timestamp": _time,
    "key": _bytes,
    "value": _bytes,
}


# --- applied -------------------------------------------------------------------------------------


def _is_of_none(condition: Condition) -> bool:
    """Whether it is true for no record: every record has a position and a time."""
    return condition.operator == NEVER or (
        condition.operator == "null" and condition.column not in ("key", "value")
    )


def _overlap(conditions: Sequence[Condition]) -> tuple[int | None, int | None]:
    bounds = [each.bounds() for each in conditions]
    lows = [low for low, _ in bounds if low is not None]
    highs = [high for _, high in bounds if high is not None]
    return max(lows, default=None), min(highs, default=None)


def _computed(column: pyarrow.Array, condition: Condition) -> pyarrow.BooleanArray:
    """For each value whether the condition is true; never null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    how = condition.operator
    if how == NEVER:
        return pc.and_(pc.is_null(column), False)
    if how == "null":
        return pc.is_null(column)
    if how == "not null":
        return pc.is_valid(column)
    if how in ("in", "not in"):
        among = pc.is_in(column, value_set=pa.array(condition.value, column.type))
        return among if how == "in" else pc.and_(pc.invert(among), pc.is_valid(column))
    value = pa.scalar(condition.value, column.type)
    if how == "is not":
        return pc.invert(pc.fill_null(pc.equal(column, value), False))
    return pc.fill_null(getattr(pc, _COMPUTED[how])(column, value), False)
