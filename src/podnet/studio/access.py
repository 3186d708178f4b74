"""Who may use the page from other machines: the token, the sessions it opens, how often it may be wrong."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

IDLE_SECONDS = 3600  # a session ends so long after its last request; an open page counts
SESSION_SECONDS = 86_400  # and so long after it was opened, whatever it does
TICKET_SECONDS = 60
WRONG_TOKENS, WRONG_SECONDS = 10, 60  # that many in that time; then the address has to wait
MOST_SESSIONS = MOST_ADDRESSES = 10_000  # remembered; the oldest make room


@dataclass
class Session:
    """A browser that has shown the token."""

    opened: float
    used: float
    clock: Callable[[], float]

    def use(self) -> bool:
        """Whether it still holds; if so, it was used now."""
        now = self.clock()
        if now - self.opened >= SESSION_SECONDS or now - self.used >= IDLE_SECONDS:
            return False
        self.used = now
        return True


class Access:
    """The token of a server, and the sessions of browsers, which have an id of their own instead of the token."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.token = secrets.token_urlsafe(24)
        self.clock = clock
        self._ticket, self._ticket_ends = "", 0.0
        self._sessions: dict[bytes, Session] = {}  # by digest: how long a look takes says nothing about an id
        self._wrong: dict[str, tuple[int, float]] = {}  # address -> how many since when

    def ticket(self) -> str:
        """A token that opens one session, soon: other users can see the command that starts a browser."""
        self._ticket, self._ticket_ends = secrets.token_urlsafe(24), self.clock() + TICKET_SECONDS
        return self._ticket

    def open_session(self) -> str:
        """The id of a new session."""
        key, now = secrets.token_urlsafe(32), self.clock()
        _make_room(self._sessions, MOST_SESSIONS)
        self._sessions[_digest(key)] = Session(now, now, self.clock)
        return key

    def session(self, key: str) -> Session | None:
        """The session with that id, unless it has ended."""
        found = self._sessions.get(_digest(key))
        if found is None or found.use():
            return found
        del self._sessions[_digest(key)]
        return None

    def accepts(self, given: str, address: str) -> bool:
        """Whether this is the token, or the ticket; a wrong one is counted."""
        is_token = _same(given, self.token)
        is_ticket = _same(given, self._ticket) and self.clock() < self._ticket_ends
        if is_ticket:
            self._ticket_ends = 0.0
        if not (is_token or is_ticket):
            self._note_wrong(_network(address))
        return is_token or is_ticket

    def seconds_to_wait(self, address: str) -> int:
        """Until tokens from that address are looked at again."""
        count, since = self._wrong.get(_network(address), (0, 0.0))
        return max(0, math.ceil(since + WRONG_SECONDS - self.clock())) if count >= WRONG_TOKENS else 0

    def _note_wrong(self, network: str) -> None:
        count, since = self._wrong.pop(network, (0, self.clock()))
        if self.clock() - since >= WRONG_SECONDS:
            count, since = 0, self.clock()
        _make_room(self._wrong, MOST_ADDRESSES)
        self._wrong[network] = (count + 1, since)


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _network(address: str) -> str:
    """An IPv4 address, or the 64 bits of an IPv6 one that its owner cannot choose."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))
    return address


def _make_room(entries: dict, most: int) -> None:
    while len(entries) >= most:
        del entries[next(iter(entries))]
