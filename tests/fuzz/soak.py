"""A server under a bound on its memory, asked for hours: does it, with all it starts, stay below?

    python -m tests.fuzz.soak --minutes 120 --out benchmarks/results/soak.json

The corpus holds the samples, files mutated from them, more of these every quarter of an hour, and pictures of
4K and 8K. The bound is the least that the server accepts, and a tenth. One client searches, lists, exports,
looks into files, and has thumbnails and clips made, by chance and no faster than the server's processes take
`--share` of a core. The memory of all of the server's processes is added up every two seconds, and what each
had at most since the last look counts, so that no short peak is missed.
"""

from __future__ import annotations

import argparse
import csv
import http.client
import json
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import numpy as np
from benchmarks.machine import describe_machine
from benchmarks.serving import cpu_seconds, family
from tests.fuzz.bytes import damaged
from tests.fuzz.media import SAMPLES

from whenabouts.confidence.background import SENTENCES
from whenabouts.export import format_names

_LOOK_SECONDS, _MORE_FILES_SECONDS = 2.0, 900.0
_RUN = (sys.executable, "-m", "whenabouts", "--no-config")


def make_large(folder: Path) -> None:
    """Videos of 4K and 8K: the pictures that a decoding process needs most memory for."""
    import av

    for width, height, frames in ((3840, 2160, 30), (7680, 4320, 6)):
        row = (
            np.arange(width, dtype=np.uint16)[None, :, None]
            + np.arange(height, dtype=np.uint16)[:, None, None]
        )
        picture = (np.repeat(row, 3, 2) % 256).astype(np.uint8)
        with av.open(str(folder / f"large{height}.mp4"), "w") as out:
            stream = out.add_stream("libx264", rate=10)
            stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
            stream.options = {"preset": "ultrafast"}
            for _ in range(frames):
                out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            out.mux(stream.encode(None))


def mutate(folder: Path, rng: random.Random, count: int) -> None:
    """`count` more files mutated from the samples, each with captions that may be mutated, too."""
    media = [path for path in sorted(SAMPLES.iterdir()) if path.suffix in (".mp4", ".webm", ".mkv", ".mp3")]
    for _ in range(count):
        original, other = rng.choice(media), rng.choice(media)
        data, way = damaged(original.read_bytes(), rng, other.read_bytes())
        name = f"{way}-{rng.getrandbits(32):08x}"
        (folder / f"{name}{original.suffix}").write_bytes(data)
        captions = original.with_suffix(".vtt")
        if captions.exists():
            words, _ = (
                damaged(captions.read_bytes(), rng) if rng.random() < 0.5 else (captions.read_bytes(), "")
            )
            (folder / f"{name}.vtt").write_bytes(words)


def index(folder: Path, corpus: Path) -> None:
    """Take in what is new; files that cannot be read are no failure here."""
    subprocess.run([*_RUN, "index", str(folder), "--corpus", str(corpus)], capture_output=True, check=False)


def least_memory(corpus: Path, cache: Path) -> int:
    """The least megabytes that the server accepts: what it asks for where it is given one."""
    command = [*_RUN, "serve", "--corpus", str(corpus), "--cache", str(cache), "--port", "0", "--memory", "1"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"needs (\d+) MB or more", said.stderr)
    assert said.returncode == 2 and found is not None, said.stderr
    return int(found.group(1))


@contextmanager
def serving(corpus: Path, cache: Path, megabytes: int) -> Iterator[tuple[int, int]]:
    """A server: the id of its process, and its port."""
    command = [*_RUN, "serve", "--corpus", str(corpus), "--cache", str(cache), "--port", "0"]
    command += ["--memory", str(megabytes), "--cache-size", "64"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r":(\d+)/", process.stdout.readline())
        assert found is not None, "the server did not start"
        try:
            yield process.pid, int(found.group(1))
        finally:
            process.terminate()
            assert process.wait(120) == 0, "the server did not end well"


def peak_megabytes(process: int) -> float:
    """The most memory that a process had since this was asked last; 0 where it has ended."""
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        peak = next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))
        Path(f"/proc/{process}/clear_refs").write_text("5")
        return peak
    return 0.0


def watch(process: int, until: float, rows: list[tuple[float, float, int]]) -> None:
    """Add (seconds, megabytes, processes) to rows until a time."""
    began = time.monotonic()
    while time.monotonic() < until:
        with suppress(OSError):
            peaks = [peak_megabytes(pid) for pid in family(process)]
            rows.append((round(time.monotonic() - began, 1), round(sum(peaks), 1), len(peaks)))
        time.sleep(_LOOK_SECONDS)


class Client:
    """Asks by chance, and counts what is answered to what."""

    def __init__(self, port: int, rng: random.Random) -> None:
        self._port, self._rng = port, rng
        self.answers: Counter[str] = Counter()
        self._videos: list[tuple[str, float, bool]] = []

    def ask(self) -> None:
        """One request."""
        kinds: list[tuple[str, Callable[[], str]]] = [
            ("search", self._search), ("thumbnail", self._thumbnail), ("clip", self._clip),
            ("export", self._export), ("video", self._video), ("curves", self._curves),
        ]  # fmt: skip
        kind, target = self._rng.choices(kinds, (6, 6, 1, 2, 2, 2))[0]
        status, body = self.get(target())
        code = json.loads(body)["error"]["code"] if status >= 400 else ""
        self.answers[f"{kind} {status} {code}".strip()] += 1

    def get(self, target: str) -> tuple[int, bytes]:
        """Status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=900)
        try:
            connection.request("GET", target)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def look(self) -> None:
        """Learn which videos there are now."""
        token: str | None = ""
        videos: list[tuple[str, float, bool]] = []
        while token is not None:
            status, body = self.get(f"/api/videos?page_token={token}" if token else "/api/videos")
            if status != 200:
                return
            answer = json.loads(body)
            videos += [(v["video_id"], v["duration"] or 0.0, v["kind"] == "media") for v in answer["data"]]
            token = answer["page_info"]["next_page_token"]
        self._videos = videos

    def _chosen(self) -> tuple[str, float]:
        video, length, _ = self._rng.choice([one for one in self._videos if one[2]])
        return quote(video, safe=""), length

    def _query(self) -> str:
        return quote(f"{self._rng.choice(SENTENCES)} {self._rng.randrange(1000)}")

    def _search(self) -> str:
        more = self._rng.choice(("", "&k=1000", "&all=true", "&stream=subtitle", "&page_limit=50"))
        return f"/api/search?query={self._query()}{more}"

    def _thumbnail(self) -> str:
        video, length = self._chosen()
        at, width = self._rng.uniform(0, length), self._rng.choice((160, 320, 1280))
        return f"/api/videos/{video}/thumbnail?at={at:.2f}&width={width}"

    def _clip(self) -> str:
        video, length = self._chosen()
        start = self._rng.uniform(0, length)
        return f"/api/videos/{video}/clip?start={start:.3f}&end={start + self._rng.uniform(0.1, 20):.3f}"

    def _export(self) -> str:
        return f"/api/export?format={self._rng.choice(format_names())}&query={self._query()}"

    def _video(self) -> str:
        return f"/api/videos/{self._chosen()[0]}"

    def _curves(self) -> str:
        return f"/api/videos/{self._chosen()[0]}/curves?query={self._query()}"


def asked(process: int, client: Client, until: float, share: float, more: Callable[[], None]) -> None:
    """Ask until a time, `more` files coming now and then."""
    began, used, files_at = time.monotonic(), cpu_seconds(process), time.monotonic()
    client.look()
    while time.monotonic() < until:
        if time.monotonic() - files_at > _MORE_FILES_SECONDS:
            files_at = time.monotonic()
            more()
            client.look()
        client.ask()
        while cpu_seconds(process) - used > share * (time.monotonic() - began) and time.monotonic() < until:
            time.sleep(0.2)


def soak(folder: Path, options: argparse.Namespace) -> dict[str, object]:
    """All of it, measured."""
    rng, videos, corpus = random.Random(options.seed), folder / "videos", folder / "soak.corpus"
    videos.mkdir()
    for path in SAMPLES.iterdir():
        (videos / path.name).write_bytes(path.read_bytes())
    make_large(videos)

    def more(count: int = 10) -> None:
        mutate(videos, rng, count)
        index(videos, corpus)

    more(options.files)
    bound = round(1.1 * least_memory(corpus, folder / "cache"))
    rows: list[tuple[float, float, int]] = []
    with serving(corpus, folder / "cache", bound) as (process, port):
        until, client = time.monotonic() + 60 * options.minutes, Client(port, rng)
        watching = threading.Thread(target=watch, args=(process, until, rows))
        watching.start()
        began = time.monotonic()
        asked(process, client, until, options.share, more)
        seconds, used = time.monotonic() - began, cpu_seconds(process)
        watching.join()
    if options.csv:
        with options.csv.open("w", newline="") as file:
            csv.writer(file).writerows([("seconds", "megabytes", "processes"), *rows])
    megabytes = np.array([row[1] for row in rows])
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": describe_machine("lancedb", "pyarrow", "numpy"),
        "minutes": round(seconds / 60, 1),
        "videos": len(client._videos),
        "bound_mb": bound,
        "most_mb": round(float(megabytes.max()), 1),
        "mean_mb": round(float(megabytes.mean()), 1),
        "looks": len(rows),
        "looks_above_the_bound": int((megabytes > bound).sum()),
        "share_of_a_core": round(used / seconds, 2),
        "requests": sum(client.answers.values()),
        "answers": dict(sorted(client.answers.items())),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--files", type=int, default=150, help="mutated files at the start")
    parser.add_argument("--share", type=float, default=0.3, help="of a core that the server may take")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="whenabouts-soak-") as folder:
        result = soak(Path(folder), options)
    text = json.dumps(result, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")
    return 1 if result["looks_above_the_bound"] else 0


if __name__ == "__main__":
    sys.exit(main())
