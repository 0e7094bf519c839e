"""The fields of a small dataclass, as a snapshot has them.

A snapshot of group 0 has one for every topic, user and grant, and is made at every checkpoint.
`dataclasses.asdict` copies each value as deep as it goes and takes several times as long.
"""

from __future__ import annotations

from typing import Any


def flat(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that has slots, and values that are written as they are."""
    return {name: getattr(value, name) for name in value.__slots__}
