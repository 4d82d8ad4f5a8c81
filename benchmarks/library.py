"""How soon a library of 100,000 transcripts is listed, narrowed and sorted, and whether it scrolls smoothly.

    python -m benchmarks.library --folder /tmp/library --out benchmarks/results/library.json

The corpus is written once: 400 folders of transcripts with one line each. Each record has its own title,
language, room, topic and recording date, and one clip of words.

The server runs in its own process. Each kind of request is timed once and then ten times more, by the clock
and by the server's processor time. Chromium then shows the page at 1440 x 900, headless: the time to the
first cards, and the gaps between frames while the list is scrolled from end to end in 400 steps, then by 120
pixels a frame. A gap over 50 ms is a hitch; an empty page on the same machine is measured too. `script_ms` is
the page's own work in a frame (maximum and median). Then every place of a word that each transcript says is
listed, more of them are fetched, and keys move among them and group them: the browser's own event timing says
how long each key and click takes until the next frame. Server and browser share the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
from benchmarks.machine import describe_machine

from whenabouts.index.folders import remember_folders
from whenabouts.index.records import ClipColumns, StreamInfo, VideoRecord, unambiguous
from whenabouts.index.store import Store
from whenabouts.video.files import modified_ns

VIDEOS, SERIES, BATCH = 100_000, 400, 5000
LANGUAGES = ("en", "en", "en", "de", "de", "fr", "es", "ja")
ROOMS, TOPICS = ("hall", "studio", "garden", "lab"), tuple(f"topic {number}" for number in range(1, 13))
CHROMIUM = "/usr/bin/chromium"
_SERVE = """
import sys
from pathlib import Path
from whenabouts.corpus import Corpus
from whenabouts.server.run import serve
from whenabouts.server.settings import Settings
serve(Corpus(sys.argv[1]), Settings(port=0, cache=Path(sys.argv[2])), lambda line: print(line, flush=True))
"""
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "first page": ("videos", {"sort": "name"}),
    "page in the middle": ("videos", {"sort": "name", "skip": VIDEOS // 2}),
    "all facets": ("facets", {}),
    "facets of a language": ("facets", {"where": "language=de"}),
    "a language": ("videos", {"sort": "name", "where": "language=de"}),
    "sorted by date": ("videos", {"sort": "date", "descending": "true"}),
    "sorted by length": ("videos", {"sort": "length", "descending": "true"}),
    "sorted by when they were added": ("videos", {"sort": "added", "descending": "true"}),
    "names with 77": ("videos", {"sort": "name", "where": "name=*77*"}),
}
_SCROLL = """async ({steps, wheel}) => {
  const gaps = [], work = [];
  const schedule = window.requestAnimationFrame.bind(window);
  window.requestAnimationFrame = (call) => schedule((now) => {
    const began = performance.now();
    call(now);
    work.push(performance.now() - began);
  });
  let last = performance.now();
  let done = false;
  const frame = (now) => { gaps.push(now - last); last = now; if (!done) schedule(frame); };
  schedule(frame);
  const most = document.documentElement.scrollHeight - innerHeight;
  for (let step = 1; step <= steps; step += 1) {
    if (wheel) scrollBy(0, wheel); else scrollTo(0, most * step / steps);
    await new Promise(schedule);
  }
  done = true;
  gaps.shift();
  const hitches = gaps.filter((gap) => gap > 50).length;
  window.requestAnimationFrame = schedule;
  const middle = (numbers) => numbers.sort((a, b) => a - b)[numbers.length >> 1] ?? 0;
  return {frames: gaps.length, over_50_ms: hitches, longest_ms: Math.max(...gaps), median_ms: middle(gaps),
          script_ms: Math.max(0, ...work), median_script_ms: middle(work)};
}"""


_EVENTS = """() => {
  window.took = [];
  new PerformanceObserver((list) => list.getEntries().forEach((entry) => took.push(entry.duration)))
    .observe({type: "event", durationThreshold: 16});
}"""


def entry_of(number: int, folder: Path, chosen: random.Random) -> tuple[VideoRecord, dict[str, ClipColumns]]:
    """A record and its clip; the file is written."""
    series = number % SERIES
    path = folder / f"{2000 + series % 25}" / f"series {series + 1}" / f"talk {number // SERIES + 1}.vtt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"WEBVTT\n\n00:00.000 --> 00:05.000\ntalk {number}\n")
    status = path.stat()
    when = datetime(2000, 1, 1, tzinfo=UTC) + timedelta(seconds=chosen.randrange(25 * 365 * 86_400))
    record = VideoRecord(
        video_id=f"talk_{number // SERIES + 1}-{number:08x}",
        path=unambiguous(path),
        size=status.st_size,
        modified_ns=modified_ns(status),
        content_hash=f"{number:032x}",
        kind="transcript",
        duration=chosen.uniform(60, 7200),
        streams={"subtitle": "generated"},
        words="file",
        title=f"Series {series + 1}, talk {number // SERIES + 1}",
        metadata={
            "language": chosen.choice(LANGUAGES),
            "room": chosen.choice(ROOMS),
            "topic": chosen.choice(TOPICS),
            "speaker": f"speaker {chosen.randrange(3000)}",
            "recorded": when.isoformat(),
        },
        indexed_at=1.7e9 + number,
    )
    words = ClipColumns(
        np.zeros(1), np.full(1, 5.0), text=[f"talk {number} about {record.metadata['topic']}"]
    )
    return record, {"subtitle": words}


def build(folder: Path) -> Path:
    """The corpus; made where it is not there yet."""
    place = folder / "library.corpus"
    if place.exists():
        return place
    store, chosen = Store.open(place, create=True), random.Random(1)
    store.add_stream(StreamInfo("subtitle", "words alone", "generated", 0))
    with store.writing():
        for first in range(0, VIDEOS, BATCH):
            store.put_videos(
                entry_of(number, folder / "talks", chosen) for number in range(first, first + BATCH)
            )
        remember_folders(store, [folder / "talks"])
        store.optimize(force=True)
    return place


@contextmanager
def serving(place: Path, cache: Path) -> Iterator[tuple[str, int]]:
    """The address of a server in a process of its own, and that process."""
    command = [sys.executable, "-c", _SERVE, str(place), str(cache)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[2], process.pid
        finally:
            process.terminate()


def processor_ms(process: int) -> float:
    """The processor time that a process has taken, in milliseconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return 1e3 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def timed(address: str, process: int, count: int, route: str, parameters: dict[str, Any]) -> dict[str, float]:
    """The median time of some requests, and the mean processor time of the server."""
    took, used = [], processor_ms(process)
    for _ in range(count):
        began = time.perf_counter()
        with urllib.request.urlopen(f"{address}api/{route}?{urlencode(parameters)}") as reply:
            json.load(reply)
        took.append(1e3 * (time.perf_counter() - began))
    used = (processor_ms(process) - used) / count
    return {"ms": round(statistics.median(took), 1), "processor_ms": round(used, 1)}


def requests_of(address: str, process: int) -> dict[str, dict[str, dict[str, float]]]:
    """For each kind of request the first one, and ten more."""
    return {
        name: {"first": timed(address, process, 1, *asked), "ten_more": timed(address, process, 10, *asked)}
        for name, asked in REQUESTS.items()
    }


def browsed(address: str) -> dict[str, Any]:
    """What a browser takes to show the library and to scroll through it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        began = time.perf_counter()
        page.goto(address)
        page.locator("#library .card-link").first.wait_for()
        shown = 1e3 * (time.perf_counter() - began)
        page.wait_for_timeout(1500)
        ends = scrolled(page, steps=400)
        page.evaluate("scrollTo(0, 0)")
        page.wait_for_timeout(1500)
        wheel = scrolled(page, steps=400, wheel=120)
        cards = page.locator("#library li.card").count()
        keys = pressed(page, address)
        page.goto("about:blank")
        empty = scrolled(page, steps=400)
        browser.close()
    return {
        "first_cards_ms": round(shown, 1),
        "from_end_to_end": ends,
        "by_wheel": wheel,
        "an_empty_page": empty,
        "cards_in_the_page": cards,
        "keys_among_places": keys,
    }


def pressed(page: Any, address: str) -> dict[str, float]:
    """How long keys and clicks take among the places of a word (events below 16 ms are not listed)."""
    page.goto(f"{address}?q=talk&all=true")
    page.locator("#cards .card-link").first.wait_for()
    page.wait_for_timeout(1500)
    page.evaluate(_EVENTS)
    for _ in range(4):
        before = page.locator("#cards .card-link").count()
        page.locator("#more").click()
        page.wait_for_function("n => document.querySelectorAll('#cards .card-link').length > n", arg=before)
    for key in ["j"] * 40 + ["k"] * 10 + ["g"] * 4:
        page.keyboard.press(key)
        page.wait_for_timeout(100)
    took = page.evaluate("took")
    return {
        "cards": page.locator("#cards .card-link").count(),
        "events_of_16_ms_or_more": len(took),
        "over_100_ms": sum(duration > 100 for duration in took),
        "longest_ms": max(took, default=0),
    }


def scrolled(page: Any, **how: int) -> dict[str, float]:
    """How many frames came, and how many late."""
    return {key: round(value, 1) for key, value in page.evaluate(_SCROLL, how).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the corpus is, or is made")
    parser.add_argument("--out", type=Path, help="where the numbers go; none: they are printed")
    options = parser.parse_args()
    place = build(options.folder)
    with serving(place, options.folder / "cache") as (address, process):
        numbers = {
            "date": datetime.now(UTC).date().isoformat(),
            "machine": describe_machine("lancedb", "playwright"),
            "videos": VIDEOS,
            "requests": requests_of(address, process),
            "browser": browsed(address),
        }
    text = json.dumps(numbers, indent=2) + "\n"
    if options.out is None:
        print(text)
    else:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
