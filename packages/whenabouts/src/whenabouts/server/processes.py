"""Several server processes at one address, because Python runs one thread at a time.

Each process is a whole server with its own threads, limits and memory; all accept from one socket. They share
the cache of thumbnails and clips, and accept each other's page tokens. A process that dies is restarted; none
outlives the first.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from multiprocessing.context import SpawnProcess
from typing import Any

from whenabouts.corpus import Corpus
from whenabouts.server.memory import Parts
from whenabouts.server.settings import Settings
from whenabouts.server.sharing import Share, SharedSocket

_PAUSE_SECONDS = 1.0
_END_SECONDS = 10.0


@contextlib.contextmanager
def others_serving(
    place: Sequence[str],
    settings: Settings,
    parts: Parts,
    bound: socket.socket,
    share: Share,
    make_server: Callable[..., Any],
) -> Iterator[None]:
    """Run the other processes of `share` on a listening socket, until the block ends.

    Each keeps to the same `parts` of memory.
    """
    if len(share.counts) < 2:
        yield
        return
    # A mapping proxy cannot be sent to another process.
    given = replace(settings, models=dict(settings.models))
    arguments, stop = (place, given, parts, make_server), threading.Event()
    end_seconds = settings.limits.graceful_seconds + _END_SECONDS
    keeper = threading.Thread(target=_keep, args=(arguments, bound, share, stop, end_seconds), daemon=True)
    keeper.start()
    try:
        yield
    finally:
        stop.set()
        keeper.join(end_seconds)


def _keep(
    arguments: tuple[Any, ...], bound: socket.socket, share: Share, stop: threading.Event, end_seconds: float
) -> None:
    """Start the processes, restart those that die, and end all when `stop` is set.

    `arguments` are the first ones of `_serve_here`.
    """
    context = multiprocessing.get_context("spawn")
    # Only a plain socket can be sent to another process.
    plain = socket.socket(fileno=bound.fileno())
    running: dict[int, SpawnProcess] = {}
    while not stop.wait(_PAUSE_SECONDS if running else 0):
        for index in range(1, len(share.counts)):
            if index in running and running[index].is_alive():
                continue
            theirs = Share(share.counts, index)
            theirs.end()
            running[index] = context.Process(target=_serve_here, args=(*arguments, plain, theirs))
            running[index].start()
    plain.detach()
    for process in running.values():
        process.terminate()
    for process in running.values():
        process.join(end_seconds)
        process.kill()


def _serve_here(
    place: Sequence[str],
    settings: Settings,
    parts: Parts,
    make_server: Callable[..., Any],
    bound: socket.socket,
    share: Share,
) -> None:
    """Serve in this process until it is told to stop or the first process is gone."""
    from whenabouts.server.app import Application

    with SharedSocket(bound, share) as shared:
        application = Application(Corpus(place), settings)
        application.service.divide(parts)
        server = make_server(application, settings, lambda: None, share)
        threading.Thread(target=_end_with_parent, args=(server,), daemon=True).start()
        server.run(sockets=[shared])


def _end_with_parent(server: Any) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        server.should_exit = True


def share_of(settings: Settings, count: int) -> Settings:
    """The settings of one of `count` processes, with its share of the common limits."""
    limits = settings.limits
    # At least two each: while one waits for the index, the other computes.
    searches = limits.searches if count == 1 else max(2, limits.searches // count)
    clips = max(1, limits.clips_a_minute // count)
    memory = limits.memory_bytes // count
    limits = replace(limits, searches=searches, clips_a_minute=clips, memory_bytes=memory)
    return replace(settings, limits=limits)
