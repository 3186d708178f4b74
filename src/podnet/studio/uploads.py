"""Photos on their way: many arrive at a time, since one that hangs costs only its socket; few are decoded at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from tempfile import SpooledTemporaryFile
from typing import IO

from fastapi import HTTPException, Request

DECODED = 4  # at a time
MOST_UPLOADS = 200  # at a time; beyond, the oldest that is still arriving makes room
ROOM_SECONDS = 1  # if it is older than that
IN_MEMORY = 100_000  # bytes of a photo; a larger one arrives in a temporary file
BUSY = "too many photos at once; send this one again."


class Uploads:
    """The uploads of all pages."""

    def __init__(self) -> None:
        self.decoding = asyncio.Semaphore(DECODED)
        self.network = asyncio.Semaphore(1)  # which looks at one photo at a time; who only decodes need not wait for it
        self._count = 0
        self._arriving: dict[asyncio.Timeout, float] = {}  # and since when, in this order

    @asynccontextmanager
    async def photo(self, request: Request, turn: asyncio.Semaphore) -> AsyncIterator[IO[bytes]]:
        """The body of a request, once it is whole and it is its turn."""
        if self._count >= MOST_UPLOADS:
            self._make_room()
        self._count += 1
        try:
            with SpooledTemporaryFile(IN_MEMORY) as file:
                await self._receive(request, file)
                async with turn:
                    yield file
        finally:
            self._count -= 1

    async def _receive(self, request: Request, file: IO[bytes]) -> None:
        try:
            async with asyncio.timeout(None) as limit:
                self._arriving[limit] = asyncio.get_running_loop().time()
                try:
                    async for part in request.stream():
                        file.write(part)
                finally:
                    self._arriving.pop(limit, None)
        except TimeoutError:
            raise _busy() from None
        file.seek(0)

    def _make_room(self) -> None:
        """End the oldest upload that is still arriving, or refuse the new one."""
        oldest, since = next(iter(self._arriving.items()), (None, 0.0))
        now = asyncio.get_running_loop().time()
        if oldest is None or now - since < ROOM_SECONDS:
            raise _busy()
        del self._arriving[oldest]
        oldest.reschedule(now)


def _busy() -> HTTPException:
    return HTTPException(503, BUSY, headers={"Retry-After": str(ROOM_SECONDS)})
