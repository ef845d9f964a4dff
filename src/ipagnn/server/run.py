"""Running the server until somebody ends it."""

import signal
import socket
from collections.abc import Callable, Collection

import torch
import uvicorn

from ipagnn.server.app import create_app
from ipagnn.server.guard import LOCAL
from ipagnn.server.limits import Limits
from ipagnn.server.models import Offer

_EVERYWHERE = ("0.0.0.0", "::", "")


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
    bounds = limits or Limits()
    listener = _listen(host, port)
    with listener:
        torch.set_num_threads(1)  # each lane has a core; threads within a step would only get in each other's way
        offer.warm_up()
        name = f"[{host}]" if ":" in host else host
        app = create_app(offer, bounds, {*LOCAL, *allowed, *(() if host in _EVERYWHERE else (name,))})
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                server_header=False,
                ws="none",
                timeout_keep_alive=5,
                timeout_graceful_shutdown=int(bounds.seconds) + 5,
            )
        )
        ready(f"http://{'localhost' if host in _EVERYWHERE else name}:{listener.getsockname()[1]}/")
        # uvicorn takes these signals as the wish to end, and raises them again when it has; that is all they are.
        before = {kind: signal.signal(kind, lambda *_: None) for kind in (signal.SIGINT, signal.SIGTERM)}
        try:
            server.run(sockets=[listener])
        finally:
            for kind, handler in before.items():
                signal.signal(kind, handler)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol has to be named: without it asyncio does not send answers at once, and each takes 40 ms longer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except (OSError, OverflowError) as error:
        listener.close()
        raise ValueError(
            f"Nothing can be served at {host} port {port} ({getattr(error, 'strerror', None) or error}); choose "
            "another with --host and --port."
        ) from error
    return listener
