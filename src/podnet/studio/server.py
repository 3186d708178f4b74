"""Start the page."""

from __future__ import annotations

import secrets
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

from podnet.errors import ConfigError, PodnetError, printable
from podnet.studio.app import create_app
from podnet.studio.events import Studio
from podnet.studio.guard import is_loopback

FIRST_PORT, PORTS = 8137, 20  # tried in order if none is given


def serve(folder: Path, model: Path | None, host: str, port: int | None, browser: bool) -> int:
    """Serve the page until it is interrupted."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{printable(folder)} is a file; give the folder that contains the runs.")
    if model is not None and not model.parent.is_dir():
        raise ConfigError(
            f"cannot create the model {model.name}: there is no folder {printable(model.parent)}; create it first."
        )
    if model is not None and model.is_dir():
        raise ConfigError(f"{printable(model)} is a folder, not a model file.")
    listening = listen(host, port)
    token = None if is_loopback(host) else secrets.token_urlsafe(24)
    address = _address(host, listening.getsockname()[1]) + (f"?token={token}" if token else "")
    studio = Studio(folder.absolute(), model.absolute() if model else None)
    app = create_app(studio, host, token)
    server = _Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2, server_header=False))
    server.ending = studio.end
    console = Console()
    about = f"runs below {printable(folder)}" + (f", model {printable(model)}" if model else "")
    console.print(f"{about}\n{address}\nPress Ctrl-C to stop.", markup=False, highlight=False, soft_wrap=True)
    if token:
        console.print("Anyone with this address can see everything and teach the model.", highlight=False)
    if browser:
        threading.Thread(target=_open, args=(server, address), daemon=True).start()
    with suppress(KeyboardInterrupt):  # the usual way to stop it
        server.run(sockets=[listening])
    return 0


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
            if tried == ports[-1]:
                reason = getattr(error, "strerror", None) or str(error)
                raise PodnetError(f"cannot listen on {host}, port {tried}: {reason}.") from error
    raise AssertionError


def _address(host: str, port: int) -> str:
    name = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    return f"http://{f'[{name}]' if ':' in name else name}:{port}/"


def _open(server: uvicorn.Server, address: str) -> None:
    while not server.started:
        time.sleep(0.05)
    webbrowser.open(address)
