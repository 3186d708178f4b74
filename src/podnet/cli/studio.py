"""`podnet studio`: the page."""

from __future__ import annotations

import argparse

from podnet.errors import MissingPackageError
from podnet.io.files import expanded, in_its_place


def studio_command(known: argparse.Namespace) -> int:
    try:
        from podnet.studio.server import serve
        from podnet.studio.tls import certificate_of
    except ImportError as error:
        raise MissingPackageError(
            f"podnet studio needs {error.name}, which is not installed: pip install 'podnet[studio]'."
        ) from error
    model = in_its_place(known.model) if known.model else None
    certificate = certificate_of(known.certificate, known.key)
    return serve(expanded(known.folder), model, known.host, known.port, not known.no_browser, certificate)
