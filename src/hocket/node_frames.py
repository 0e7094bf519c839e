"""How a link between two nodes begins and is kept: the frames that no core knows.

What nodes say on an open link are the messages of the cores (`core.ring`, `core.relay`,
`core.placement`); `schema/node.capnp` has them all.
"""

from __future__ import annotations

from dataclasses import dataclass

NODE_PROTOCOL_VERSION = 1
PAYLOAD_BYTES_MAX = 160 << 20  # a batch of 128 MiB, the largest there is, and some more

NO_CHANGERS = "none"


@dataclass(slots=True)
class NodeHello:
    """The first frame of the node that has opened the link: who it is, and of which cluster."""

    version_min: int = NODE_PROTOCOL_VERSION
    version_max: int = NODE_PROTOCOL_VERSION
    cluster: str = ""  # its id; empty: the node wants to join the cluster that it finds here
    node: str = ""  # the id of its store, which its certificate names too
    name: str = ""  # for people
    software: str = ""  # for people
    position: int = 0
    address: str = ""  # where other nodes reach it
    domain: str = ""  # what fails together with it
    incarnation: int = 0  # its life on the ring when the link was opened
    features: tuple[str, ...] = ()
    boot: int = 0  # drawn by chance when its process started: tells two processes apart
    starting: bool = False  # it does not serve clients yet, and may still be refused for its name
    capacity: int = 1  # how many partitions it takes, relative to others
    # What may change records that are published there: plug-ins, in order, with versions and
    # digests of their settings. NO_CHANGERS: none. Empty: an older version, which does not say.
    changers: str = ""
    changers_may_differ: bool = False  # whoever has started it knows that those of others differ


@dataclass(slots=True)
class HelloAccepted:
    """The link is open. The sender says who it is, and how much it takes."""

    version: int = NODE_PROTOCOL_VERSION
    cluster: str = ""
    node: str = ""
    name: str = ""
    software: str = ""
    incarnation: int = 0
    payload_bytes_max: int = PAYLOAD_BYTES_MAX
    features: tuple[str, ...] = ()
    successors: int = 0  # the length of successor lists in this cluster
    positions: tuple[int, ...] = ()  # those that are taken, as far as is known, sorted
    root: str = ""  # the address of the root, as far as is known
    replication: int = 0  # of topics that do not say so themselves; 0: not known
    founded_replication: int = 0  # the same when the cluster was founded; 0: not known


@dataclass(slots=True)
class HelloRefused:
    """The link is not opened, and the connection ends."""

    code: str = "failed"  # one of REFUSALS; an unknown one counts as "failed"
    text: str = ""


@dataclass(slots=True)
class Heartbeat:
    """The sender lives, and so does the link."""

    number: int = 0  # counts the sender's heartbeats on this link, from 1
    heard: int = 0  # the newest that the sender has heard; 0: none yet


LinkFrame = NodeHello | HelloAccepted | HelloRefused | Heartbeat

REFUSALS = {
    "failed": "something else; the text says what",
    "wrongVersion": "the two nodes have no version of this protocol in common",
    "wrongCluster": "the node belongs to another cluster",
    "wrongNode": "the certificate is not a node's, or names another store than the hello",
    "wrongPosition": "the position does not follow from the store id, or another node has it",
    "twice": "another process has the same store id: a data directory was copied",
    "nameTaken": "another node that is alive has this name",
    "otherPlugins": "other nodes run other plug-ins on what is published",
    "plain": "without TLS nodes talk within a machine only, and as processes of one user",
    "ownNode": "the node has dialled itself",
    "notReady": "the node cannot take part yet; try again a little later",
    "shuttingDown": "the node is going down",
}
