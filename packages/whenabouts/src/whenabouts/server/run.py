"""Run the server as a process: bind its address, time out slow clients, stop in order."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import multiprocessing
import signal
import socket
from collections.abc import Callable
from dataclasses import replace
from types import FrameType

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from whenabouts.corpus import Corpus
from whenabouts.server.app import Application
from whenabouts.server.errors import ServerError
from whenabouts.server.processes import others_serving, share_of
from whenabouts.server.settings import Settings
from whenabouts.server.sharing import Share, SharedSocket
from whenabouts.types import UsageError

_KEEP_ALIVE_SECONDS = 15
_MOST_HEAD_BYTES = 32 << 10
_MOST_CONNECTIONS = 512
_RETRY_SECONDS = 5
_MOST_PROCESSES = 32
# A search creates some thousand objects and no cycles. With Python's default of 700 the collector would run
# twice per search, for nothing, at a twentieth of the processor time.
_OBJECTS_A_COLLECTION = (20_000, 20, 20)
_log = logging.getLogger(__name__)


def serve(corpus: Corpus, settings: Settings, say: Callable[[str], None], processes: int = 1) -> None:
    """Serve a corpus until SIGINT or SIGTERM, then finish the running requests.

    `say` gets the address once the server answers; further `processes` join as soon as they have started.
    Raises UsageError if the address is unavailable, or if the corpus exceeds the memory bound.
    """
    if not 1 <= processes <= _MOST_PROCESSES:
        raise UsageError(f"--processes {processes}: give 1 to {_MOST_PROCESSES}")
    share = Share(multiprocessing.get_context("spawn").Array("i", Share.none_yet(processes), lock=False), 0)
    with SharedSocket(listen(settings), share) as bound:
        settings = share_of(settings, processes)
        application = Application(corpus, settings)
        parts = application.service.measured_parts(processes)
        application.service.divide(parts)
        for problem in corpus.encoders.usable()[1].values():
            _log.warning("%s", problem)
        settings = replace(settings, files=application.service.folders.there)
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        server = Server(application, settings, lambda: say(greeting(settings, bound)), share)
        with others_serving(corpus.places, settings, parts, bound, share, Server):
            server.run(sockets=[bound])


def listen(settings: Settings) -> socket.socket:
    """A socket bound to the address. Raises UsageError with the reason if it cannot be bound."""
    host = settings.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio disables Nagle's algorithm; otherwise each small answer waits 40 ms for
    # the client's delayed acknowledgement.
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, settings.port))
        bound.listen(_MOST_CONNECTIONS)
        return bound
    except OSError as error:
        bound.close()
        cause = {
            errno.EADDRINUSE: "is taken by another program; give another --port (0: any that is free)",
            errno.EACCES: "needs administrator rights; give a --port of 1024 or more",
        }.get(error.errno or 0, f"cannot be used ({error.strerror}); check --host")
        raise UsageError(f"{settings.host}:{settings.port} {cause}") from None


def greeting(settings: Settings, bound: socket.socket) -> str:
    """The line to print at the start. It omits the token, because service logs keep it."""
    return f"serving at {link(settings, bound, '')}" + (
        " (add ?token= and the token that it was started with)" if settings.token else ""
    )


def link(settings: Settings, bound: socket.socket, token: str) -> str:
    """The page's address for a browser, with the token."""
    port = bound.getsockname()[1]
    host = settings.host.strip("[]")
    shown = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
    address = f"http://{f'[{shown}]' if ':' in shown else shown}:{port}{settings.base_path}/"
    return address + (f"?token={token}" if token else "")


class Server(uvicorn.Server):
    """uvicorn with timeouts for slow clients, no log, and an orderly end at SIGINT and SIGTERM."""

    def __init__(
        self,
        application: ASGIApp,
        settings: Settings,
        started: Callable[[], None],
        share: Share | None = None,
    ) -> None:
        self._share = share or Share([0], 0)
        limits = settings.limits
        config = uvicorn.Config(
            application,
            http=_protocol(limits.head_seconds, limits.stall_seconds, self._share),
            ws="none",
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=max(1, round(limits.graceful_seconds)),
            h11_max_incomplete_event_size=_MOST_HEAD_BYTES,
            loop="asyncio",  # uvloop, which uvicorn prefers, does not call `SharedSocket.accept`
            # One connection per accept, so that the idle one of several processes takes the next.
            backlog=1,
        )
        super().__init__(config)
        self._say_started, self._collections = started, gc.get_threshold()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, then report it."""
        await super().startup(sockets)
        for bound in sockets or ():
            bound.listen(_MOST_CONNECTIONS)  # asyncio also used its backlog of 1 as the queue length
        if self.started:
            gc.freeze()
            gc.set_threshold(*_OBJECTS_A_COLLECTION)
            self._share.begin()
            self._say_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, and finish running requests."""
        self._share.end()
        await super().shutdown(sockets)
        if self.force_exit:  # uvicorn leaves it out, so that a traceback is printed and no job stopped
            await self.lifespan.shutdown()
        gc.set_threshold(*self._collections)
        gc.unfreeze()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Finish running requests; a second Ctrl-C does not wait for them."""
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True


async def _too_many_connections(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers every request while there are too many connections."""
    headers = {"Retry-After": str(_RETRY_SECONDS), "Connection": "close"}
    problem = ServerError(
        503, "busy", f"too many connections; try again in {_RETRY_SECONDS} s", headers=headers
    )
    await problem.response()(scope, receive, send)


def _protocol(head_seconds: float, stall_seconds: float, share: Share) -> type[H11Protocol]:
    """An HTTP/1.1 protocol that drops clients too slow to send their request or read their answer."""

    class BoundedProtocol(H11Protocol):
        """One connection."""

        _head_timer: asyncio.TimerHandle | None = None
        _stall_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            """A client has connected; its request must arrive within `head_seconds`."""
            super().connection_made(transport)
            share.add(1)
            self._head_timer = self.loop.call_later(head_seconds, transport.abort)

        def data_received(self, data: bytes) -> None:
            """Restart the request's timer at its first byte and stop it at its last."""
            # Not uvicorn's own limit, which answers in plain text.
            is_full = max(len(self.connections), len(self.tasks)) >= _MOST_CONNECTIONS
            self.app = _too_many_connections if is_full else self.config.loaded_app
            super().data_received(data)
            is_whole = self.conn.their_state not in (h11.IDLE, h11.SEND_BODY)
            if is_whole and self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None
            elif not is_whole and self._head_timer is None:
                self._head_timer = self.loop.call_later(head_seconds, self.transport.abort)

        def pause_writing(self) -> None:
            """The client reads nothing for now."""
            super().pause_writing()
            if self._stall_timer is None:
                self._stall_timer = self.loop.call_later(stall_seconds, self.transport.abort)

        def resume_writing(self) -> None:
            """The client reads again."""
            super().resume_writing()
            if self._stall_timer is not None:
                self._stall_timer.cancel()
                self._stall_timer = None

        def connection_lost(self, exc: Exception | None) -> None:
            """The client is gone."""
            share.add(-1)
            for timer in (self._head_timer, self._stall_timer):
                if timer is not None:
                    timer.cancel()
            with contextlib.suppress(RuntimeError):
                super().connection_lost(exc)

    return BoundedProtocol
