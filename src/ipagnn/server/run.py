"""Running the server until somebody ends it."""

import signal
import socket
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast

import torch
import uvicorn

from ipagnn.server.app import create_app
from ipagnn.server.guard import LOCAL
from ipagnn.server.limits import Limits
from ipagnn.server.logs import bound_logs
from ipagnn.server.models import Offer
from ipagnn.server.protocol import BoundedProtocol

_EVERYWHERE: Final = ("0.0.0.0", "::", "")
_WAITING_CONNECTIONS: Final = 1024
_ACCEPTED_AT_ONCE: Final = 64
_SEND_BUFFER_BYTES: Final = 128 * 1024
_SPARE_FILES: Final = 128 + 4 * _ACCEPTED_AT_ONCE
"""Files beside those of connections: the process's own, and connections that are accepted but not yet counted."""


def serve(
    offer: Offer,
    host: str = "127.0.0.1",
    port: int = 8000,
    allowed: Collection[str] = (),
    limits: Limits | None = None,
    ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Serve until Ctrl-C or SIGTERM; then finish what has begun, and return.

    Args:
        offer: The models.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        allowed: Names by which the server may be called, beside this machine's own and `host`.
        limits: What requests may cost.
        ready: Called with the address of the page as soon as it can be opened.

    Raises:
        ValueError: The address cannot be listened on, or nobody could call the server by a name it answers to.
    """
    if host in _EVERYWHERE and not allowed:
        raise ValueError(
            f"--host is {host or 'empty'}, so others can reach the server; say with --allow-host by which name they "
            "call it, as in `--allow-host myhost.example`."
        )
    bounds = _within_open_files(limits or Limits())
    listener = _listen(host, port)
    with listener:
        torch.set_num_threads(1)  # each lane has a core; threads within a step would only get in each other's way
        offer.warm_up()
        name = f"[{host}]" if ":" in host else host
        app = create_app(offer, bounds, {*LOCAL, *allowed, *(() if host in _EVERYWHERE else (name,))})
        server = _Server(
            uvicorn.Config(
                app,
                http=cast(Any, partial(BoundedProtocol, bounds)),
                ws="none",
                backlog=_ACCEPTED_AT_ONCE,
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_keep_alive=5,
                timeout_graceful_shutdown=int(bounds.seconds) + 5,
            )
        )
        bound_logs()
        ready(f"http://{'localhost' if host in _EVERYWHERE else name}:{listener.getsockname()[1]}/")
        # uvicorn takes these signals as the wish to end, and raises them again when it has; that is all they are.
        before = {kind: signal.signal(kind, lambda *_: None) for kind in (signal.SIGINT, signal.SIGTERM)}
        try:
            server.run(sockets=[listener])
        finally:
            for kind, handler in before.items():
                signal.signal(kind, handler)


class _Server(uvicorn.Server):
    """Accepts few connections at once, for each is a file, and lets the system keep the others until then."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_WAITING_CONNECTIONS)  # asyncio takes one number for both


def _within_open_files(limits: Limits) -> Limits:
    """Limits with no more connections than this process may have files."""
    try:
        import resource
    except ImportError:  # not on Windows
        return limits
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = limits.connections + _SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return replace(limits, connections=max(8, min(limits.connections, soft - _SPARE_FILES)))
    return limits


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol has to be named: without it asyncio does not send answers at once, and each takes 40 ms longer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit it. Otherwise the system keeps megabytes for each client that does not read.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        listener.bind((host, port))
        listener.listen(_WAITING_CONNECTIONS)
    except (OSError, OverflowError) as error:
        listener.close()
        raise ValueError(
            f"Nothing can be served at {host} port {port} ({getattr(error, 'strerror', None) or error}); choose "
            "another with --host and --port."
        ) from error
    return listener
