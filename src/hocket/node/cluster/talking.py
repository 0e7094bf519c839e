"""The way to other nodes by the ids of their stores, for what a node has to tell them unasked."""

from __future__ import annotations

from collections.abc import Callable

from hocket.core.ring.contact import Contact
from hocket.node.node import Node
from hocket.ports import Links


class Talking:
    """The `Others` of a node in a cluster (`node.background.transactions`)."""

    def __init__(self, node: Node, *, me: Callable[[], Contact], links: Links) -> None:
        self._node = node
        self._me = me
        self._links = links

    def send(self, node: str, message: object) -> None:
        """To whichever life of the node is there; lost, if nobody knows the node."""
        known = self._node.registering.known(node)
        if known is not None:
            self._links.send(self._me(), known._replace(incarnation=0), message)

    def tell_all(self, message: object) -> None:
        """To all nodes but this one."""
        me = self._me()
        for each in self._members():
            if each.node != me.node:
                self._links.send(me, each._replace(incarnation=0), message)

    def _members(self) -> tuple[Contact, ...]:
        _version, members = self._node.registering.members()
        return members
