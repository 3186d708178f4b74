"""Access control: only this machine's browser, or one with the token; no cross-site requests; no endless bodies."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from podnet.studio.access import Access

LARGEST_BODY = 30_000_000  # bytes of one request: a photo
FIRST_SECONDS, SLOWEST, LONGEST_SECONDS = 10, 10_000, 300  # a body needs so many bytes a second after the first seconds
LOOPBACK = ("localhost", "127.0.0.1", "::1")
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
TOKEN_NEEDED = "a token is needed: open the address that podnet studio printed; a session ends after an idle hour."
# A browser that comes by a link from another site keeps its cookie back; it sends it when our own page leads it on.
LEAD_ON = '<!doctype html><meta http-equiv="refresh" content="0;url=/?again"><title>podnet studio</title>'


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
    """Checks Host, Origin and token of every request first, and limits the size of its body and the time it takes."""

    def __init__(self, app: ASGIApp, host: str, access: Access | None) -> None:
        self.app = app
        self.host = host.lower()
        self.access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        if refusal is None and self.access is not None:
            refusal = self._entrance(self.access, scope, headers)
        if refusal is not None:
            await refusal(scope, receive, _protected(send))
            return
        exchange = _Exchange(receive, _protected(send))
        await self.app(scope, exchange.receive, exchange.send)
        await exchange.finish(scope)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        host = headers.get("host", "")
        if not self._own_host(host, scope["scheme"]):
            return _refuse(403, f"unknown host {host[:80]!r}; use the address that podnet studio printed.")
        origin = headers.get("origin")
        if origin is not None and origin != f"{scope['scheme']}://{host}":
            return _refuse(403, "requests from other sites are refused.")
        site, mode = headers.get("sec-fetch-site", "same-origin"), headers.get("sec-fetch-mode")
        foreign = site not in ("same-origin", "none")
        if foreign and not (mode == "navigate" and scope["method"] == "GET" and scope["path"] == "/"):
            return _refuse(403, "requests from other sites are refused.")
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > LARGEST_BODY:
            return _refuse(413, f"the request is larger than the {LARGEST_BODY // 10**6} MB allowed.")
        return None

    def _own_host(self, header: str, scheme: str) -> bool:
        """Refuses other names for this host: a foreign page could use one to bypass the same-origin policy."""
        try:
            name = urlsplit(f"//{header}").hostname or ""
        except ValueError:
            return False
        if name in LOOPBACK or name == self.host:
            return True
        if self.access is None:
            return False
        certified = scheme == "https" and name != ""  # the browser has compared the name with the certificate
        return certified or name == socket.gethostname().lower() or _address(name) is not None

    def _entrance(self, access: Access, scope: Scope, headers: Headers) -> Response | None:
        """None if the request has a session or the token. The first visit's token is exchanged for a session."""
        visit = scope["method"] == "GET" and scope["path"] == "/"
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)) if visit else {}
        kind, _, bearer = headers.get("authorization", "").partition(" ")
        given = query.get("token", "") or (bearer if kind.lower() == "bearer" else "")
        if given:
            if refused := _wrong_token(access, given, scope):
                return refused
            return _to_page(access.open_session(), scope) if "token" in query else None
        session = access.session(_cookie_of(scope, headers))
        if session is not None:
            scope.setdefault("state", {})["session"] = session
            return RedirectResponse("/", status_code=303) if "again" in query else None
        return HTMLResponse(LEAD_ON, status_code=401) if visit and "again" not in query else _refuse(401, TOKEN_NEEDED)


def _wrong_token(access: Access, given: str, scope: Scope) -> Response | None:
    """None if it is right."""
    address = scope["client"][0] if scope["client"] else ""
    if seconds := access.seconds_to_wait(address):
        why = f"too many wrong tokens from this address; try again in {seconds} seconds."
        return _refuse(429, why, {"Retry-After": str(seconds)})
    return None if access.accepts(given, address) else _refuse(401, f"wrong token; {TOKEN_NEEDED}")


def _to_page(session: str, scope: Scope) -> Response:
    response = RedirectResponse("/", status_code=303)
    secure = scope["scheme"] == "https"
    response.set_cookie(_cookie(scope), session, httponly=True, samesite="strict", secure=secure)
    return response


def _cookie(scope: Scope) -> str:
    """Cookies ignore ports, so each studio on this machine has its own cookie name."""
    return f"{'__Host-' if scope['scheme'] == 'https' else ''}podnet-{scope['server'][1]}"


def _cookie_of(scope: Scope, headers: Headers) -> str:
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(_cookie(scope))
    except CookieError:
        return ""
    return found.value if found else ""


def _refuse(status: int, why: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"detail": why}, status_code=status, headers={"Connection": "close", **(headers or {})})


def _protected(send: Send) -> Send:
    async def send_protected(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_protected


class _Exchange:
    """One request and its answer. If the body is too large, or too slow, the application sees a client that is gone,
    and the client gets the reason instead of the application's answer."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._began: float | None = None
        self._read = 0
        self._whole = self._started = self._ended = False
        self._refusal: Response | None = None

    async def receive(self) -> Message:
        if self._whole:
            return await self._receive()  # comes when the client goes
        now = asyncio.get_running_loop().time()
        self._began = self._began or now
        try:
            async with asyncio.timeout_at(self._began + min(FIRST_SECONDS + self._read / SLOWEST, LONGEST_SECONDS)):
                message = await self._receive()
        except TimeoutError:
            return self._refuse(408, f"the request comes too slowly: less than {SLOWEST // 1000} kB a second.")
        self._read += len(message.get("body", b""))
        self._whole = not message.get("more_body", False)
        if self._read > LARGEST_BODY:
            return self._refuse(413, "the request is too large.")
        return message

    def _refuse(self, status: int, why: str) -> Message:
        self._refusal, self._whole = _refuse(status, why), True
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self._refusal is None or self._started:
            self._started = True
            self._ended = message["type"] == "http.response.body" and not message.get("more_body", False)
            await self._send(message)

    async def finish(self, scope: Scope) -> None:
        """After the application: send the refusal, or end an answer that was under way."""
        if self._refusal is not None and not self._started:
            await self._refusal(scope, self._receive, self._send)
        elif self._started and not self._ended:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
