"""How a server bears 50 clients at once over a million clips, and how soon page and thumbnails are there.

    python -m benchmarks.serving --folder /tmp/serving --out benchmarks/results/serving.json
    python -m benchmarks.serving --folder /tmp/serving --corpus /tmp/serving/corpus --processes 1 2 4 \
        --seconds 30 --out benchmarks/results/serving_processes.json
    python -m benchmarks.serving --folder /tmp/serving --corpus /tmp/serving/corpus --before ../older/src \
        --out benchmarks/results/serving_before.json
    python -m benchmarks.serving --folder /tmp/serving --corpus /tmp/serving/corpus --recall \
        --out benchmarks/results/serving_recall.json

The corpus is that of `scale.py` (generated vectors), but declared as made by the sentence encoder
that comes with whenabouts, so that the real server with the real encoder answers: each search encodes its
sentence, finds the nearest clips, matches words, reads the clips of 40 videos and ranks. 50 connections ask
one search after the other, as quickly as they are answered. Thumbnails are of the sample videos, each
instant asked for once, by one client. Server and clients share the machine. With --corpus it is one
client and many in turn, for each number of server processes: the second command, after the first has made the
corpus, is throughput, p50 and p99 on a million clips.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from benchmarks.machine import describe_machine
from benchmarks.scale import STREAM, K, nearest_of, queries, recall, truth, write

import whenabouts
from whenabouts.confidence.background import SENTENCES
from whenabouts.corpus import Corpus
from whenabouts.encoders import open_text_encoder
from whenabouts.index.memory import ROWS_A_SEARCH
from whenabouts.index.records import StreamInfo
from whenabouts.index.store import Store

SAMPLES = Path(__file__).resolve().parents[1] / "samples" / "videos"
_SERVE = """
import sys
from pathlib import Path
from whenabouts.corpus import Corpus
from whenabouts.server.run import serve
from whenabouts.server.settings import Settings
settings = Settings(port=0, cache=Path(sys.argv[2]))
serve(Corpus(sys.argv[1], create=False), settings, lambda line: print(line, flush=True), int(sys.argv[3]))
"""


def make_corpus(folder: Path, rows: int) -> None:
    """The generated corpus; one that is there is used as it is."""
    store = Store.open(folder, create=True)
    if STREAM not in store.streams:
        encoder = open_text_encoder("minilm")
        store.add_stream(StreamInfo(STREAM, encoder.name, encoder.fingerprint, encoder.dimension))
        write(store, rows)


@contextmanager
def serving(
    corpus: Path, cache: Path, processes: int = 1, source: Path | None = None
) -> Iterator[tuple[int, int]]:
    """A server, of the package in another `source` tree if one is given: its first process's id, its port."""
    command = [sys.executable, "-c", _SERVE, str(corpus), str(cache), str(processes)]
    environment = os.environ if source is None else {**os.environ, "PYTHONPATH": str(source.resolve())}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        found = re.search(r":(\d+)/", process.stdout.readline())
        assert found is not None, "the server did not start"
        try:
            yield process.pid, int(found.group(1))
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, "the server did not end well"


class Connection:
    """One connection that is kept; the least there is, so that clients take little from the server."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Connection:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def get(self, target: str, *, decoded: bool = False) -> tuple[int, bytes]:
        """Status and body, as it came unless it is to be `decoded`."""
        head = f"GET {target} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n"
        self._writer.write(head.encode())
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
        length = next(int(line.split(":")[1]) for line in lines if line.startswith("content-length:"))
        body = await self._reader.readexactly(length)
        if decoded and "content-encoding: gzip" in lines:
            body = gzip.decompress(body)
        return int(lines[0].split()[1]), body


@dataclass
class Seen:
    """What the clients saw."""

    milliseconds: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    bytes: int = 0


async def ask_on(port: int, number: int, until: float, seen: Seen) -> None:
    """One client: search after search, each for another sentence."""
    turn = 0
    async with Connection(port) as connection:
        while time.monotonic() < until:
            sentence = SENTENCES[(number * 31 + turn * 7) % len(SENTENCES)]
            target = f"/api/search?query={quote(f'{sentence} {number} {turn}')}&k=10"
            began = time.perf_counter()
            status, body = await connection.get(target)
            seen.milliseconds.append((time.perf_counter() - began) * 1e3)
            seen.statuses[status] = seen.statuses.get(status, 0) + 1
            seen.bytes += len(body)
            turn += 1


def family(process: int) -> list[int]:
    """A process and those that it started."""
    lists = [path.read_text().split() for path in Path(f"/proc/{process}/task").glob("*/children")]
    return [process, *(child for pids in lists for pid in pids for child in family(int(pid)))]


async def watch(process: int, until: float) -> list[float]:
    """Resident megabytes of a server's processes, once a second."""
    sizes = []
    while time.monotonic() < until:
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in family(process))
        sizes.append(pages * os.sysconf("SC_PAGE_SIZE") / 1e6)
        await asyncio.sleep(1)
    return sizes


def cpu_seconds(process: int) -> float:
    """Processor time that a server has used so far: unlike the clock, it hardly minds a busy machine."""
    facts = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in family(process)]
    return sum(int(fact[11]) + int(fact[12]) for fact in facts) / os.sysconf("SC_CLK_TCK")


async def load(process: int, port: int, clients: int, seconds: float) -> dict[str, Any]:
    """The clients for so many seconds, after a few to warm up."""
    await asyncio.gather(*(ask_on(port, n, time.monotonic() + 5, Seen()) for n in range(clients)))
    seen, until, began, used = Seen(), time.monotonic() + seconds, time.monotonic(), cpu_seconds(process)
    own = time.process_time()
    watching = asyncio.ensure_future(watch(process, until))
    await asyncio.gather(*(ask_on(port, number, until, seen) for number in range(clients)))
    took, used, sizes = time.monotonic() - began, cpu_seconds(process) - used, await watching
    own, third = time.process_time() - own, max(1, len(sizes) // 3)
    return {
        "clients": clients,
        "seconds": round(took, 1),
        "searches": len(seen.milliseconds),
        "errors": sum(count for status, count in seen.statuses.items() if status != 200),
        "statuses": seen.statuses,
        "searches_a_second": round(len(seen.milliseconds) / took, 1),
        "processor_ms_a_search": round(used / len(seen.milliseconds) * 1e3, 1),
        "processor_ms_of_the_clients": round(own / len(seen.milliseconds) * 1e3, 2),
        **quantiles(seen.milliseconds),
        "memory_mb": {
            "first third": round(float(np.mean(sizes[:third]))),
            "last third": round(float(np.mean(sizes[-third:]))),
            "most": round(max(sizes)),
        },
    }


def quantiles(milliseconds: Sequence[float]) -> dict[str, float]:
    """p50, p90, p99 and the most."""
    p50, p90, p99 = np.percentile(milliseconds, [50, 90, 99])
    return {
        "p50_ms": round(float(p50), 1),
        "p90_ms": round(float(p90), 1),
        "p99_ms": round(float(p99), 1),
        "most_ms": round(max(milliseconds), 1),
    }


async def one_search(port: int, count: int = 50) -> dict[str, float]:
    """Searches of a single client, one at a time."""
    times = []
    async with Connection(port) as connection:
        for number in range(count):
            began = time.perf_counter()
            status, _ = await connection.get(f"/api/search?query={quote(SENTENCES[number])}&k=10")
            assert status == 200
            times.append((time.perf_counter() - began) * 1e3)
    return quantiles(times)


async def page(port: int) -> dict[str, Any]:
    """Bytes and milliseconds of the page and everything it loads, compressed, without a browser."""
    began = time.perf_counter()
    async with Connection(port) as connection:
        sizes = {"/": len((await connection.get("/"))[1])}
        for path in sorted((Path(whenabouts.__file__).parent / "server/page").iterdir()):
            if path.suffix in (".css", ".js", ".svg"):
                status, body = await connection.get(f"/static/{path.name}")
                assert status == 200, path.name
                sizes[f"/static/{path.name}"] = len(body)
    return {
        "files": len(sizes),
        "bytes": sum(sizes.values()),
        "all_one_after_the_other_ms": round((time.perf_counter() - began) * 1e3, 1),
    }


async def thumbnails(process: int, port: int) -> dict[str, Any]:
    """Each instant of each sample video once: nothing is in the cache."""
    times: dict[str, list[float]] = {}
    used = cpu_seconds(process)
    async with Connection(port) as connection:
        videos = json.loads((await connection.get("/api/videos", decoded=True))[1])["data"]
        for video in videos:
            if not video["has_picture"]:
                continue
            for share in (0.0, 0.13, 0.31, 0.5, 0.77, 0.93, 1.0):
                at = share * video["duration"]
                began = time.perf_counter()
                url = f"/api/videos/{video['video_id']}/thumbnail?at={at:.2f}&width=320"
                status, _ = await connection.get(url)
                assert status == 200, url
                times.setdefault(video["name"], []).append((time.perf_counter() - began) * 1e3)
    every = [value for values in times.values() for value in values]
    medians = {name: round(float(np.median(values)), 1) for name, values in times.items()}
    return {
        "thumbnails": len(every),
        "under_100_ms": round(sum(value < 100 for value in every) / len(every), 3),
        "processor_ms_each": round((cpu_seconds(process) - used) / len(every) * 1e3, 1),
        **quantiles(every),
        "median_ms": medians,
        "load_average": [round(value, 1) for value in os.getloadavg()],
    }


def by_processes(arguments: argparse.Namespace) -> dict[str, Any]:
    """`one_and_many` for each number of processes; with one number that report alone."""
    run = before_and_now if arguments.before else one_and_many
    reports = [run(arguments, processes) for processes in arguments.processes]
    return reports[0] if len(reports) == 1 else {"by processes": reports}


def one_and_many(arguments: argparse.Namespace, processes: int) -> dict[str, Any]:
    """One client and many in turn, on a corpus that is there: how many times as long a search takes.

    The machine may be busy with other work. So each round measures both, one after the other, and ratios are
    of one round.
    """
    rounds = []
    with serving(arguments.corpus, arguments.folder / "cache", processes) as (process, port):
        while len(family(process)) < processes:
            time.sleep(0.5)
        asyncio.run(load(process, port, arguments.clients, 5))
        for _ in range(arguments.rounds):
            alone = asyncio.run(load(process, port, 1, arguments.seconds / 2))
            many = asyncio.run(load(process, port, arguments.clients, arguments.seconds))
            rounds.append(
                {
                    "one": alone,
                    "many": many,
                    "p50_times": round(many["p50_ms"] / alone["p50_ms"], 1),
                    "p99_times_p50_of_one": round(many["p99_ms"] / alone["p50_ms"], 1),
                    "load_average": [round(value, 1) for value in os.getloadavg()],
                }
            )
            print(json.dumps(rounds[-1]), flush=True)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe_machine("lancedb", "pyarrow", "numpy", "fastapi", "uvicorn"),
        "clips": Store.open(arguments.corpus).stats().streams[STREAM].clips,
        "processes": processes,
        "p50_times": float(np.median([one["p50_times"] for one in rounds])),
        "p99_times_p50_of_one": float(np.median([one["p99_times_p50_of_one"] for one in rounds])),
        "rounds": rounds,
    }


def before_and_now(arguments: argparse.Namespace, processes: int) -> dict[str, Any]:
    """Many clients ask a server of an older version and one of this in turn; the ratios of each round."""
    rounds: list[dict[str, Any]] = []
    with (
        serving(arguments.corpus, arguments.folder / "cache", processes, arguments.before) as before,
        serving(arguments.corpus, arguments.folder / "cache", processes) as now,
    ):
        for process, port in (before, now):
            while len(family(process)) < processes:
                time.sleep(0.5)
            asyncio.run(load(process, port, arguments.clients, arguments.warm))
        for _ in range(arguments.rounds):
            both = [
                asyncio.run(load(*server, arguments.clients, arguments.seconds)) for server in (before, now)
            ]
            ratios = {name: round(both[1][name] / both[0][name], 3) for name in COMPARED}
            load_average = [round(value, 1) for value in os.getloadavg()]
            rounds.append({"before": both[0], "now": both[1], "ratio": ratios, "load_average": load_average})
            print(json.dumps(rounds[-1]), flush=True)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe_machine("lancedb", "pyarrow", "numpy", "fastapi", "uvicorn"),
        "clips": Store.open(arguments.corpus).stats().streams[STREAM].clips,
        "processes": processes,
        "ratio": {name: float(np.median([one["ratio"][name] for one in rounds])) for name in COMPARED},
        "rounds": rounds,
    }


def recalled(arguments: argparse.Namespace) -> dict[str, Any]:
    """The share of the exact nearest clips that is found from the files, in memory, and for 16 at a time."""
    asked = queries(arguments.queries)
    truth(arguments.folder, arguments.rows, len(asked))
    with np.load(arguments.folder / "truth.npz") as saved:
        best, scores = saved["best"][0], saved["scores"][0]
    files, kept = Store.open(arguments.corpus), Store.open(arguments.corpus)
    files.keep_at_most(0)
    for _ in range(arguments.rows // ROWS_A_SEARCH + 2):
        nearest_of(kept, None, asked[0])
    blocks = [kept.nearest_of_each(STREAM, list(asked[at : at + 16]), K) for at in range(0, len(asked), 16)]
    if None in blocks:
        raise SystemExit(f"{arguments.corpus} is not kept in memory: it has no index, or there is no room")
    ways = {
        "from the files": [nearest_of(files, None, query) for query in asked],
        "in memory": [nearest_of(kept, None, query) for query in asked],
        "in memory, 16 at a time": [hits for block in blocks for hits in block or ()],
    }
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe_machine("lancedb", "numpy"),
        "rows": arguments.rows,
        "queries": len(asked),
        "recall": {way: recall(hits, best, scores) for way, hits in ways.items()},
    }


COMPARED = ("p50_ms", "p99_ms", "processor_ms_a_search", "searches_a_second")
"""What is given as a ratio to the version before."""


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """All of it."""
    folder: Path = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    make_corpus(folder / "corpus", arguments.rows)
    report: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe_machine("lancedb", "pyarrow", "numpy", "fastapi", "uvicorn"),
        "rows": arguments.rows,
        "encoder": "minilm (real), vectors of the clips generated",
    }
    with serving(folder / "corpus", folder / "cache") as (process, port):
        report["one client, one search at a time"] = asyncio.run(one_search(port))
        report["page"] = asyncio.run(page(port))
        print(json.dumps(report, indent=1), flush=True)
        report["load"] = asyncio.run(load(process, port, arguments.clients, arguments.seconds))
        report["load"]["load_average_after"] = [round(value, 1) for value in os.getloadavg()]
    samples = folder / "samples"
    Corpus(samples, create=True).add(SAMPLES, processes=1)
    with serving(samples, folder / f"cache-{time.time_ns()}") as (process, port):
        report["thumbnails, cold"] = asyncio.run(thumbnails(process, port))
    return report


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--corpus", type=Path, help="only one client and many in turn, on this corpus")
    parser.add_argument("--processes", type=int, nargs="+", default=[2], help="of the server, with --corpus")
    parser.add_argument("--rounds", type=int, default=3, help="with --corpus")
    parser.add_argument("--before", type=Path, help="with --corpus: the source tree of an older version")
    parser.add_argument("--warm", type=float, default=30.0, help="seconds before the first round")
    parser.add_argument(
        "--recall", action="store_true", help="with --corpus: what is found of the exact nearest"
    )
    parser.add_argument("--queries", type=int, default=96, help="with --recall")
    arguments = parser.parse_args()
    run = recalled if arguments.recall else by_processes if arguments.corpus else measure
    text = json.dumps(run(arguments), indent=1)
    print(text)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
