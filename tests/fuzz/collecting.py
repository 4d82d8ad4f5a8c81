"""A process that changes collections without pause and is killed: each change is whole, or was not made."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from multiprocessing.synchronize import Event
from pathlib import Path

from whenabouts.types import Moment
from whenabouts.workplace.collections import Collections
from whenabouts.workplace.database import Database

_NAMES = ("one", "two", "three")
_MOST_ITEMS = 30
_MOST_SECONDS = 300


def kill_collections(place: Path, rng: random.Random) -> list[str]:
    """Kill a process that changes collections without pause, and look at what it leaves."""
    context = multiprocessing.get_context("spawn")
    begins = context.Event()
    process = context.Process(target=_change, args=(str(place), begins))
    process.start()
    assert begins.wait(_MOST_SECONDS)
    time.sleep(rng.uniform(0, 0.1))
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    collections = Collections(Database(str(place)))
    listed = collections.listed()
    found = [f"two are called {[each.name for each in listed]}"] if len(listed) > 1 else []
    for each in listed:
        items = [(int(item.start), item.video_id) for item in collections.get(each.id).items]
        rounds = len(items) // len(_NAMES)
        fits = sorted(items) == sorted((at, name) for at in range(rounds) for name in _NAMES)
        # Reversed as a whole, or as it was added.
        in_order = [at for at, _ in items]
        fits &= in_order in (sorted(in_order), sorted(in_order, reverse=True))
        found += [] if fits and each.name in ("here", "there") else [f"{each.name!r} holds {items}"]
    return found


def _change(place: str, begins: Event) -> None:
    """Add to a collection, rename it, reverse it twice, and at times delete it, until killed."""
    collections = Collections(Database(place))
    begins.set()
    name = next((each.name for each in collections.listed()), "here")
    while True:
        count = len(collections.get(name).items) if collections.listed() else 0
        if count >= _MOST_ITEMS:
            collections.delete(name)
            continue
        order = [item.start for item in collections.get(name).items] if count else []
        backwards = list(range(count, 0, -1))
        if order != sorted(order):
            collections.reorder(name, backwards)
            order = order[::-1]
        at = count // len(_NAMES)
        collections.add(name, [Moment(each, at, at + 1) for each in _NAMES], create=True)
        count += len(_NAMES)
        other = "there" if name == "here" else "here"
        collections.describe(name, new_name=other)
        name = other
        collections.reorder(name, list(range(count, 0, -1)))
