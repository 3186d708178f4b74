"""Start the page."""

from __future__ import annotations

import socket
import threading
import time
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

import uvicorn
from rich.console import Console
from starlette.types import ASGIApp

from podnet.errors import ConfigError, PodnetError, printable
from podnet.processes import share_freed_memory
from podnet.studio.access import Access
from podnet.studio.app import create_app
from podnet.studio.connection import HEAD_SECONDS, Connection
from podnet.studio.events import Studio
from podnet.studio.guard import is_loopback
from podnet.studio.tls import Certificate

FIRST_PORT, PORTS = 8137, 20  # tried in order if none is given
MOST_FILES = 10_000  # that the system is asked for


def serve(
    folder: Path, model: Path | None, host: str, port: int | None, browser: bool, certificate: Certificate | None
) -> int:
    """Serve the page until it is interrupted; encrypted if a certificate is given."""
    _require_places(folder, model)
    listening = listen(host, port)
    access = None if is_loopback(host) else Access()
    address = _address(host, listening.getsockname()[1], "https" if certificate else "http")
    studio = Studio(folder.absolute(), model.absolute() if model else None)
    server = _Server(_config(create_app(studio, host, access), certificate))
    server.ending = studio.end
    _raise_file_limit()
    share_freed_memory()
    about = f"runs below {printable(folder)}" + (f", model {printable(model)}" if model else "")
    shown = address + (f"?token={access.token}" if access else "")
    lines = [about, shown, "Press Ctrl-C to stop."]
    if access:
        lines.append("Anyone with this address can see everything and teach the model.")
    if access and not certificate:
        lines.append("Nothing is encrypted; --certificate and --key do that.")
    Console().print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    if browser:
        opened = address + (f"?token={access.ticket()}" if access else "")
        threading.Thread(target=_open, args=(server, opened), daemon=True).start()
    with suppress(KeyboardInterrupt):  # the usual way to stop it
        server.run(sockets=[listening])
    return 0


def _require_places(folder: Path, model: Path | None) -> None:
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{printable(folder)} is a file; give the folder that contains the runs.")
    if model is not None and not model.parent.is_dir():
        raise ConfigError(
            f"cannot create the model {model.name}: there is no folder {printable(model.parent)}; create it first."
        )
    if model is not None and model.is_dir():
        raise ConfigError(f"{printable(model)} is a folder, not a model file.")


def _config(app: ASGIApp, certificate: Certificate | None) -> uvicorn.Config:
    """No access log, which would hold addresses; no headers of proxies, which anyone can send."""
    return uvicorn.Config(
        app,
        http=Connection,
        log_level="error",  # warnings are of malformed requests, which anyone can send
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=2,
        timeout_keep_alive=HEAD_SECONDS,
        ssl_certfile=certificate.file if certificate else None,
        ssl_keyfile=certificate.key if certificate else None,
    )


def _raise_file_limit() -> None:
    """Every open page is a file for the system, which often allows only 1,024 unless asked."""
    with suppress(ImportError, ValueError, OSError):  # Windows has no such limit
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(MOST_FILES, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _Server(uvicorn.Server):
    """Ends the streams before it waits for them."""

    ending: Callable[[], None]

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.ending()
        super().handle_exit(sig, frame)


def listen(host: str, port: int | None) -> socket.socket:
    """A socket on that port, or on the first free one."""
    ports = [port] if port is not None else [*range(FIRST_PORT, FIRST_PORT + PORTS), 0]
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for tried in ports:
        listening = socket.socket(family)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, tried))
            listening.listen(128)
            return listening
        except (OSError, OverflowError) as error:
            listening.close()
            refused = error
    reason = getattr(refused, "strerror", None) or str(refused)
    raise PodnetError(f"cannot listen on {host}, port {tried}: {reason}.") from refused


def _address(host: str, port: int, scheme: str) -> str:
    name = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    return f"{scheme}://{f'[{name}]' if ':' in name else name}:{port}/"


def _open(server: uvicorn.Server, address: str) -> None:
    while not server.started:
        time.sleep(0.05)
    webbrowser.open(address)
