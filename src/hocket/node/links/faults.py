"""What is wrong with a node that this one has called, in words that say what to do."""

from __future__ import annotations

import ssl

from hocket.adapters.tls import reason_of, speaks_no_tls
from hocket.core.ring.circle import is_candidate
from hocket.core.ring.contact import Contact

GIVE_TLS = "--tls-cert, --tls-key and --tls-ca (see: hocket certs node --help)"
ANOTHER_USER = (
    "it does not run as the user of this node, and without TLS anybody on this machine could say "
    f"to be a node: start both as one user, or give every node {GIVE_TLS}"
)
PLAIN = f"beyond loopback nodes talk by TLS only: give every node {GIVE_TLS}"


def of_tls(error: ssl.SSLError) -> str:
    """Why TLS with the other node did not come about."""
    if speaks_no_tls(error):
        return f"it does not speak TLS, and this node does: give every node {GIVE_TLS}"
    return (
        f"TLS failed: {reason_of(error)}. The certificates of both have to be valid, and signed by "
        "the authority that both know by --tls-ca (see: hocket certs node --help)"
    )


def is_ours(error: ssl.SSLError) -> bool:
    """Whether this node has refused the other one, and not the other way round."""
    return isinstance(error, ssl.SSLCertVerificationError) or speaks_no_tls(error)


def of_position(contact: Contact) -> str:
    """What is wrong with the place that somebody says this node has on the ring."""
    if is_candidate(contact.node.encode(), contact.position):
        return ""
    return (
        f"it is said to be at position {contact.position}, which is none of the candidates of its "
        f"store id {contact.node}"
    )
