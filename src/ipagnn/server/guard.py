"""What stands before the application: who may ask, how much they may send, and what browsers may do with the answer."""

import asyncio
import json
from collections.abc import Collection
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ipagnn.server.limits import Limits

LOCAL: Final = ("127.0.0.1", "localhost", "[::1]")
"""Names by which a machine calls itself."""
MOST_REQUESTS: Final = 256
"""Requests that may be open at a time: arriving, waiting or worked on, but not those whose answer is being sent."""
RETRY_SECONDS: Final = 1
"""When to come back, if there was too much to do."""
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


class Guard:
    """Refuses requests of other sites and of too large a size; adds the headers that keep a page to itself.

    A page somewhere else can make a browser send requests to this machine, under the machine's own name (which `Origin`
    and `Sec-Fetch-Site` tell) or under a name of its own that it points here (which `Host` tells).

    Args:
        app: What answers.
        hosts: Names that the server answers to.
        limits: Size and time of a body.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str], limits: Limits) -> None:
        self.app = app
        self.hosts = {host.lower() for host in hosts}
        self.limits = limits
        self.open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        counted = False

        def leave() -> None:
            nonlocal counted
            self.open -= counted
            counted = False

        async def send_guarded(message: Message) -> None:
            leave()  # a client that does not read keeps its connection busy, and nothing else
            if message["type"] == "http.response.start":
                stays = b"no-store" if scope["path"].startswith("/api") else b"no-cache"
                message["headers"] = [*message.get("headers", ()), *_HEADERS, (b"cache-control", stays)]
            await send(message)

        if self.open >= MOST_REQUESTS:
            await _refuse(send_guarded, 503, "The server has too many requests at once; ask again in a second.")
            return
        self.open += 1
        counted = True
        try:
            await self._answer(scope, receive, send_guarded)
        finally:
            leave()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope)
        body = b""
        if refusal is None:
            try:
                async with asyncio.timeout(self.limits.body_seconds):
                    read = await self._body(receive)
            except TimeoutError:
                refusal = 408, f"The body did not arrive within {self.limits.body_seconds:g} seconds; send it again."
            else:
                if read is None:
                    refusal = 413, f"The body is larger than {self.limits.body_bytes:,} bytes; send a shorter program."
                else:
                    body = read
        if refusal is not None:
            await _refuse(send, *refusal)
            return
        given = False

        async def receive_again() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        work = asyncio.ensure_future(self.app(scope, receive_again, send))
        left = asyncio.ensure_future(_until_disconnected(receive))
        try:
            await asyncio.wait((work, left), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.cancel()  # nobody waits for the answer any more
            await work
        except asyncio.CancelledError:
            if not left.done():  # the server itself gives up
                raise
        finally:
            work.cancel()
            left.cancel()

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "")
        if _name(host) not in self.hosts:
            return 400, f"This server answers to {', '.join(sorted(self.hosts))}, not to {_name(host)[:100]!r}."
        origin = headers.get(b"origin")
        if origin is not None and origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}"):
            return 403, "This server answers its own page only; the request comes from another site."
        if headers.get(b"sec-fetch-site") == "cross-site" and scope["path"].startswith("/api"):
            return 403, "This server answers its own page only; the request comes from another site."
        length = headers.get(b"content-length", "0")
        if length.isdecimal() and int(length) > self.limits.body_bytes:
            return 413, f"The body is larger than {self.limits.body_bytes:,} bytes; send a shorter program."
        return None

    async def _body(self, receive: Receive) -> bytes | None:
        """All of it; None if it is too large."""
        body = b""
        while True:
            message = await receive()
            body += bytes(message.get("body", b""))
            if len(body) > self.limits.body_bytes:
                return None
            if message["type"] == "http.disconnect" or not message.get("more_body", False):
                return body


async def _until_disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _name(host: str) -> str:
    """A Host header without its port."""
    name = host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
    return name.lower()


async def _refuse(send: Send, status: int, sentence: str) -> None:
    body = json.dumps({"detail": sentence, "line": None, "column": None}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers.append((b"connection", b"close"))  # what is left of the body is not waited for
    if status == 503:
        headers.append((b"retry-after", str(RETRY_SECONDS).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
