"""How a node stands to the ring."""

from __future__ import annotations

from enum import StrEnum


class Standing(StrEnum):
    OUTSIDE = "outside"  # nothing yet, or over
    JOINING = "joining"
    SMALL = "small"  # a member of a ring that lives by the registry
    MEMBER = "member"
    LEAVING = "leaving"
