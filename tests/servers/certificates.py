"""Certificates for TLS: an authority of the tests, and what it vouches for."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificate


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key, as PEM files and as a keystore of Java's; ``password`` is that of the key."""

    file: Path
    key: Path
    keystore: Path
    password: str


class Authority:
    """Vouches for those who trust ``file``. What it issues is in the folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._ca = folder.absolute(), trustme.CA()
        self.file = self._folder / "authority.pem"
        self._ca.cert_pem.write_to_path(self.file)

    def issue(self, name: str, password: str = "") -> Certificate:
        """A certificate for a host or a user of this name."""
        issued = self._ca.issue_cert(name, common_name=name)
        (chain,) = (blob.bytes() for blob in issued.cert_chain_pems)
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        how: KeySerializationEncryption = NoEncryption()
        if password:
            how = BestAvailableEncryption(password.encode())
        file, key_file, keystore = (self._folder / f"{name}.{ending}" for ending in ("pem", "key", "p12"))
        file.write_bytes(chain)
        # Java reads keys in this form only.
        key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how))
        certificate = load_pem_x509_certificate(chain)
        keystore.write_bytes(pkcs12.serialize_key_and_certificates(None, key, certificate, None, how))  # type: ignore[arg-type]
        return Certificate(file, key_file, keystore, password)

    def context(self, name: str) -> ssl.SSLContext:
        """For a server of this name that wants a certificate of its clients, too."""
        issued = self.issue(name)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=self.file)
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(issued.file, issued.key)
        return context
