"""How long a whole corpus takes to rank, in how much memory, and how far that is from the machine's limit.

    python benchmarks/ranking.py --out benchmarks/results/ranking.json

XML with fresh weights (hidden 256, two streams) on made-up features:

* `corpus`: 2,000 queries x 20,000 videos x 50 clips, encoded videos in a folder, moments in the 100 best
  videos of each query. Queries x videos x clips x clips would be 400 GB.
* `validation`: 3,720 queries x 1,334 videos x 10 to 40 clips, in memory: an evaluation of Charades-STA.

Each is a process of its own, so that its peak memory is its own. The answers to some queries are compared
with brute force: every video scored, every span of the candidates tried. The time is held against the
arithmetic at the speed of one large product of matrices on the same threads, measured beside it. Seconds are
given by the clock and as processor time: on a machine with other work only the second says something.
"""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import os
import platform
import resource
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from whenabouts_bench.formats.runs import RunBlock
from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.decoding import Decoding, span_mask
from whenabouts_systems.models.protocol import ClipBatch, QueryBatch
from whenabouts_systems.ranking import MemoryCorpus, Ranker, encode_corpus

Indices = NDArray[np.int64]
STREAMS = ("vision", "subtitle")
WIDTH, HIDDEN, TOKENS = 32, 256, 12
COMPARED = 16


@dataclass(frozen=True)
class Size:
    """A corpus, and queries to it."""

    queries: int
    videos: int
    least_clips: int
    most_clips: int
    on_disk: bool

    def clips(self) -> Indices:
        """(V,) clips of each video."""
        return np.random.default_rng(0).integers(self.least_clips, self.most_clips + 1, self.videos)


SIZES = {
    "corpus": Size(2000, 20_000, 50, 50, on_disk=True),
    "validation": Size(3720, 1334, 10, 40, on_disk=False),
}


@dataclass(frozen=True)
class System:
    """XML with fresh weights."""

    model: Any
    decoding: Decoding
    system: str = "xml"


class Peak:
    """The most memory that the process held while it ran: with and without mapped files, in bytes."""

    def __init__(self) -> None:
        self.all = self.anonymous = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            fields = dict(
                line.split(":") for line in Path("/proc/self/status").read_text().splitlines() if ":" in line
            )
            whole, files = (int(fields[name].split()[0]) << 10 for name in ("VmRSS", "RssFile"))
            self.all = max(self.all, whole)
            self.anonymous = max(self.anonymous, whole - files)


@contextmanager
def timed(into: dict[str, Any], name: str) -> Iterator[None]:
    clock, processor = time.perf_counter(), time.process_time()
    with Peak() as peak:
        yield
    into[name] = {
        "seconds": round(time.perf_counter() - clock, 2),
        "processor seconds": round(time.process_time() - processor, 2),
        "peak GB": round(peak.all / 1e9, 2),
        "peak GB without mapped files": round(peak.anonymous / 1e9, 2),
    }


def clips_of(size: Size, rows: Indices) -> ClipBatch:
    """Made-up features, the same for a video in any batch."""
    counts = size.clips()[rows]
    mask = torch.arange(int(counts.max())) < torch.from_numpy(counts)[:, None]
    streams = {}
    for number, name in enumerate(STREAMS):
        block = torch.zeros(len(rows), mask.shape[1], WIDTH)
        for at, row in enumerate(rows.tolist()):
            made = np.random.default_rng((number, row)).standard_normal((counts[at], WIDTH), np.float32)
            block[at, : counts[at]] = torch.from_numpy(made)
        streams[name] = block
    return ClipBatch(streams, mask)


def queries_of(rows: Indices) -> QueryBatch:
    made = [
        np.random.default_rng((9, row)).standard_normal((TOKENS, WIDTH), np.float32) for row in rows.tolist()
    ]
    return QueryBatch(torch.from_numpy(np.stack(made)), torch.ones(len(rows), TOKENS, dtype=torch.bool))


def system() -> System:
    torch.manual_seed(0)
    config = config_of(
        "xml", {"streams": dict.fromkeys(STREAMS, WIDTH), "query_width": WIDTH, "hidden": HIDDEN}
    )
    return System(new_model("xml", config).eval(), Decoding(1, 16))


def measured(size: Size, threads: int, scratch: str) -> dict[str, Any]:
    """One size, in this process."""
    torch.set_num_threads(threads)
    one = system()
    told: dict[str, Any] = {"size": vars(size) | {"threads": threads}}
    ids = [f"v{at:05d}" for at in range(size.videos)]
    folder = Path(scratch) / "encoded" if size.on_disk else None
    with timed(told, "encoding the videos"):
        corpus = encode_corpus(
            one.model,
            lambda rows: clips_of(size, rows),
            ids,
            clips=size.clips(),
            clip_seconds=1.5,
            folder=folder,
        )
    if folder is not None:
        told["encoded videos, GB on disk"] = round(sum(p.stat().st_size for p in folder.iterdir()) / 1e9, 2)
    names = [str(at) for at in range(size.queries)]
    ranker = Ranker(one, corpus)
    with timed(told, "ranking"):
        blocks = list(ranker.rank(names, queries_of))
    told["moments answered"] = sum(len(block.score) for block in blocks)
    told["compared with brute force"] = compared(one, corpus, blocks)
    told["limits"] = limits(size, threads, told["ranking"]["processor seconds"])
    told["peak GB of the process"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2)
    return told


def limits(size: Size, threads: int, spent: float) -> dict[str, Any]:
    """What the work must cost at least."""
    rate = product_rate()
    clips = int(size.clips().sum())
    retrieval = 2.0 * size.queries * clips * HIDDEN * len(STREAMS)
    pairs = size.queries * min(100, size.videos)
    localizing = 2.0 * pairs * clips / size.videos * HIDDEN * len(STREAMS)
    least = (retrieval + localizing) / rate
    return {
        "retrieval, TFLOP": round(retrieval / 1e12, 3),
        "localizing, TFLOP": round(localizing / 1e12, 3),
        "localizing with a copy for every pair, GB": round(localizing / 2 * 4 / 1e9, 1),
        "all pairs of clips of all videos, GB": round(
            4.0 * size.queries * float((size.clips().astype(np.float64) ** 2).sum()) / 1e9, 1
        ),
        "one large product, GFLOP per processor second": round(rate / 1e9, 1),
        "least processor seconds for the arithmetic": round(least, 2),
        "processor seconds over that": round(spent / least, 2),
    }


def product_rate() -> float:
    """Floating-point operations in a processor second of one large product of matrices."""
    one, other = torch.randn(2048, 2048), torch.randn(2048, 2048)
    best = 0.0
    for _ in range(5):
        begin = time.process_time()
        one @ other
        best = max(best, 2 * 2048**3 / (time.process_time() - begin))
    return best


def compared(one: System, corpus: MemoryCorpus, blocks: list[RunBlock]) -> dict[str, Any]:
    """Shares of the first 10 and of all moments that brute force answers, too; and the largest difference."""
    model, how = one.model, one.decoding
    rows = np.linspace(0, sum(map(len, blocks)) - 1, COMPARED).astype(np.int64)
    ours = dict(pair for block in blocks for pair in moments(block))
    same = {"first 10": 0.0, "all": 0.0}
    furthest = 0.0
    with torch.no_grad():
        for row in rows.tolist():
            expected = brute_force(model, how, corpus, row)
            found = ours[str(row)]
            for name, count in (("first 10", 10), ("all", len(expected))):
                best = {span for span, _ in expected[:count]}
                same[name] += len({span for span, _ in found[:count]} & best) / len(best) / COMPARED
            furthest = max(furthest, *(abs(a[1] - b[1]) for a, b in zip(found, expected, strict=True)))
    return {
        "queries": COMPARED,
        "same among the first 10": round(same["first 10"], 6),
        "same among all": round(same["all"], 6),
        "largest difference of scores": float(f"{furthest:.2g}"),
    }


Answer = tuple[tuple[str, float, float], float]


def moments(block: RunBlock) -> Iterator[tuple[str, list[Answer]]]:
    names = [block.video_ids[code] for code in block.video.tolist()]
    rows = list(zip(names, block.start.tolist(), block.end.tolist(), strict=True))
    answers = list(zip(rows, block.score.tolist(), strict=True))
    for at, query in enumerate(block.query_ids):
        yield query, answers[block.offsets[at] : block.offsets[at + 1]]


def brute_force(model: Any, how: Decoding, corpus: MemoryCorpus, row: int) -> list[Answer]:
    """The answers to one query by scoring every video and every span of the best ones."""
    query = model.encode_queries(queries_of(np.array([row])))
    scores = torch.empty(len(corpus), dtype=torch.float64)
    for at, encoding in corpus.each_block():
        per_stream = [
            torch.einsum("d,vkd->vk", query.search[name][0], encoding.keys[name])
            .masked_fill(~encoding.key_masks[name], -torch.inf)
            .amax(1)
            for name in STREAMS
        ]
        scores[torch.from_numpy(at)] = torch.stack(per_stream).mean(0).double()
    best = torch.sort(scores, descending=True, stable=True).indices[: how.top_videos]
    videos = corpus.take(best.numpy())
    spans = model.score_spans(query.take(torch.zeros(len(best), dtype=torch.int64)), videos)
    clips = videos.mask.shape[1]
    volume = (spans.start[:, :, None] + spans.end[:, None]).double()
    volume += (model.video_weight * scores[best])[:, None, None]
    allowed = span_mask(clips, how) & videos.mask[:, :, None] & videos.mask[:, None]
    value, order = torch.sort(
        volume.masked_fill(~allowed, -torch.inf).flatten(), descending=True, stable=True
    )
    answers: list[Answer] = []
    for number, score in zip(order[: how.spans_per_query].tolist(), value.tolist(), strict=False):
        place, first, last = number // clips**2, number // clips % clips, number % clips
        answers.append(((corpus.ids[int(best[place])], first * 1.5, (last + 1) * 1.5), score))
    return answers


def _measure(name: str, threads: int, send: Any) -> None:
    scratch = tempfile.mkdtemp(prefix="whenabouts-ranking-")
    try:
        send.send(measured(SIZES[name], threads, scratch))
    finally:
        shutil.rmtree(scratch)


def alone(name: str, threads: int) -> dict[str, Any]:
    """One size in a process of its own."""
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_measure, args=(name, threads, send))
    process.start()
    send.close()
    told: dict[str, Any] = receive.recv()
    process.join()
    return told


def processor() -> str:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    names = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", choices=list(SIZES), help="one of the sizes")
    parser.add_argument("--out", type=Path, help="write the result here as JSON")
    arguments = parser.parse_args()
    told: dict[str, Any] = {
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "machine": {
            "processor": processor(),
            "cores": os.cpu_count(),
            "load at the start": round(os.getloadavg()[0], 1),
            "python": platform.python_version(),
            "torch": torch.__version__,
        },
    }
    for name in [arguments.only] if arguments.only else SIZES:
        told[name] = alone(name, arguments.threads)
    text = json.dumps(told, indent=1)
    print(text)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
