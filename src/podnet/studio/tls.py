"""Encryption by a certificate and its key, in files that the user gives."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from podnet.errors import ConfigError, printable
from podnet.io.files import expanded


@dataclass(frozen=True)
class Certificate:
    """A certificate, with those that it depends on, and its private key: PEM files."""

    file: Path
    key: Path


def certificate_of(file: str | None, key: str | None) -> Certificate | None:
    """The files, tried; None if none are given."""
    if not file and not key:
        return None
    if not file or not key:
        given, missing = ("--certificate", "--key") if file else ("--key", "--certificate")
        raise ConfigError(f"{given} was given without {missing}; encryption needs both.")
    found = Certificate(expanded(file), expanded(key))
    _require_usable(found)
    return found


def _require_usable(given: Certificate) -> None:
    for option, path, kind in (("--certificate", given.file, "certificate"), ("--key", given.key, "private key")):
        try:
            text = path.read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot read {option} {printable(path)}: {error.strerror}.") from error
        if f"{kind.upper()}-----".encode() not in text:
            raise ConfigError(f"{option} {printable(path)} has no {kind}; give a PEM file, with -----BEGIN lines.")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(given.file, given.key, _refuse_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            why = "the key does not belong to the certificate"
        else:
            why = f"one of them is damaged ({error.reason or error})"
        raise ConfigError(f"cannot use {printable(given.file)} with {printable(given.key)}: {why}.") from error


def _refuse_password() -> str:
    """Instead of a question on the terminal."""
    raise ConfigError("the --key is protected by a password; give one without: openssl pkey -in KEY -out PLAIN.")
