"""Why a value does not fit its type, and where in the value that is."""

from __future__ import annotations


class Misfit(Exception):
    """Raised where the value is wrong; each part that holds it adds where it lies."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = ""

    def within(self, where: str) -> Misfit:
        """`where` is ".name" of a field, or "[3]" of a list or a dict."""
        self.path = where + self.path
        return self

    def __str__(self) -> str:
        return f"{self.path.removeprefix('.')}: {self.reason}" if self.path else self.reason


def must_be(wanted: str, value: object) -> Misfit:
    found = "null" if value is None else type(value).__name__
    if isinstance(value, bool | int | float | str):
        found += f" ({value!r:.40})"
    return Misfit(f"must be {wanted}, not {found}")
