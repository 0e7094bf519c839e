"""A certificate authority for tests, and a certificate of it for localhost; good until 2126.

The key is public by being here: it protects nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

AUTHORITY = """\
-----BEGIN CERTIFICATE-----
MIIBpjCCAU2gAwIBAgIUWkfuNeji8lvgKHyrCeMuiy8s1j8wCgYIKoZIzj0EAwIw
IDEeMBwGA1UEAwwVSG9ja2V0IHRlc3QgYXV0aG9yaXR5MCAXDTI2MTExNjAxNDUy
OVoYDzIxMjYxMDIzMDE0NTI5WjAgMR4wHAYDVQQDDBVIb2NrZXQgdGVzdCBhdXRo
b3JpdHkwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAATEUUQYTyYKhYY24k7q6tQ9
wXbVjW0PfTzntgj9zaRHh5hy0bCu5+qt6V0TrQxkA3cStaHf+ksIay8uGm6XqTb5
o2MwYTAdBgNVHQ4EFgQUYkbIw25naYxmSmK0YonknQ5xePkwHwYDVR0jBBgwFoAU
YkbIw25naYxmSmK0YonknQ5xePkwDwYDVR0TAQH/BAUwAwEB/zAOBgNVHQ8BAf8E
BAMCAgQwCgYIKoZIzj0EAwIDRwAwRAIgCExh+yX7XBGMc8+BuVHcEmHhP7PseqWT
jz+aUpoOtrcCIGeiBHnRsaxwWSwBNpVuvgA0/ghDCLOGDKdMs2KHFNbk
-----END CERTIFICATE-----
"""

CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBzDCCAXKgAwIBAgIUUH2kC9OCwB0jFkGLxzNmwBMRIG4wCgYIKoZIzj0EAwIw
IDEeMBwGA1UEAwwVSG9ja2V0IHRlc3QgYXV0aG9yaXR5MCAXDTI2MTExNjAxNDUy
OVoYDzIxMjYxMDIzMDE0NTI5WjARMQ8wDQYDVQQDDAZicm9rZXIwWTATBgcqhkjO
PQIBBggqhkjOPQMBBwNCAATvMc9pT9sehcGK4gIhrOcfAtT5e2RuS/mZr20IcMwC
nYh9aMTwg7M0uBpdYfH3n4skXsVR/HafZTLUrFg0D7xDo4GWMIGTMBoGA1UdEQQT
MBGCCWxvY2FsaG9zdIcEfwAAATAJBgNVHRMEAjAAMAsGA1UdDwQEAwIHgDAdBgNV
HSUEFjAUBggrBgEFBQcDAQYIKwYBBQUHAwIwHQYDVR0OBBYEFDnLmylg0QWR/bGz
kl1oRfYAG+6bMB8GA1UdIwQYMBaAFGJGyMNuZ2mMZkpitGKJ5J0OcXj5MAoGCCqG
SM49BAMCA0gAMEUCIQCg/shcTQTq0yMY/DExDBPdrvkCwHfIXzkWG7fryWyHzQIg
cy6TSmIr3HmjXlYCb2QG9rR9BhKIk4AL+eVQXeALP6g=
-----END CERTIFICATE-----
"""

KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgIbhN+TCyv4gPnM9x
ESLRLCewJO70WdTCJd442cr63A6hRANCAATvMc9pT9sehcGK4gIhrOcfAtT5e2Ru
S/mZr20IcMwCnYh9aMTwg7M0uBpdYfH3n4skXsVR/HafZTLUrFg0D7xD
-----END PRIVATE KEY-----
"""


@dataclass
class Certificates:
    authority: Path
    certificate: Path
    key: Path


def written(directory: Path) -> Certificates:
    found = Certificates(directory / "ca.pem", directory / "cert.pem", directory / "key.pem")
    found.authority.write_text(AUTHORITY)
    found.certificate.write_text(CERTIFICATE)
    found.key.write_text(KEY)
    return found
