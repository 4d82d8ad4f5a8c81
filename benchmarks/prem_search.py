"""How long searches with PREM and with HERO take, and their parts, on one indexed corpus.

    python -m benchmarks.prem_search --folder /tmp/prem.corpus --out benchmarks/results/prem_search.json
    python -m benchmarks.prem_search --folder /tmp/small.corpus --videos 40 --queries 5      to try it

Generated corpus: videos of 100 clips of 1.5 seconds, each clip with a vector for its picture (512 wide) and
one for what is said (384 wide; of a fifth of the clips nothing is). The systems are those of `models/` at the
published sizes (PREM, two systems: hidden 384, 4 heads, 100 clips; HERO whole: hidden 768, 12 heads, 6 and 3
layers), with random weights: what they find means nothing, what they cost is what trained ones cost. What
HERO keeps of videos is drawn, because its encoder takes long and is no part of a search. The keys of PREM's
retriever choose, its localizer looks into 10 videos; HERO's keys choose 300, whose best moments choose 40.

Both are asked in turns. The time of a query is that of `TrainedSearch.find`, for PREM without the encoder
that makes word vectors of its words (HERO reads words itself); each query is asked twice, for videos that
were read are remembered. Parts are measured in the same calls, by clocks around the functions named in
`PARTS`. "needs" counts what a query has to compute and to read once, and what that takes at the rates of a
large product and of a long sum on this machine: `times_of_need` is how many times that a query takes, in
processor time (the machine may be busy). A corpus that is in `folder` already is used as it is; beside it
lies a folder of words for HERO's tokenizer.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.machine import describe_machine, percentiles
from benchmarks.prem_step import SIDE
from benchmarks.query_tokens import QueryTokens
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from whenabouts.index.keys import KeptVideo, Keys, known_systems
from whenabouts.index.records import ClipColumns, StreamInfo, VideoRecord
from whenabouts.index.store import Store
from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.inputs import Inputs, StreamInput
from whenabouts_systems.models.protocol import ClipBatch, VideoEncoding
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.trained_search import indexed_corpus
from whenabouts_systems.trained_search import search as trained_search
from whenabouts_systems.trained_search.indexed_corpus import unpacked
from whenabouts_systems.trained_search.opened import IndexedSystem, open_model
from whenabouts_systems.trained_search.search import TrainedSearch

CLIPS, SECONDS, TOKENS = 100, 1.5, 15
WIDTHS = {"vision": 512, "subtitle": 384}
QUERY_WIDTH, SILENT = 384, 0.2
TOP_VIDEOS, K, BLOCK, WORDS = 10, 10, 200, 1000
HERO_WIDTH = 768
Matrix = NDArray[np.float32]


def words(queries: int) -> QueryTokens:
    """Random tokens for so many queries."""
    seeds = [np.random.default_rng(number) for number in range(queries)]
    return QueryTokens([rng.standard_normal((TOKENS, QUERY_WIDTH), dtype=np.float32) for rng in seeds])


def system(name: str, seed: int) -> Trained:
    """One of the two systems at the published size, with weights large enough that scores differ."""
    torch.manual_seed(seed)
    settings = {"streams": WIDTHS, "query_width": QUERY_WIDTH, "max_clips": CLIPS}
    told = {stream: StreamInput(width, True, "generated") for stream, width in WIDTHS.items()}
    inputs = Inputs(StreamInput(QUERY_WIDTH, True, "generated"), told, clip_seconds=SECONDS)
    decoding = Decoding(max_clips=24, top_videos=TOP_VIDEOS, nms=0.7)
    return Trained(name, new_model(name, config_of(name, settings)).eval(), inputs, decoding)


def hero(folder: Path) -> Trained:
    """The whole HERO at the published size, whose words are the numbers of a tokenizer in `folder`."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({str(number): number for number in range(WORDS)}, unk_token="3"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(3)
    told = {"vision": StreamInput(WIDTHS["vision"], True, "generated")}
    config = config_of("hero", {"streams": {"vision": WIDTHS["vision"]}, "text_encoder": str(folder)})
    inputs = Inputs(
        StreamInput(QUERY_WIDTH),
        told,
        clip_seconds=SECONDS,
        max_clips=CLIPS,
        tokenizer=str(folder),
        reads_sentences=True,
    )
    decoding = Decoding(max_clips=24, top_videos=TOP_VIDEOS, nms=0.7)
    model: Any = new_model("hero", config).eval()
    model.encode_videos = drawn
    return Trained("hero", model, inputs, decoding)


def drawn(videos: ClipBatch) -> VideoEncoding:
    """What HERO keeps of videos, drawn: its encoder takes a processor half a second for each."""
    frames = torch.randn(*videos.mask.shape, HERO_WIDTH) * videos.mask[..., None]
    keys = {"frames": functional.normalize(frames, dim=-1)}
    return VideoEncoding(videos.mask, keys, {"frames": videos.mask}, {"frames": frames})


def write(store: Store, count: int) -> None:
    """Make the corpus."""
    for stream, width in WIDTHS.items():
        store.add_stream(StreamInfo(stream, "generated", "generated", width, {"clip_seconds": SECONDS}))
    start = np.arange(CLIPS, dtype=np.float64) * SECONDS
    for first in range(0, count, BLOCK):
        store.put_videos(video(number, start) for number in range(first, min(first + BLOCK, count)))


def video(number: int, start: NDArray[np.float64]) -> tuple[VideoRecord, dict[str, ClipColumns]]:
    """One video, its vectors drawn by its number."""
    rng = np.random.default_rng(number)
    columns = {}
    for stream, width in WIDTHS.items():
        rows = rng.standard_normal((CLIPS, width), dtype=np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        kept = rng.random(CLIPS) >= SILENT if stream == "subtitle" else np.ones(CLIPS, bool)
        text = ["generated words"] * int(kept.sum()) if stream == "subtitle" else None
        columns[stream] = ClipColumns(start[kept], start[kept] + SECONDS, text, rows[kept])
    record = VideoRecord(
        f"{number:08d}", f"/{number}.mp4", duration=CLIPS * SECONDS, streams=dict.fromkeys(WIDTHS, "g")
    )
    return record, columns


PARTS: tuple[tuple[str, Any, str], ...] = (
    ("queries encoded", IndexedSystem, "encode"),
    ("nearest keys", indexed_corpus, "nearest_units"),
    ("what is kept: read", Keys, "encodings"),
    ("what is kept: unpacked", indexed_corpus, "unpacked"),
    ("what is kept: unpacked, without keys", trained_search, "unpacked"),
    ("videos scored", trained_search, "score_corpus"),
    ("moments: decoded and suppressed, with the localizer", trained_search, "rank"),
    ("evidence and words", trained_search, "with_evidence"),
    ("the retriever's whole part", TrainedSearch, "retrieved"),
)
"""What is measured within a search: its name, where the function is, and how it is called."""
LOCALIZER = "of all, the localizer's own scores"


@dataclass(frozen=True)
class Asked:
    """A search: how it is asked, and the model that scores moments."""

    finder: TrainedSearch
    model: Any
    text: Callable[[int], str]


class Clocks:
    """Milliseconds of functions, by name, in the call of a search: on the clock, and of processors."""

    def __init__(self) -> None:
        self.now: defaultdict[str, float] = defaultdict(float)
        self.busy: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def around(self, places: Sequence[tuple[str, Any, str]]) -> Iterator[None]:
        """Measure some functions for a while."""
        before = [(place, name, getattr(place, name)) for _, place, name in places]
        for (label, _, _), (place, name, function) in zip(places, before, strict=True):
            setattr(place, name, self._timed(label, function))
        try:
            yield
        finally:
            for place, name, function in before:
                setattr(place, name, function)

    def _timed(self, label: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def timed(*arguments: Any, **named: Any) -> Any:
            began, worked = time.perf_counter(), time.process_time()
            found = function(*arguments, **named)
            self.now[label] += 1000 * (time.perf_counter() - began)
            self.busy[label] += 1000 * (time.process_time() - worked)
            return found

        return timed


class Spent:
    """What queries took, and their parts."""

    def __init__(self) -> None:
        self.whole: defaultdict[str, list[float]] = defaultdict(list)
        self.parts: dict[str, defaultdict[str, list[float]]] = {
            kind: defaultdict(list) for kind in ("ms", "processor ms")
        }

    def told(self) -> dict[str, Any]:
        """Medians of queries and of their parts, and of the whole also others."""
        medians = {
            f"parts, {kind} (medians)": {
                label: round(float(np.median(all_)), 1) for label, all_ in some.items()
            }
            for kind, some in self.parts.items()
        }
        return {**{kind: percentiles(all_) for kind, all_ in self.whole.items()}, **medians}


def asked(searches: Mapping[str, Asked], queries: int) -> dict[str, Spent]:
    """Each query asked of every search, in turns."""
    clocks, spent = Clocks(), {name: Spent() for name in searches}
    own = [(LOCALIZER, search.model, "score_spans") for search in searches.values()]
    with clocks.around([*PARTS, *own]):
        for number in range(queries):
            for name, search in searches.items():
                clocks.now.clear()
                clocks.busy.clear()
                text = search.text(number)
                began, worked = time.perf_counter(), time.process_time()
                search.finder.find(text, K, None)
                spent[name].whole["ms"].append(1000 * (time.perf_counter() - began))
                spent[name].whole["processor ms"].append(1000 * (time.process_time() - worked))
                for kind, of_parts in (("ms", clocks.now), ("processor ms", clocks.busy)):
                    for label, milliseconds in of_parts.items():
                        spent[name].parts[kind][label].append(milliseconds)
    return spent


def needs(search: Asked, keys: int) -> dict[str, float]:
    """What a query has to compute and to read once: operations in products of matrices, and bytes.

    Bytes are those of the weights of all layers that are called, of the encodings that are unpacked (half
    precision, as they are kept) and, at most, of all of so many `keys` numbers of 8 bits that the index has.
    """
    weights: dict[int, int] = {}
    encodings: list[int] = []

    def seen(module: nn.Module, *_: Any) -> None:
        if not isinstance(module, nn.Embedding):  # of a table, only rows are read
            weights.update({id(one): one.nbytes for one in module.parameters(recurse=False)})

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def unpack(videos: Sequence[KeptVideo]) -> Any:
            encodings.extend(len(one.encoding) + len(one.packed) for one in videos)
            return function(videos)

        return unpack

    finder = search.finder
    models = {system.trained.model for system in (finder.localizer, finder.retriever) if system is not None}
    hooks = [one.register_forward_pre_hook(seen) for model in models for one in model.modules()]
    places: tuple[Any, ...] = (indexed_corpus, trained_search)
    for place in places:
        place.unpacked = counted(unpacked)
    try:
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            finder.find(search.text(0), K, None)
    finally:
        for place in places:
            place.unpacked = unpacked
        for hook in hooks:
            hook.remove()
    read = {"weights": sum(weights.values()), "encodings": sum(encodings), "keys, at most": keys}
    operations, bytes_ = float(counter.get_total_flops()), float(sum(read.values()))
    per_second, bytes_per_second = rates()
    return {
        "operations in products, millions": round(operations / 1e6, 1),
        **{f"MB of {name}": round(count / 1e6, 1) for name, count in read.items()},
        "ms of operations": round(1000 * operations / per_second, 1),
        "ms of bytes": round(1000 * bytes_ / bytes_per_second, 1),
    }


def rates() -> tuple[float, float]:
    """Operations of a large product and bytes of a long sum in a second of a processor."""
    left, right, many = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE), torch.randn(1 << 26)
    product = min(_seconds(lambda: left @ right) for _ in range(7))
    total = min(_seconds(lambda: many.sum()) for _ in range(7))
    return 2 * SIDE**3 / product, many.nbytes / total


def _seconds(work: Callable[[], Any]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def threads_tried(model: Any, trained: Trained, queries: int) -> dict[str, Any]:
    """Medians of the localizer alone on ten videos in memory, by the number of threads."""
    clips = trained.inputs.clips(
        [{name: columns.vectors for name, columns in _whole(number).items()} for number in range(TOP_VIDEOS)]
    )
    before, found, tokens = torch.get_num_threads(), {}, words(queries)
    with torch.no_grad():
        videos = model.encode_videos(clips)
        for threads in sorted({1, before}):
            torch.set_num_threads(threads)
            spent = []
            for number in range(queries):
                encoded = model.encode_queries(trained.inputs.queries(tokens.encode_tokens([str(number)])))
                pairs = encoded.take(torch.zeros(TOP_VIDEOS, dtype=torch.int64))
                began = time.perf_counter()
                model.score_spans(pairs, videos)
                spent.append(1000 * (time.perf_counter() - began))
            found[f"{threads} threads"] = percentiles(spent)
    torch.set_num_threads(before)
    return found


def _whole(number: int) -> dict[str, Any]:
    """A video's vectors with a row for every clip."""
    _, columns = video(number, np.arange(CLIPS, dtype=np.float64) * SECONDS)
    said = columns["subtitle"]
    rows = np.zeros((CLIPS, WIDTHS["subtitle"]), np.float32)
    rows[np.rint(said.start / SECONDS).astype(int)] = said.vectors
    return columns | {"subtitle": ClipColumns(columns["vision"].start, columns["vision"].end, None, rows)}


def prepared(store: Store, searches: Mapping[str, Asked]) -> dict[str, Any]:
    """Encode what is not yet encoded; what that took."""
    results: dict[str, Any] = {}
    known = {one.system for one in known_systems(store)}
    for name, search in searches.items():
        systems = [one for one in (search.finder.localizer, search.finder.retriever) if one is not None]
        if {one.trained.fingerprint for one in systems} <= known:
            continue
        before, began, worked = store.stats().bytes or 0, time.perf_counter(), time.process_time()
        search.finder.prepare()
        results[name] = {
            "encode_and_index_s": round(time.perf_counter() - began, 1),
            "encode_and_index_processor_s": round(time.process_time() - worked, 1),
            "keys_and_encodings_mb": round(((store.stats().bytes or 0) - before) / 1e6),
        }
    return results


def measure(store: Store, folder: Path, videos: int, queries: int) -> dict[str, Any]:
    """Both systems: encoded, asked in turns, and held against what they need."""
    retriever, localizer, whole = system("prem_retriever", 1), system("prem_localizer", 2), hero(folder)
    tokens = words(max(queries, 3))
    kept = IndexedSystem(store, open_model(localizer, retriever), tokens)
    prem = TrainedSearch(store, kept, IndexedSystem(store, open_model(retriever), tokens))
    alone = TrainedSearch(store, IndexedSystem(store, open_model(whole), tokens))
    searches = {"PREM": Asked(prem, localizer.model, str), "HERO": Asked(alone, whole.model, sentence)}
    results: dict[str, Any] = {"prepared": prepared(store, searches)}
    asked(searches, 3)  # what is loaded and compiled once
    rounds = {"asked first": asked(searches, queries), "asked again": asked(searches, queries)}
    widths = {"PREM": 2 * retriever.model.config.hidden, "HERO": HERO_WIDTH}
    for name, search in searches.items():
        results[name] = {when: spent[name].told() for when, spent in rounds.items()}
        needed = needs(search, videos * CLIPS * widths[name])
        least = needed["ms of operations"] + needed["ms of bytes"]
        busy = results[name]["asked again"]["processor ms"]["p50"]
        results[name]["needs"] = {**needed, "times_of_need": round(busy / least, 1)}
    for when in rounds:
        medians = [results[name][when][kind]["p50"] for kind in ("ms", "processor ms") for name in searches]
        results[f"HERO in PREM's time, {when}"] = {
            "ms": round(medians[1] / medians[0], 2),
            "processor ms": round(medians[3] / medians[2], 2),
        }
    results["PREM's localizer alone on ten videos in memory, ms"] = threads_tried(
        localizer.model, localizer, queries
    )
    results["peak memory, MB"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return results


def sentence(number: int) -> str:
    """A query of as many words as PREM's have."""
    return " ".join(map(str, np.random.default_rng(number).integers(4, WORDS, TOKENS)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--videos", type=int, default=1000)
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    store = Store.open(arguments.folder, create=True)
    if not store.streams:
        write(store, arguments.videos)
    report = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe_machine("lancedb", "torch", "numpy"),
        "videos": arguments.videos,
        "clips a video": CLIPS,
        "queries": arguments.queries,
        "results": measure(
            store, arguments.folder.with_suffix(".words"), arguments.videos, arguments.queries
        ),
    }
    text = json.dumps(report, indent=1)
    print(text)
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
