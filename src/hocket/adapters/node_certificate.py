"""What makes a certificate a node's: a URI among its alternative names, with the node's store id.

A URI is what Python's `ssl` shows of a verified certificate (`getpeercert`); it does not show the
extended key usage, and to read that from the DER form would take a package that a broker does not
need otherwise. That the certificate may be used by clients and by servers is checked by TLS itself,
at either end of the handshake.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

MARK = "hocket://node/"  # followed by the store id


def mark_of(store_id: str) -> str:
    return f"{MARK}{store_id}"


def check_node_certificate(
    certificate: Mapping[str, Any] | None, store_id: str, now: float
) -> str | None:
    """Why the node with this store must not be believed to be the one that shows this certificate;
    None if it may be.

    The certificate is what `getpeercert()` returns on a connection whose handshake has verified it:
    whether the right authority has signed it is not looked at again. `now` is in seconds since the
    epoch. A link may live longer than a certificate, so the time is looked at.
    """
    if not certificate:
        return "it shows no certificate; nodes of a cluster know each other by certificates"
    names = certificate.get("subjectAltName", ())
    marks = [text for kind, text in names if kind == "URI" and text.startswith(MARK)]
    if not marks:
        return (
            f"the certificate of {_name(certificate)} is not marked as a node's; make one for the "
            "node with: hocket certs node"
        )
    stores = [mark.removeprefix(MARK) for mark in marks]
    if stores != [store_id]:
        return (
            f"the certificate is that of the node with the store {' and '.join(stores)}, and the "
            f"node says that its store is {store_id}"
        )
    try:
        start = ssl.cert_time_to_seconds(certificate["notBefore"])
        end = ssl.cert_time_to_seconds(certificate["notAfter"])
    except (KeyError, ValueError):
        return "the certificate does not say when it is valid"
    if now < start:
        return (
            f"the certificate is not valid before {certificate['notBefore']}; look at the clocks "
            "of both nodes"
        )
    if now >= end:
        return (
            f"the certificate has expired on {certificate['notAfter']}; make a new one with: "
            "hocket certs node"
        )
    return None


def _name(certificate: Mapping[str, Any]) -> str:
    subject = certificate.get("subject", ())
    names = [text for part in subject for kind, text in part if kind == "commonName"]
    return repr(names[0][:80]) if names else "somebody without a name"
