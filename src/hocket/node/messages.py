"""All that the nodes of a cluster say to each other, and how it is encoded.

A message that a core makes and that is not among these cannot be sent; a test holds that every
class of message is here.
"""

from __future__ import annotations

from typing import get_args

from hocket.core.group0.messages import Group0Message
from hocket.core.placement.auditing import AuditMessage
from hocket.core.placement.descriptions import DescriptionMessage
from hocket.core.placement.locator import LocatorMessage
from hocket.core.placement.storing import StoringMessage
from hocket.core.placement.trees import TreeMessage
from hocket.core.relay.messages import RelayMessage
from hocket.core.ring.messages import Message
from hocket.core.ring.views import ViewMessage
from hocket.core.transactions.messages import TransactionMessage
from hocket.node.raft_mail import ReplicationMessage
from hocket.wire.node_codec import NodeCodec

# In no particular order: their numbers on the wire are those of the schema.
MESSAGES: tuple[type, ...] = (
    *get_args(Message),
    *get_args(RelayMessage),
    *get_args(LocatorMessage),
    *get_args(ViewMessage),
    *get_args(Group0Message),
    *get_args(DescriptionMessage),
    *get_args(ReplicationMessage),
    *get_args(TransactionMessage),
    *get_args(StoringMessage),
    *get_args(AuditMessage),
    *get_args(TreeMessage),
)
CODEC = NodeCodec(MESSAGES)
