"""Models of pydantic and Structs of msgspec are written and read by their own libraries."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import msgspec
import pydantic
import pytest

from hocket.values import coder
from hocket.values.misfit import Misfit

T = TypeVar("T")


class Address(pydantic.BaseModel):
    street: str = pydantic.Field(alias="str")
    zip: int


class Customer(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    name: str
    since: datetime
    addresses: list[Address] = []

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def shout(self) -> str:
        return self.name.upper()


@pydantic.dataclasses.dataclass
class Pair:
    left: int
    right: int = 0


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]


class Root(pydantic.RootModel[list[int]]):
    pass


class Shape(msgspec.Struct, tag=True, rename="camel"):
    line_width: float = 1.0


class Circle(Shape, tag=True):
    r: int = 0


ANN = Customer(
    name="ann", since=datetime(2026, 1, 1, tzinfo=UTC), addresses=[Address(str="a", zip=1)]
)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Customer, ANN),
        (Pair, Pair(1, 2)),
        (Page[int], Page[int](items=[1])),
        (Page[Address], Page[Address](items=[Address(str="b", zip=2)])),
        (Root, Root([1, 2])),
        (Shape, Shape(2.5)),
        (Circle, Circle(r=3)),
    ],
)
def test_what_is_written_is_read_again(kind: Any, value: Any):
    found = coder(kind)
    assert found.decode(found.encode(value)) == value


def test_a_model_is_written_so_that_it_can_be_read():
    data = coder(Customer).encode(ANN)
    assert b'"str":"a"' in data  # by its alias
    assert b"shout" not in data  # computed: a model that forbids other fields would not take it
    assert b"lineWidth" in coder(Shape).encode(Shape())


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (Customer, {"name": "ann"}, "must be Customer, not dict"),
        (Customer, ANN.model_copy(update={"name": 5}), "name"),
        (Pair, "x", "must be Pair, not str"),
        (Circle, Shape(), "must be Circle, not Shape"),
        (Circle, Circle(r="wide"), r"Expected `int`, got `str` - at `\$\.r`"),  # type: ignore[arg-type]
    ],
)
def test_what_does_not_fit_is_not_written(kind: Any, value: Any, said: str):
    with pytest.raises(Misfit, match=said):
        coder(kind).encode(value)


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        (Customer, b"{", "Invalid JSON"),
        (Customer, b"{}", "name: Field required; since: Field required"),
        (
            Root,
            b'["a", "b", "c", "d", "e"]',
            r"0: Input should be a valid integer.*; 2: [^;]*; and 2 more",
        ),
        (Circle, b'{"type": "Shape"}', "Invalid value 'Shape'"),
        (Circle, b'{"type": "Circle", "r": "secret"}', r"Expected `int`, got `str` - at `\$\.r`"),
        (Circle, b'"\xff"', "Expected `object`|invalid start byte"),
        (Circle, b"", "Input data was truncated"),
    ],
)
def test_what_is_not_of_the_type_is_not_read(kind: Any, data: bytes, said: str):
    with pytest.raises(Misfit, match=said) as caught:
        coder(kind).decode(data)
    assert "secret" not in str(caught.value)  # what is told goes into logs, and to dead letters


def test_none_of_the_libraries_is_needed():
    """Without them, and with nothing of them loaded, dataclasses and dicts work as they do here."""
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(['orjson', 'msgspec', 'pydantic']))\n"
        "from dataclasses import dataclass\n"
        "from hocket.values import coder\n"
        "@dataclass\n"
        "class Order:\n"
        "    id: int\n"
        "print(coder(Order).encode(Order(1)), coder(Order).decode(b'{\"id\": 2}'))\n"
        "print(coder(dict).encode({'a': None}), coder(dict).decode(b'{}'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    assert done.stdout == "b'{\"id\":1}' Order(id=2)\nb'{\"a\":null}' {}\n"
