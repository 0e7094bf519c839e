"""Where this node hangs in the tree: its parent, its ancestors, the owner.

Only `upstream` changes a lineage; every other component reads it.
"""

from __future__ import annotations

from collections.abc import Iterable

from hocket.core.relay.settings import DEPTH_MAX
from hocket.core.ring.contact import Contact


class Lineage:
    __slots__ = (
        "ancestors", "is_leader", "is_owner", "is_rooted", "me", "owner", "parent", "total",
    )  # fmt: skip

    def __init__(self, me: Contact) -> None:
        self.me = me
        self.is_owner = False  # this node is the root of its tree, and reads its own log
        self.is_leader = False  # and it leads the partition, so that it stays for those who come
        self.owner: Contact | None = None  # as far as this node knows
        self.parent: Contact | None = None
        self.ancestors: tuple[Contact, ...] = ()  # the parent first, the owner last
        self.is_rooted = False  # the ancestors lead to the owner, as far as this node knows
        self.total = 0  # consumers of the whole tree, as the parent has told

    @property
    def has_way_to_owner(self) -> bool:
        """A node without a way to the owner takes no children: it might become its own ancestor."""
        return self.is_owner or self.is_rooted

    @property
    def of_a_child(self) -> tuple[Contact, ...]:
        """The ancestors of a child of this node."""
        return (self.me, *self.ancestors[: DEPTH_MAX - 1])


def names(contacts: Iterable[Contact], node: Contact) -> bool:
    """Whether `node` is among the contacts, in whichever life."""
    return any(contact.node == node.node for contact in contacts)
