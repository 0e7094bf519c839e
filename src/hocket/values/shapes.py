"""What a type looks like in JSON: two functions for each type, made once.

Rule 1: what a shape encodes it decodes to an equal value; what it would change it refuses.
Rule 2: a shape is strict. Text is not taken for a number, nor 1 for true; only an integer does for
a float. Fields that a type does not have are passed over when they are read, so that a producer may
add some, and refused when they are written, because they would be lost.
Rule 3: whatever is wrong with a type is told when its shape is made, with the way to the culprit.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import types
import typing
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, NamedTuple
from uuid import UUID

from hocket.errors import WrongType
from hocket.values.misfit import Misfit, must_be
from hocket.values.plain import plain
from hocket.values.simple import SIMPLE, Convert, Shape, as_it_is, enum, literal

ToList = Callable[[Any], list[Any]]
UNIONS = (typing.Union, types.UnionType)
READ_ONLY = getattr(typing, "ReadOnly", "none")  # since Python 3.13
ALIAS = getattr(typing, "TypeAliasType", ())  # since Python 3.12


class Maker:
    """Makes the shapes of a type and of all that it is made of."""

    def __init__(self, foreign: Callable[[Any], Shape | None]) -> None:
        self._foreign = foreign  # the shape of a type that another library codes
        self._known: dict[Any, Shape] = {}  # classes with fields: they may hold themselves

    def shape(self, kind: Any, bound: dict[Any, Any] | None = None) -> Shape:
        """Raises WrongType for a type that has none. `bound` says what type variables stand for."""
        kind = _resolved(kind, bound or {})
        if kind in (Any, object):
            return Shape("any", plain, as_it_is)
        if kind in SIMPLE:
            return SIMPLE[kind]
        origin, arguments = typing.get_origin(kind) or kind, typing.get_args(kind)
        if origin in UNIONS:
            return self._union(arguments)
        if origin is Literal:
            return literal(arguments)
        if origin in _LISTS:
            return self._list(origin, arguments)
        if origin is tuple:
            return self._tuple(arguments)
        if origin in _DICTS:
            return self._dict(arguments)
        if isinstance(origin, type):
            found = self._class(origin, arguments)
            if found is not None:
                return found
        raise WrongType(
            f"{_name(kind)} has no form in JSON here; use another type, or pass a coder: an object "
            "with encode(value) -> bytes and decode(bytes) -> value"
        )

    def _class(self, kind: type, arguments: tuple[Any, ...]) -> Shape | None:
        foreign = self._foreign(kind[arguments] if arguments else kind)  # type: ignore[index]
        if foreign is not None:
            return foreign
        if issubclass(kind, Enum):
            return enum(kind)
        key = (kind, arguments)
        if key in self._known:
            return self._known[key]
        parameters: tuple[Any, ...] = getattr(kind, "__parameters__", ())
        bound = dict(zip(parameters, arguments, strict=False))
        shape = Shape(kind.__name__, as_it_is, as_it_is)
        if dataclasses.is_dataclass(kind):
            make: Any = self._dataclass
        elif typing.is_typeddict(kind):
            make = self._typed_dict
        elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
            make = self._named_tuple
        else:
            return None
        self._known[key] = shape
        shape.encode, shape.decode = make(kind, bound)
        return shape

    def _part(self, where: str, kind: Any, bound: dict[Any, Any] | None = None) -> Shape:
        try:
            return self.shape(kind, bound)
        except WrongType as error:
            separator = "" if str(error).startswith(("[", ".")) else ": "
            raise WrongType(f"{where}{separator}{error}") from None

    # --- classes with fields ---------------------------------------------------------------------

    def _dataclass(self, kind: Any, bound: dict[Any, Any]) -> tuple[Convert, Convert]:
        hints = _hints(kind)
        awaited = [name for name, hint in hints.items() if isinstance(hint, dataclasses.InitVar)]
        if awaited:
            raise WrongType(f"{kind.__name__}.{awaited[0]}: an InitVar is not kept in the object")
        fields = [
            _Field(
                each.name,
                self._part(f"{kind.__name__}.{each.name}", hints[each.name], bound),
                each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING,
            )
            for each in dataclasses.fields(kind)
            if each.init  # others are made of these
        ]

        def encode(value: Any) -> dict[str, Any]:
            if type(value) is not kind:
                raise must_be(kind.__name__, value)
            return {each.name: each.encoded(getattr(value, each.name)) for each in fields}

        def decode(found: Any) -> Any:
            return _made(kind, _decoded_fields(fields, found))

        return encode, decode

    def _typed_dict(self, kind: Any, bound: dict[Any, Any]) -> tuple[Convert, Convert]:
        fields = []
        for name, hint in _hints(kind).items():
            required = name in kind.__required_keys__
            while typing.get_origin(hint) in (typing.Required, typing.NotRequired, READ_ONLY):
                if typing.get_origin(hint) is not READ_ONLY:
                    required = typing.get_origin(hint) is typing.Required
                hint = typing.get_args(hint)[0]
            fields.append(
                _Field(name, self._part(f"{kind.__name__}.{name}", hint, bound), required)
            )
        names = {each.name for each in fields}

        def encode(value: Any) -> dict[str, Any]:
            if not isinstance(value, dict):
                raise must_be(f"a dict ({kind.__name__})", value)
            for name in value:
                if name not in names:
                    raise Misfit(f"{kind.__name__} has no field {name!r:.40}")
            _check_required(fields, value)
            return {
                each.name: each.encoded(value[each.name]) for each in fields if each.name in value
            }

        def decode(found: Any) -> Any:
            return _decoded_fields(fields, found)

        return encode, decode

    def _named_tuple(self, kind: Any, bound: dict[Any, Any]) -> tuple[Convert, Convert]:
        hints = _hints(kind)
        parts = [
            self._part(f"{kind.__name__}.{name}", hints.get(name, Any), bound)
            for name in kind._fields
        ]
        encode_parts, decode_parts = _fixed(parts, kind.__name__)

        def encode(value: Any) -> list[Any]:
            if type(value) is not kind:
                raise must_be(kind.__name__, value)
            return encode_parts(value)

        def decode(found: Any) -> Any:
            return _made(kind, dict(zip(kind._fields, decode_parts(found), strict=True)))

        return encode, decode

    # --- containers ------------------------------------------------------------------------------

    def _list(self, origin: Any, arguments: tuple[Any, ...]) -> Shape:
        accepted, made = _LISTS[origin]
        each = self._part("[]", arguments[0] if arguments else Any)
        name = made.__name__

        def encode(value: Any) -> list[Any]:
            if not isinstance(value, accepted):
                raise must_be(f"a {name}", value)
            return _each(value, each.encode)

        def decode(found: Any) -> Any:
            if type(found) is not list:
                raise must_be("a list", found)
            decoded = _each(found, each.decode)
            return decoded if made is list else _hashed(made, decoded)

        return Shape(name, encode, decode)

    def _tuple(self, arguments: tuple[Any, ...]) -> Shape:
        if not arguments or (len(arguments) == 2 and arguments[1] is Ellipsis):
            each = self._part("[]", arguments[0] if arguments else Any)

            def encode_any(value: Any) -> list[Any]:
                if not isinstance(value, tuple):
                    raise must_be("a tuple", value)
                return _each(value, each.encode)

            def decode_any(found: Any) -> Any:
                if type(found) is not list:
                    raise must_be("a list", found)
                return tuple(_each(found, each.decode))

            return Shape("tuple", encode_any, decode_any)
        parts = [self._part(f"[{at}]", each) for at, each in enumerate(arguments) if each != ()]
        encode_parts, decode_parts = _fixed(parts, "tuple")

        def encode(value: Any) -> list[Any]:
            if not isinstance(value, tuple):
                raise must_be("a tuple", value)
            return encode_parts(value)

        return Shape("tuple", encode, lambda found: tuple(decode_parts(found)))

    def _dict(self, arguments: tuple[Any, ...]) -> Shape:
        key_type, value_type = arguments or (str, Any)
        key = self._part("[]", key_type)
        if not _is_key(key_type):
            raise WrongType(
                f"{_name(key_type)} cannot be the key of a dict in JSON, where keys are text: use "
                "str, int, an enum, UUID, Decimal, date or datetime"
            )
        each = self._part("[]", value_type)

        def encode(value: Any) -> dict[str, Any]:
            if not isinstance(value, collections.abc.Mapping):
                raise must_be("a dict", value)
            found: dict[str, Any] = {}
            for name, item in value.items():
                try:
                    text = key.encode(name)
                    found[text if type(text) is str else str(text)] = each.encode(item)
                except Misfit as misfit:
                    raise misfit.within(f"[{name!r:.40}]") from None
            return found

        def decode(found: Any) -> dict[Any, Any]:
            if type(found) is not dict:
                raise must_be("an object", found)
            made = {}
            for name, item in found.items():
                try:
                    made[_decoded_key(key, name)] = each.decode(item)
                except Misfit as misfit:
                    raise misfit.within(f"[{name!r:.40}]") from None
            return made

        return Shape("dict", encode, decode)

    # --- one of several --------------------------------------------------------------------------

    def _union(self, arguments: tuple[Any, ...]) -> Shape:
        parts = [self.shape(each) for each in arguments if each is not type(None)]
        name = " | ".join([each.name for each in parts])
        if len(parts) == 1 and len(arguments) == 2:
            part = parts[0]
            return Shape(
                f"{name} | None",
                lambda value: None if value is None else part.encode(value),
                lambda found: None if found is None else part.decode(found),
            )
        nullable = len(parts) < len(arguments)

        def first(convert: str) -> Convert:
            ways = [getattr(each, convert) for each in parts]

            def converted(value: Any) -> Any:
                if value is None and nullable:
                    return None
                for way in ways:
                    try:
                        return way(value)
                    except Misfit:
                        continue
                raise must_be(name, value)

            return converted

        # Not before a class that holds itself has its functions.
        return Shape(name, _late(lambda: first("encode")), _late(lambda: first("decode")))


# --- fields --------------------------------------------------------------------------------------


class _Field(NamedTuple):
    name: str
    shape: Shape
    required: bool

    def encoded(self, value: Any) -> Any:
        try:
            return self.shape.encode(value)
        except Misfit as misfit:
            raise misfit.within(f".{self.name}") from None

    def decoded(self, found: Any) -> Any:
        try:
            return self.shape.decode(found)
        except Misfit as misfit:
            raise misfit.within(f".{self.name}") from None


def _decoded_fields(fields: list[_Field], found: Any) -> dict[str, Any]:
    if type(found) is not dict:
        raise must_be("an object", found)
    _check_required(fields, found)
    return {each.name: each.decoded(found[each.name]) for each in fields if each.name in found}


def _check_required(fields: list[_Field], found: dict[str, Any]) -> None:
    for each in fields:
        if each.required and each.name not in found:
            raise Misfit("is missing").within(f".{each.name}")


def _made(kind: Any, fields: dict[str, Any]) -> Any:
    try:
        return kind(**fields)
    except Exception as error:  # what a class thinks of its values is its own affair
        raise Misfit(f"{kind.__name__} refused it: {error}") from error


def _hints(kind: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind, localns={kind.__name__: kind}, include_extras=True)
    except (NameError, TypeError) as error:
        raise WrongType(
            f"the annotations of {kind.__name__} cannot be read: {error}. Classes that name each "
            "other belong to a module, not into a function"
        ) from error


# --- parts of containers -------------------------------------------------------------------------


def _each(values: Any, convert: Convert) -> list[Any]:
    try:
        return [convert(each) for each in values]
    except Misfit:
        return _each_by_number(values, convert)


def _each_by_number(values: Any, convert: Convert) -> list[Any]:
    """The same, slowly, to name the one that is wrong."""
    found = []
    for at, each in enumerate(values):
        try:
            found.append(convert(each))
        except Misfit as misfit:
            raise misfit.within(f"[{at}]") from None
    return found


def _fixed(parts: list[Shape], name: str) -> tuple[ToList, ToList]:
    def convert(values: Any, ways: list[Convert]) -> list[Any]:
        if len(values) != len(ways):
            raise Misfit(f"{name} has {len(ways)} parts, not {len(values)}")
        found = []
        for at, (each, way) in enumerate(zip(values, ways, strict=True)):
            try:
                found.append(way(each))
            except Misfit as misfit:
                raise misfit.within(f"[{at}]") from None
        return found

    def decode(found: Any) -> list[Any]:
        if type(found) is not list:
            raise must_be("a list", found)
        return convert(found, [each.decode for each in parts])

    return lambda value: convert(value, [each.encode for each in parts]), decode


def _hashed(made: Any, decoded: list[Any]) -> Any:
    try:
        return made(decoded)
    except TypeError as error:
        raise Misfit(f"cannot be in a {made.__name__}: {error}") from error


def _is_key(kind: Any) -> bool:
    kind = _resolved(kind, {})
    if kind in (str, int, UUID, Decimal, date, datetime) or typing.get_origin(kind) is Literal:
        return True
    return isinstance(kind, type) and issubclass(kind, Enum)


def _decoded_key(key: Shape, text: str) -> Any:
    try:
        return key.decode(text)
    except Misfit:
        if not text.removeprefix("-").isdecimal():
            raise
        return key.decode(int(text))


# --- types as they are written -------------------------------------------------------------------


def _late(make: Callable[[], Convert]) -> Convert:
    made: list[Convert] = []

    def convert(value: Any) -> Any:
        if not made:
            made.append(make())
        return made[0](value)

    return convert


def _resolved(kind: Any, bound: dict[Any, Any]) -> Any:
    """What a name for a type stands for: an alias, a NewType, Annotated, a type variable."""
    while True:
        if kind is None:
            return type(None)
        if isinstance(kind, typing.TypeVar):
            if kind not in bound:
                raise WrongType(
                    f"{kind} is a type variable: say what it stands for, as in Page[Order]"
                )
            kind = bound[kind]
        elif isinstance(kind, typing.NewType):
            kind = kind.__supertype__
        elif isinstance(kind, ALIAS):
            kind = kind.__value__
        elif hasattr(kind, "__metadata__"):  # Annotated
            kind = kind.__origin__
        elif bound and not isinstance(kind, type) and getattr(kind, "__parameters__", None):
            kind = kind[tuple(bound.get(each, each) for each in kind.__parameters__)]
            bound = {}
        else:
            return kind


def _name(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)


# What is taken for each, and what is made.
_LISTS: dict[Any, tuple[Any, Any]] = {
    list: (list, list),
    set: (set | frozenset, set),
    frozenset: (set | frozenset, frozenset),
    collections.abc.Sequence: (list | tuple, list),
    collections.abc.MutableSequence: (list, list),
    collections.abc.Iterable: (list | tuple, list),
    collections.abc.Collection: (list | tuple, list),
    collections.abc.Set: (set | frozenset, frozenset),
    collections.abc.MutableSet: (set, set),
}
_DICTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
