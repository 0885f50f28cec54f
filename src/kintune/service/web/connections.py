"""The web process's connections: those on which a request does not come in time are closed.

uvicorn limits how long a connection may be silent after an answer; before the first request, and once a part of a
request has come, it waits for ever.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["HEADERS_S", "MOST_HEADER_BYTES", "ImpatientProtocol"]

HEADERS_S = 20.0
"""Seconds within which the headers of a request must come, from its first byte on or from that of the connection."""

MOST_HEADER_BYTES = 32 << 10
"""Bytes of all headers of a request together."""


class ImpatientProtocol(H11Protocol):
    """uvicorn's protocol for HTTP/1.1, with a limit of time for the headers of each request.

    What comes after an answer, be it a part of the next request or the rest of a body that nobody reads, is under the
    same limit.
    """

    _alarm: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has connected."""
        super().connection_made(transport)
        self._alarm = self.loop.call_later(HEADERS_S, self._close)

    def data_received(self, data: bytes) -> None:
        """Pass data on; the alarm is off while a request is answered, and rings unless one is complete in time."""
        before = self.cycle
        super().data_received(data)
        is_upgraded = self.transport.get_protocol() is not self
        if is_upgraded or (self.cycle is not None and not self.cycle.response_complete) or self.cycle is not before:
            self._calm()
        elif self._alarm is None:
            self._alarm = self.loop.call_later(HEADERS_S, self._close)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._calm()
        super().connection_lost(exc)

    def _calm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _close(self) -> None:
        self._alarm = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
