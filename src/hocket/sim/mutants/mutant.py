"""What a mutant is: a bug that can be planted in production code, and taken out again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

Replacements = list[tuple[object, str, object]]  # whose, which name, by what


@dataclass(slots=True)
class Mutant:
    """What is made while it is planted has the bug."""

    name: str
    sentence: str  # what is wrong with it
    seeds: int  # it is found within so many, from seed 0 on
    plant: Callable[[], AbstractContextManager[None]]


def mutant(seeds: int) -> Callable[[Callable[[], Replacements]], Mutant]:
    """Made of a function: its name, its docstring, and what it wants replaced."""

    def made(function: Callable[[], Replacements]) -> Mutant:
        assert function.__doc__, "a mutant says what is wrong with it"

        @contextmanager
        def plant() -> Iterator[None]:
            with ExitStack() as stack:
                for owner, name, by in function():
                    stack.enter_context(replaced(owner, name, by))
                yield

        sentence = " ".join(function.__doc__.split())
        return Mutant(function.__name__, sentence, seeds, plant)

    return made


@contextmanager
def replaced(owner: object, name: str, by: object) -> Iterator[None]:
    """A function of a class or module is another one for a while, also where a table holds it."""
    original = vars(owner)[name]
    holders = [owner, *owner.__subclasses__()] if isinstance(owner, type) else [owner]
    tables = [
        (table, key)
        for holder in holders
        for table in vars(holder).values()
        if isinstance(table, dict)
        for key, value in table.items()
        if value is original
    ]
    _put(owner, name, tables, by)
    try:
        yield
    finally:
        _put(owner, name, tables, original)


def _put(owner: object, name: str, tables: list[tuple[dict[Any, Any], Any]], value: object) -> None:
    setattr(owner, name, value)
    for table, key in tables:
        table[key] = value
