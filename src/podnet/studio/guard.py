"""Access control: only this machine's browser, or one with the token; no cross-site requests."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST_BODY = 30_000_000  # bytes of one request: a photo
LOOPBACK = ("localhost", "127.0.0.1", "::1")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    address = _address(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


class Guard:
    """Checks Host, Origin and token of every request first, and limits the size of its body."""

    def __init__(self, app: ASGIApp, host: str, token: str | None) -> None:
        self.app = app
        self.host = host
        self.token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers) or self._without_token(scope, headers)
        if refusal is not None:
            await refusal(scope, receive, _protected(send))
            return
        await self.app(scope, _limited(receive), _protected(send))

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if not self._own_host(host):
            return _refuse(403, f"unknown host {host[:80]!r}; use the address that podnet studio printed.")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return _refuse(403, "requests from other sites are refused.")
        site, mode = headers.get("sec-fetch-site", "same-origin"), headers.get("sec-fetch-mode")
        foreign = site not in ("same-origin", "none")
        if foreign and not (mode == "navigate" and scope["method"] == "GET" and scope["path"] == "/"):
            return _refuse(403, "requests from other sites are refused.")
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > LARGEST_BODY:
            return _refuse(413, f"the request is larger than the {LARGEST_BODY // 10**6} MB allowed.")
        return None

    def _own_host(self, header: str) -> bool:
        """Refuses other names for this host: a foreign page could use one to bypass the same-origin policy."""
        try:
            name = urlsplit(f"//{header}").hostname or ""
        except ValueError:
            return False
        if name in LOOPBACK or name == self.host:
            return True
        if is_loopback(self.host):
            return False
        return name == socket.gethostname().lower() or _address(name) is not None

    def _without_token(self, scope: Scope, headers: Headers) -> Response | None:
        """None if the token is present or not required. A token in the address is moved into a cookie."""
        if self.token is None:
            return None
        given = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        if _same(given.pop("token", ""), self.token) and scope["method"] == "GET":
            query = f"?{urlencode(given)}" if given else ""
            response = RedirectResponse(f"{scope['path']}{query}", status_code=303)
            response.set_cookie(_cookie(scope), self.token, httponly=True, samesite="lax")
            return response
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        if (kind.lower() == "bearer" and _same(bearer, self.token)) or _same(_cookie_of(scope, headers), self.token):
            return None
        return _refuse(401, "a token is needed: open the address with the token that podnet studio printed.")


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


def _cookie(scope: Scope) -> str:
    """Cookies ignore ports, so each studio on this machine has its own cookie name."""
    return f"podnet-{scope['server'][1]}"


def _cookie_of(scope: Scope, headers: Headers) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(_cookie(scope))
    except CookieError:
        return ""
    return found.value if found else ""


def _refuse(status: int, why: str) -> Response:
    return JSONResponse({"detail": why}, status_code=status, headers={"Connection": "close"})


def _protected(send: Send) -> Send:
    async def send_protected(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_protected


class TooLargeError(Exception):
    """A body without a length, or with a wrong one, exceeded the limit."""


def _limited(receive: Receive) -> Receive:
    read = 0

    async def receive_limited() -> Message:
        nonlocal read
        message: Any = await receive()
        read += len(message.get("body", b""))
        if read > LARGEST_BODY:
            raise TooLargeError
        return dict(message)

    return receive_limited
