"""Types and what they look like in JSON: what is written is read again, and what is wrong named."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    TypedDict,
    TypeVar,
    Union,
)
from uuid import UUID

import msgspec
import pydantic
import pytest

from hocket.errors import WrongType
from hocket.values import coder
from hocket.values.misfit import Misfit

T = TypeVar("T")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Size(IntEnum):
    SMALL = 1
    LARGE = 2


class Word(StrEnum):
    YES = "yes"


class Odd(Enum):
    PAIR = (1, 2)
    DAY = date(2026, 1, 2)


class Bits(Flag):
    A = 1
    B = 2


@dataclass
class Item:
    name: str
    price: Decimal = Decimal(0)


@dataclass
class Order:
    id: int
    items: list[Item] = field(default_factory=list)
    note: str | None = None
    total: Decimal = field(init=False, default=Decimal(0))

    def __post_init__(self) -> None:
        if self.id < 0:
            raise ValueError("ids begin with 0")
        self.total = sum((each.price for each in self.items), Decimal(0))


@dataclass
class Special(Order):
    extra: int = 0


@dataclass(frozen=True, kw_only=True)
class Tree:
    name: str
    children: tuple[Tree, ...] = ()
    parent: Tree | None = None
    either: Tree | int | None = None


@dataclass
class Page(Generic[T]):
    items: list[T]
    first: T | None = None


class Person(TypedDict):
    name: str
    age: NotRequired[int]


class Place(NamedTuple):
    x: int
    y: float = 0.5


class Model(pydantic.BaseModel):
    n: int


class Point(msgspec.Struct):
    x: int


@dataclass
class Mixed:
    model: Model
    points: dict[str, Point]


UserId = NewType("UserId", int)
NOW = datetime(2026, 5, 6, 7, 8, 9, 10, tzinfo=UTC)
EAST = datetime(2026, 5, 6, 7, 8, 9, tzinfo=timezone(timedelta(hours=5, minutes=30)))
TREE = Tree(name="a", children=(Tree(name="b", either=3),), either=Tree(name="c"))

# A type, a value, and the value in JSON.
FITS: list[tuple[Any, Any, Any]] = [
    (int, 2**70, 2**70),
    (float, 1, 1.0),
    (float, -0.5, -0.5),
    (bool, True, True),
    (type(None), None, None),
    (Optional[str], None, None),  # noqa: UP045 - another type at run time
    (str | None, "", ""),
    (Order, Order(1, [Item("x", Decimal("1.10"))]),
     {"id": 1, "items": [{"name": "x", "price": "1.10"}], "note": None}),
    (Tree, TREE, None),
    (Page[Item], Page([Item("x")], Item("y")), None),
    (Page[list[int]], Page([[1]]), {"items": [[1]], "first": None}),
    (Person, {"name": "ann"}, {"name": "ann"}),
    (Person, {"name": "ann", "age": 3}, {"name": "ann", "age": 3}),
    (Place, Place(1, 2), [1, 2.0]),
    (Mixed, Mixed(Model(n=1), {"a": Point(2)}), {"model": {"n": 1}, "points": {"a": {"x": 2}}}),
    (list[Model], [Model(n=1)], [{"n": 1}]),
    (datetime, NOW, "2026-05-06T07:08:09.000010+00:00"),
    (datetime, EAST, "2026-05-06T07:08:09+05:30"),
    (datetime, NOW.replace(tzinfo=None), "2026-05-06T07:08:09.000010"),
    (date, date(2026, 5, 6), "2026-05-06"),
    (time, time(7, 8), "07:08:00"),
    (UUID, UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    (Decimal, Decimal("1.50"), "1.50"),
    (list[bytes], [b"\xff\x00"], ["/wA="]),
    (list[bytearray], [bytearray(b"a")], ["YQ=="]),
    (Colour, Colour.BLUE, "blue"),
    (Size, Size.LARGE, 2),
    (Word, Word.YES, "yes"),
    (Odd, Odd.PAIR, [1, 2]),
    (Odd, Odd.DAY, "2026-01-02"),
    (Bits, Bits.A | Bits.B, 3),
    (Literal["a", 1, True], 1, 1),
    (Literal["a", 1, True], True, True),
    (set[int], {3}, [3]),
    (frozenset[str], frozenset({"a"}), ["a"]),
    (tuple[int, str], (1, "a"), [1, "a"]),
    (tuple[int, ...], (1, 2), [1, 2]),
    (tuple, (1, "a"), [1, "a"]),
    (tuple[()], (), []),
    (Sequence[int], [1], [1]),
    (dict[int, str], {1: "a", -2: "b"}, {"1": "a", "-2": "b"}),
    (dict[UUID, int], {UUID(int=5): 1}, None),
    (dict[Colour, int], {Colour.RED: 1}, {"red": 1}),
    (dict[Size, int], {Size.SMALL: 1}, {"1": 1}),
    (dict[date, int], {date(2026, 5, 6): 1}, {"2026-05-06": 1}),
    (Mapping[str, list[int]], {"a": [1]}, {"a": [1]}),
    (Union[int, str], "1", "1"),  # noqa: UP007 - another type at run time
    (int | str, 1, 1),
    (Item | Person | None, Item("x"), {"name": "x", "price": "0"}),
    (Item | Person | None, None, None),
    (UserId, 5, 5),
    (Annotated[int, "metres"], 5, 5),
    (object, {"a": [1, 2.5, None, True, "x"]}, {"a": [1, 2.5, None, True, "x"]}),
    (dict, {"ä": {"b": 1}}, {"ä": {"b": 1}}),
    (list, [1, [2]], [1, [2]]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "form"), FITS)
def test_what_is_written_is_read_again(kind: Any, value: Any, form: Any):
    found = coder(kind)
    data = found.encode(value)
    assert form is None or json.loads(data) == form
    again = found.decode(data)
    assert again == value
    assert type(again) is type(value) or kind is float


# What is written without a type comes back as JSON has it.
@pytest.mark.parametrize(
    ("value", "form"),
    [
        ({"when": NOW, "who": UUID(int=1)}, None),
        ({"d": Decimal("1.0"), "b": b"\x00", "c": Colour.RED, "t": (1, 2)},
         {"d": "1.0", "b": "AA==", "c": "red", "t": [1, 2]}),
        ([Item("x")], [{"name": "x", "price": "0"}]),
        ([Place(1)], [[1, 0.5]]),
        ([Word.YES, Size.SMALL], ["yes", 1]),
        ([None, {1}], [None, [1]]),
        ([2**70], [2**70]),
    ],
)  # fmt: skip
def test_values_without_a_type_have_the_same_forms(value: Any, form: Any):
    found = coder(object)
    again = found.decode(found.encode(value))
    assert again == (form or {"when": NOW.isoformat(), "who": str(UUID(int=1))})


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (int, "1", r"must be int, not str \('1'\)"),
        (int, True, r"must be int, not bool \(True\)"),
        (float, float("nan"), "nan is no number that JSON has"),
        (float, 10**400, "is too large for a float"),
        (float, "1", "must be float"),
        (bool, 1, r"must be bool, not int \(1\)"),
        (str, 1, "must be str, not int"),
        (Order, {"id": 1}, "must be Order, not dict"),
        (Order, Special(1), "must be Order, not Special"),
        (Order, Order(1, [Item("x"), Item(2)]), r"items\[1\]\.name: must be str, not int \(2\)"),  # type: ignore[arg-type]
        (Order, Order(1, ()), "items: must be a list, not tuple"),  # type: ignore[arg-type]
        (Person, {"name": "x", "agee": 1}, "Person has no field 'agee'"),
        (Person, {"age": 1}, "name: is missing"),
        (Person, [], "must be a dict"),
        (Place, (1, 2), "must be Place, not tuple"),
        (Place, Place(1, "x"), r"\[1\]: must be float"),  # type: ignore[arg-type]
        (date, NOW, "must be date, not datetime"),
        (datetime, date(2026, 1, 1), "must be datetime, not date"),
        (Colour, "red", "must be Colour, not str"),
        (Literal["a"], "b", "must be 'a', not 'b'"),
        (tuple[int, str], (1,), "tuple has 2 parts, not 1"),
        (tuple[int, str], [1, "a"], "must be a tuple"),
        (tuple[int, ...], [1], "must be a tuple"),
        (list[int], (1,), "must be a list, not tuple"),
        (dict[str, int], {"a": "b"}, r"\['a'\]: must be int"),
        (dict[str, int], {1: 1}, r"\[1\]: must be str, not int"),
        (dict[str, int], [], "must be a dict"),
        (int | Item, "x", r"must be int \| Item, not str"),
        (dict, {1: 2}, r"\[1\]: must be str, not int"),
        (list, [{1: 2}], r"\[0\]: 1 is a key, and the keys of a JSON object are text"),
        (dict, [1], "must be a dict"),
        (dict, {"a": [1, {"b": 1j}]}, r"\['a'\]\[1\]\.b: complex has no form in JSON"),
        (dict, {"a": float("inf")}, r"\['a'\]: inf is no number"),
        (object, Model(n=1), "Model has no form in JSON"),
        (Mixed, Mixed(Model(n=1), {"a": Point("x")}), r"points\['a'\]: Expected `int`"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_what_does_not_fit_is_not_written(kind: Any, value: Any, said: str):
    with pytest.raises(Misfit, match=f"^{said}"):
        coder(kind).encode(value)


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        (int, b"1.0", r"must be int, not float \(1\.0\)"),
        (int, b"true", "must be int"),
        (int, b"", "is not JSON"),
        (float, b"NaN", "is not JSON"),
        (str | None, b"1", "must be str"),
        (Order, b"[]", "must be an object, not list"),
        (Order, b"{}", "id: is missing"),
        (Order, b'{"id": -1}', "Order refused it: ids begin with 0"),
        (Order, b'{"id": 1, "items": [{"name": null}]}', r"items\[0\]\.name: must be str, not"),
        (datetime, b'"yesterday"', "'yesterday' is no datetime"),
        (datetime, b"5", "must be datetime, as text"),
        (date, b'"2026-13-01"', "'2026-13-01' is no date"),
        (UUID, b'"5"', "'5' is no UUID"),
        (Decimal, b'"x"', "'x' is no Decimal"),
        (Decimal, b"1.5", "must be Decimal, as text, not float"),
        (Decimal, b"true", "must be Decimal, as text, not bool"),
        (list[bytes], b'["*"]', r"\[0\]: '\*' is no bytes"),
        (Colour, b'"green"', "'green' is no Colour"),
        (Size, b"true", "True is no Size"),
        (Size, b"1.0", "1.0 is no Size"),
        (Bits, b"true", "True is no Bits"),
        (Bits, b'"x"', "'x' is no Bits"),
        (Literal["a"], b'"b"', "must be 'a', not 'b'"),
        (tuple[int, str], b"[1]", "tuple has 2 parts, not 1"),
        (tuple[int, str], b"{}", "must be a list"),
        (tuple[int, ...], b"{}", "must be a list"),
        (set[list[int]], b"[[1]]", "cannot be in a set"),
        (list[int], b'[1, "2"]', r"\[1\]: must be int, not str"),
        (list[int], b"{}", "must be a list, not dict"),
        (dict[int, int], b'{"a": 1}', r"\['a'\]: must be int"),
        (dict[str, int], b"[]", "must be an object"),
        (dict, b"[]", "must be an object"),
        (list, b"{}", "must be a list"),
        (Place, b"[1]", "Place has 2 parts, not 1"),
        (Person, b'{"name": 1}', "name: must be str"),
        (int | Item, b'"x"', r"must be int \| Item, not str"),
        (Mixed, b'{"model": {"n": "x"}, "points": {}}', "model: n: Input should be a valid int"),
    ],
)  # fmt: skip
def test_what_is_not_of_the_type_is_not_read(kind: Any, data: bytes, said: str):
    with pytest.raises(Misfit, match=f"^{said}"):
        coder(kind).decode(data)


def test_fields_may_be_added_and_have_defaults():
    found = coder(Order).decode(b'{"id": 1, "colour": "red"}')
    assert found == Order(1)
    assert coder(Decimal).decode(b"5") == Decimal(5)  # an integer is exact
    assert coder(datetime).decode(b'"2026-05-06T07:08:09Z"').tzinfo is UTC


@dataclass
class Waiting:
    seconds: timedelta


@dataclass
class Nested:
    parts: list[dict[str, Waiting]]


@dataclass
class Told:
    by: InitVar[int]


@dataclass
class Unknown:
    other: Nobody  # type: ignore[name-defined]  # noqa: F821


class Plain:
    pass


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Waiting, r"value=Waiting: Waiting\.seconds: timedelta has no form in JSON here; use"),
        (Nested, r"value=Nested: Nested\.parts\[\]\[\]: Waiting\.seconds: timedelta has no form"),
        (Told, "value=Told: Told.by: an InitVar is not kept in the object"),
        (Unknown, "value=Unknown: the annotations of Unknown cannot be read: name 'Nobody'"),
        (Plain, "value=Plain: Plain has no form in JSON here"),
        (Page, r"value=Page: Page\.items\[\]: ~T is a type variable: say what it stands for"),
        (dict[float, int], "float cannot be the key of a dict in JSON"),
        (dict[int | str, int], r"int \| str cannot be the key of a dict"),
        (int | Plain, "Plain has no form"),
        ("int", "value= takes a type or a coder, not 'int'"),
        (5, "value= takes a type or a coder, not 5"),
        ({5}, r"value= takes a type or a coder, not \{5\}"),
        (Item("a"), "value= takes the type itself, value=Item, and not one of its values"),
        (Model(n=1), "value= takes the type itself, value=Model, and not"),
        (Point(1), "value= takes the type itself, value=Point, and not"),
        (next(iter(Colour)), "the type itself, value=Colour, and not"),
        (bytes, "bytes are what messages carry anyway: leave value= out"),
        (len, "has no form in JSON"),
    ],
)
def test_a_type_without_a_form_is_refused_with_the_way_to_it(kind: Any, said: str):
    with pytest.raises(WrongType, match=said):
        coder(kind)


def test_what_is_nested_without_end_is_refused():
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises((Misfit, RecursionError)):
        coder(list).encode(endless)
    with pytest.raises(Misfit, match="is not JSON"):
        coder(list).decode(b"[" * 100_000)


def test_the_coder_of_a_class_is_made_once_and_a_coder_is_its_own():
    assert coder(Order) is coder(Order)
    mine = coder(list[Order])
    assert coder(mine) is mine


def test_unions_of_equal_types_in_another_order_are_told_apart():
    assert coder(str | UUID).decode(b'"00000000-0000-0000-0000-000000000005"') == str(UUID(int=5))
    assert coder(UUID | str).decode(b'"00000000-0000-0000-0000-000000000005"') == UUID(int=5)
