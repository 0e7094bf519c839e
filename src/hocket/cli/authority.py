"""A certificate authority in a directory, for development and small installations.

    ca.pem           the certificate that everybody trusts      ca.key
    server.pem       for brokers                                server.key
    client-NAME.pem  for the user NAME                          client-NAME.key
    node-ID.pem      for the node whose store is ID             node-ID.key

Only the owner can read the keys (mode 0600), and no file is ever overwritten. All keys are ECDSA on
P-256: they are small and quick, and every TLS library knows them.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hocket.adapters.node_certificate import mark_of

AUTHORITY_LIFE = timedelta(days=3650)
LIFE = timedelta(days=825)  # the longest that every client accepts
CLOCKS_APART = timedelta(hours=1)  # a machine whose clock is behind may use a certificate at once

SERVER = ExtendedKeyUsageOID.SERVER_AUTH
CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
NODE = (SERVER, CLIENT)  # it serves clients and other nodes, and calls other nodes
NODE_NAME = "node {}"  # no user can have that name: it has a space


@dataclass(frozen=True, slots=True)
class Pair:
    """The files of a certificate and its key."""

    certificate: Path
    key: Path

    @classmethod
    def named(cls, directory: Path, name: str) -> Pair:
        return cls(directory / f"{name}.pem", directory / f"{name}.key")

    def exists(self) -> bool:
        return self.certificate.exists() or self.key.exists()


class Authority:
    """Signs certificates. `at` is the time at which a certificate is made; None: now."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self.certificate = certificate
        self._key = key

    @classmethod
    def create(cls, name: str, at: datetime | None = None) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _begun(_named(name), key, at, AUTHORITY_LIFE)
            .issuer_name(_named(name))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
        )
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def load(cls, files: Pair) -> Authority:
        """Raises OSError if the files cannot be read, ValueError if `save` did not write them."""
        certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
        key = serialization.load_pem_private_key(files.key.read_bytes(), password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError(f"'{files.key}' holds no key on an elliptic curve")  # noqa: TRY004
        if certificate.public_key() != key.public_key():
            raise ValueError(f"'{files.key}' is not the key of '{files.certificate}'")
        return cls(certificate, key)

    def save(self, files: Pair) -> None:
        _save(files, self.certificate, self._key)

    def issue(
        self,
        files: Pair,
        name: str,
        purpose: x509.ObjectIdentifier | tuple[x509.ObjectIdentifier, ...],
        hosts: Iterable[str] = (),
        at: datetime | None = None,
        uris: Iterable[str] = (),
    ) -> None:
        """Write a certificate for `name`, and its key, into the files."""
        purposes = purpose if isinstance(purpose, tuple) else (purpose,)
        key = ec.generate_private_key(ec.SECP256R1())
        authority = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        builder = (
            _begun(_named(name), key, at, LIFE)
            .issuer_name(self.certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority),
                critical=False,
            )
        )
        names = [_alternative(host) for host in dict.fromkeys(hosts)]
        names += [x509.UniformResourceIdentifier(uri) for uri in uris]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        _save(files, builder.sign(self._key, hashes.SHA256()), key)

    def issue_node(self, files: Pair, store_id: str, hosts: Iterable[str]) -> None:
        """Write a certificate that marks its owner as the node with this store."""
        self.issue(files, NODE_NAME.format(store_id), NODE, hosts, uris=[mark_of(store_id)])


def _begun(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    at: datetime | None,
    life: timedelta,
) -> x509.CertificateBuilder:
    made = datetime.now(UTC) if at is None else at
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(made - CLOCKS_APART)
        .not_valid_after(made + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _save(files: Pair, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    _write(files.key, secret, 0o600)
    _write(files.certificate, certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def _write(path: Path, data: bytes, mode: int) -> None:
    """Write a new file, with this mode from the start. Raises FileExistsError if it exists."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
