"""A connection that hangs up on a client that is too slow; uvicorn alone would wait for ever."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10  # for the head of a request, after the connection or the last answer; some clients go after 5
READ_SECONDS = 60  # for a client that reads nothing of its answer
END_SECONDS = 1  # for a client to hang up when the server stops


class Connection(H11Protocol):
    """HTTP/1.1, with time limits."""

    _head: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        _stop(self._head)
        _stop(self._stuck)

    def shutdown(self) -> None:
        super().shutdown()
        self.loop.call_later(END_SECONDS, self.transport.abort)  # an encrypted one would wait for the client's goodbye

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.call_later(READ_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        _stop(self._stuck)

    def _expect_head(self) -> None:
        _stop(self._head)
        self._head = self.loop.call_later(HEAD_SECONDS, self._hang_up)

    def _hang_up(self) -> None:
        """Unless a request is being answered; after its answer it is looked at again."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
            self._head = self.loop.call_later(READ_SECONDS, self.transport.abort)  # if its last bytes are not read


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
