"""What stands before the guard: how many connections there may be, and how long each may keep the server waiting.

uvicorn limits how long a connection may be idle between two requests. A client that sends half a header, or never reads
its answer, would still keep its connection for ever.
"""

import asyncio
import json
from typing import Any, Final, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from ipagnn.server.limits import Limits

CLOSING_SECONDS: Final = 1.0
"""How long an answer that is being sent may still take after the server is asked to stop."""
_REASONS: Final = {400: b"Bad Request", 408: b"Request Timeout", 503: b"Service Unavailable"}


class BoundedProtocol(H11Protocol):
    """One connection, which ends if its client does not send or read in time.

    A connection *waits for its client* while a request is arriving, between two requests, and while an answer is not
    read. When there are too many connections, a new one takes the place of the one that has waited longest for its
    client, so that idle connections never keep others out. It is refused only if all others wait for the server.

    Args:
        limits: Number of connections, seconds for headers and for answers, bytes of answers that wait to be read.
        options: Those of `H11Protocol`.

    Attributes:
        since: When the connection began to wait for its client, in the seconds of the event loop.
    """

    def __init__(self, limits: Limits, **options: Any) -> None:
        super().__init__(**options)
        self.limits = limits
        self.since = 0.0
        self._header_timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None
        self._answered = False  # the answer is complete but not all of it has left the process

    @property
    def waits_for_client(self) -> bool:
        """Whether it is the client's turn."""
        between = self.cycle is None or self.cycle.response_complete
        return between or self.cycle.more_body or self.flow.write_paused

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection in, if there is room or room can be made."""
        super().connection_made(transport)
        # Told of every byte that stays behind, for a client that reads nothing must be noticed.
        transport.set_write_buffer_limits(high=0)
        self.since = self.loop.time()
        self._header_timer = self.loop.call_later(self.limits.header_seconds, self._header_late)
        self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_timers()
        self._unset_keepalive_if_required()
        self._answered = False
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on; a header must be complete some time after its first byte."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_header_timer()
        elif self._header_timer is None and not self.transport.is_closing():
            self._header_timer = self.loop.call_later(self.limits.header_seconds, self._header_late)

    def on_response_complete(self) -> None:
        """Go on with the next request, but not before the answer to this one has left."""
        self.since = self.loop.time()
        if self.flow.write_paused and not self.transport.is_closing():
            self._answered = True
            return
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        self.since = self.loop.time()
        self._send_timer = self.loop.call_later(self.limits.send_seconds, self.transport.abort)
        # In the next turn of the loop, for this is called in the middle of writing.
        self.loop.call_soon(self._bound_unsent)

    def resume_writing(self) -> None:
        """Everything has left."""
        super().resume_writing()
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None
        if self._answered:
            self._answered = False
            super().on_response_complete()

    def shutdown(self) -> None:
        """Finish what the server works on; wait for clients no longer."""
        if self.flow.write_paused:
            self._answered = False  # no further request of this connection is begun
            self.loop.call_later(CLOSING_SECONDS, self.transport.abort)
        elif self.cycle is not None and not self.cycle.response_complete and self.cycle.more_body:
            self.transport.abort()
        try:
            super().shutdown()
        except h11.LocalProtocolError:
            self.transport.abort()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection on which no further request came."""
        try:
            super().timeout_keep_alive_handler()
        except h11.LocalProtocolError:  # half a request came, and it was not HTTP
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()  # an answer to an earlier request may have begun
        else:
            self._refuse(400, "This is not an HTTP request that the server understands.")

    def _all(self) -> "set[BoundedProtocol]":
        return cast("set[BoundedProtocol]", self.connections)

    def _make_room(self) -> None:
        """Let another connection go if there are too many, or refuse this one."""
        present = [one for one in self._all() if not one.transport.is_closing()]
        same = [one for one in present if one.client and self.client and one.client[0] == self.client[0]]
        if len(same) > self.limits.connections_per_address:
            crowd = same
        elif len(present) > self.limits.connections:
            crowd = present
        else:
            return
        waiting = [one for one in crowd if one is not self and one.waits_for_client]
        if waiting:
            min(waiting, key=lambda one: one.since).transport.abort()
        else:
            self._refuse(503, "The server has too many connections; ask again in a second.")

    def _bound_unsent(self) -> None:
        """End the connections that have not read for longest, while too much waits to be read."""
        behind = sorted((one for one in self._all() if one.flow.write_paused), key=lambda one: one.since)
        unsent = sum(one.transport.get_write_buffer_size() for one in behind)
        for one in behind:
            if unsent <= self.limits.unsent_bytes:
                break
            unsent -= one.transport.get_write_buffer_size()
            one.transport.abort()

    def _header_late(self) -> None:
        self._header_timer = None
        seconds = self.limits.header_seconds
        self._refuse(408, f"The request's header did not arrive within {seconds:g} seconds; send it again.")

    def _refuse(self, status: int, sentence: str) -> None:
        """Answer without the application, and close."""
        if self.transport.is_closing():
            return
        body = json.dumps({"detail": sentence, "line": None, "column": None}).encode()
        head = b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n"
        self.transport.write(head % (status, _REASONS[status], len(body)))
        self.transport.write((b"retry-after: 1\r\n\r\n" if status == 503 else b"\r\n") + body)
        self.transport.close()

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _stop_timers(self) -> None:
        self._stop_header_timer()
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None
