"""Measure what one list of several streams finds, and how sure it is, on simulated films.

    python -m benchmarks.drawn_up DATA FOLDER OUT.json [--choose] [--corpora 4]

The films are those of `fusion.py` with other seeds. They are never rendered, so that many titles can be
asked: their speech, texts, pictures and sounds are put into the corpus as the streams would store them.
Slides, captions and signs are stored as if read without errors, as docs/screen-text.md measures. Pictures
(captions of Charades-STA) and sounds are simulated (`planted.py`). `--choose` takes the half of the
recordings, fonts and sentences on which settings may be chosen.

For each kind of query it measures how often the first moment and one of the first five are right, and the
stated confidence of the first: in all streams and in the stream with the answer, each also ordered by
surprise without the discount for words that are not said. Intervals (95 %) resample whole titles, or whole
films for queries that are not titles. `all less` has the paired differences of all streams from each other
way. FOLDER is made anew for each corpus; OUT.rows.json has all answers.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from benchmarks import fusion, screen_text
from benchmarks.fusion import STREAM_OF, Asked, Maker, Part, rank_of
from benchmarks.machine import describe_machine
from benchmarks.planted import OTHER_SOUNDS, SOUND_SECONDS, SOUNDS, Planted
from numpy.typing import NDArray

from whenabouts import Corpus
from whenabouts.calibration.measuring import calibrate
from whenabouts.confidence.probability import PROBABLE
from whenabouts.encoders import open_text_encoder
from whenabouts.index.reading import ReadVideo
from whenabouts.index.records import ClipColumns, StreamInfo, VideoRecord
from whenabouts.index.stream import Reads, StreamRun
from whenabouts.search.answer_probability import Unsaid
from whenabouts.search.moments import StreamAnswer
from whenabouts.search.rank import rank
from whenabouts.search.searcher import Searcher
from whenabouts.streams import stream
from whenabouts.video.cue import Cue
from whenabouts.video.text_reader import TextLine
from whenabouts_bench.harness.rejection import calibration_error

LENGTH = 2 * fusion.PART_SECONDS
LOOK_SECONDS = 2.0
SIZES = (8, 16, 24)
"""Films of a corpus, in turn."""
ALL, BY_SURPRISE, ALONE, ALONE_BY_SURPRISE = WAYS = (
    "all streams",
    "all streams, by surprise alone",
    "the stream that knows",
    "the stream that knows, by surprise alone",
)


class Known(Planted):
    """Knows what is planted, by numbers in place of pictures or sounds; and sentences as MiniLM does."""

    sampling_rate, longest_seconds, image_size = 16_000, 10.0, 96

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = self.fingerprint = name

    def clips(self, seconds: float, events: Sequence[tuple[str, float, float]], seed: str) -> ClipColumns:
        """Clips of `seconds` of a film; those that an event lasts through know it."""
        starts = np.arange(0, LENGTH, seconds)
        rows = []
        for start in starts.tolist():
            middle = start + seconds / 2
            known = [text for text, since, until in events if since <= middle <= until]
            rows.append(self.vector_of(known, str(known) if known else f"{seed} {start}"))
        return ClipColumns(starts, starts + seconds, [""] * len(starts), np.stack(rows))


class Planner(Maker):
    """Draws up films without rendering them."""

    def __init__(self, data: Path, *, seed: int, choose: bool) -> None:
        self.folder, self.rng = Path(), random.Random(f"drawn up {seed} {choose}")
        self.fonts = screen_text.OTHER_FONTS if choose else screen_text.FONTS
        self.footage = []
        self.parts = fusion.parts_of(data, choose=choose)
        self.recordings = sorted(self.parts)
        self.rng.shuffle(self.recordings)
        self.asked, self.heard, self.said, self.shown = [], [], {}, {}
        self.sounds = OTHER_SOUNDS if choose else SOUNDS

    def _render(self, path: Path, drawers: Sequence[Any]) -> None:
        """Nothing is rendered."""

    def _words(
        self, name: str, pair: Sequence[Part], silent: Path, path: Path, *, is_spoken: bool
    ) -> list[Cue]:
        return [
            Cue(cue.start + at * fusion.PART_SECONDS, cue.end + at * fusion.PART_SECONDS, cue.text)
            for at, part in enumerate(pair)
            for cue in part.cues
        ]


def events_of(films: Sequence[str], texts: Sequence[str], kind: str, rng: random.Random) -> list[Asked]:
    """One event for each text, in a film of its own where there are enough."""
    events = []
    for number, text in enumerate(texts):
        at = rng.uniform(2, LENGTH - SOUND_SECONDS - 2)
        events.append(Asked(kind, text, ((films[number % len(films)], at, at + SOUND_SECONDS),)))
    return events


def read_texts(shown: Sequence[screen_text.Shown]) -> SimpleNamespace:
    """What a reader would have read of a film, every two seconds."""
    read = list[tuple[int, tuple[TextLine, ...]]]()
    for number in range(int(LENGTH / LOOK_SECONDS)):
        at = number * LOOK_SECONDS
        texts = [line for text in shown if text.start <= at < text.end for line in text.lines]
        lines = tuple(
            TextLine(text, 0.98, (0.06, 0.1 + 0.09 * row, 0.9, 0.15 + 0.09 * row))
            for row, text in enumerate(texts)
        )
        if not read or read[-1][1] != lines:
            read.append((number, lines))
    return SimpleNamespace(read=tuple(read), last=int(LENGTH / LOOK_SECONDS) - 1)


def drawn_up(data: Path, folder: Path, seed: int, *, choose: bool) -> tuple[Corpus, list[Asked]]:
    """A corpus of films that were drawn up, calibrated, and what it is asked."""
    planner = Planner(data, seed=seed, choose=choose)
    planner.make(SIZES[seed % len(SIZES)])
    films = sorted(planner.said)
    captions = seen_of(data, choose=choose)
    events = {
        "vision": events_of(films, planner.rng.sample(captions, 12), "seen", planner.rng),
        "sound": events_of(films, planner.rng.sample(list(planner.sounds), 12), "heard", planner.rng),
    }
    shutil.rmtree(folder, ignore_errors=True)
    corpus = Corpus(folder, create=True)
    text = open_text_encoder()
    runs = {
        name: StreamRun(
            stream(name),
            StreamInfo(name, encoder.name, encoder.fingerprint, 384, settings),
            encoder,
            Reads(),
        )
        for name, encoder, settings in (
            ("subtitle", text, {}),
            ("screen_text", text, {"frame_seconds": LOOK_SECONDS, "parts_of_words": True}),
            ("vision", Known("planted eyes"), {"clip_seconds": 1.0}),
            ("sound", Known("planted ears"), {"clip_seconds": 2.0, "window_seconds": 4.0}),
        )
    }
    for run in runs.values():
        corpus.store.add_stream(run.info)
    corpus.store.put_videos([_entry(film, planner, events, runs, seed) for film in films])
    for name in ("vision", "sound"):
        corpus.encoders.adopt(runs[name].encoder, corpus.store.streams[name])
    calibrate(corpus, made=0)
    return corpus, [*planner.asked, *planner.queries(), *events["vision"], *events["sound"]]


def _entry(
    film: str,
    planner: Planner,
    events: Mapping[str, Sequence[Asked]],
    runs: Mapping[str, StreamRun],
    seed: int,
) -> tuple[VideoRecord, dict[str, ClipColumns]]:
    record = VideoRecord(
        film, f"/{film}.mp4", duration=LENGTH, streams={n: r.fingerprint for n, r in runs.items()},
        words="subtitle", has_picture=True,
    )  # fmt: skip
    video = ReadVideo(record, LENGTH, planner.said[film])
    columns = {
        name: runs[name].stream.clips(
            video, [read_texts(planner.shown[film])] * (name == "screen_text"), runs[name]
        )
        for name in ("subtitle", "screen_text")
    }
    for name, own in events.items():
        here = [(event.text, *event.places[0][1:]) for event in own if event.film == film]
        seconds = float(runs[name].info.settings["clip_seconds"])
        columns[name] = runs[name].encoder.clips(seconds, here, f"{seed} {name} {film}")
    return record, columns


def seen_of(data: Path, *, choose: bool) -> list[str]:
    """Sentences about what is seen: captions of Charades-STA."""
    path = data / "annotations" / "charades_sta" / "charades_test.json"
    videos = json.loads(path.read_text(encoding="utf-8"))
    captions = sorted({text.strip() for video in videos.values() for text in video["sentences"]})
    return captions[choose::2]


def rows_of(corpus: Corpus, asked: Sequence[Asked], number: int) -> list[dict[str, Any]]:
    """A row for each question: what all streams and each alone answer, and whether it is right."""
    searcher = corpus.searcher()
    stems = {record.video_id: Path(record.path).stem for record in corpus.records()}
    texts = list(fusion.texts_of(corpus, stems))
    rows = []
    for query in asked:
        if fusion.is_elsewhere(query, texts):
            continue
        answers = searcher.find_all(query.text)
        known_by = STREAM_OF[query.kind.split(",")[0]]
        alone = [answer for answer in answers if answer.stream == known_by]
        ways = {
            ALL: (answers, searcher.ranking.unsaid(query.text, answers)),
            BY_SURPRISE: (answers, {}),
            ALONE: (alone, searcher.ranking.unsaid(query.text, alone)),
            ALONE_BY_SURPRISE: (alone, {}),
        }
        row: dict[str, Any] = {"corpus": number, "kind": query.kind, "film": query.film, "text": query.text}
        row["ways"] = {name: _way(searcher, query, *way, stems) for name, way in ways.items()}
        rows.append(row)
    return rows


def _way(
    searcher: Searcher,
    query: Asked,
    answers: Sequence[StreamAnswer],
    unsaid: Unsaid,
    stems: dict[str, str],
) -> dict[str, Any]:
    """The stated confidence of the first moment and of the first five, and the rank of the first hit."""
    ranked = rank(answers, searcher.measured.chance, unsaid)
    probable = searcher.ranking.with_probabilities(query.text, ranked, answers, 10)
    moments = probable.moments
    return {
        "stated": round((moments[0].confidence or 0.0) if moments else 0.0, 4),
        "in five": round(probable.in_five or 0.0, 4),
        "is_name": probable.is_name,
        "rank": rank_of(query, moments, stems),
    }


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Hits and confidence for each kind of query and way of searching, and the differences of all streams."""
    value: dict[str, Any] = {"corpora": len({row["corpus"] for row in rows})}
    for kind in (*fusion.KINDS, "every"):
        own = [row for row in rows if kind in (row["kind"], "every")]
        drawn_by = [
            row["text"] if "title" in row["kind"] else f"{row['corpus']} {row['film']}" for row in own
        ]
        of_way = {way: [row["ways"][way] for row in own] for way in WAYS}
        value[kind] = {"queries": len(own), **{way: _told(some, drawn_by) for way, some in of_way.items()}}
        value[kind]["all less"] = {
            way: {
                f"hit@{k}": fusion.interval(_hits(of_way[ALL], k) - _hits(of_way[way], k), drawn_by)
                for k in (1, 5)
            }
            for way in WAYS[1:]
        }
    return value


def _hits(ways: Sequence[dict[str, Any]], k: int) -> NDArray[np.float64]:
    return np.array([way["rank"] <= k for way in ways], float)


def _told(ways: Sequence[dict[str, Any]], drawn_by: Sequence[str]) -> dict[str, Any]:
    stated, right = np.array([way["stated"] for way in ways]), _hits(ways, 1)
    is_match = (stated >= PROBABLE.match_at) | np.array([way["is_name"] for way in ways])
    return {
        "hit@1": fusion.interval(right, drawn_by),
        "hit@5": fusion.interval(_hits(ways, 5), drawn_by),
        "stated": fusion.interval(stated, drawn_by),
        "stated less right": fusion.interval(stated - right, drawn_by),
        "calibration error": round(100 * calibration_error(stated, right > 0, np.ones(len(right))), 1),
        "match": [int(is_match.sum()), int(right[is_match].sum())],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--corpora", type=int, default=4)
    parser.add_argument("--choose", action="store_true")
    options = parser.parse_args()
    kept, rows = options.out.with_suffix(".rows.json"), list[dict[str, Any]]()
    for seed in range(options.corpora):
        corpus, asked = drawn_up(options.data, options.folder, seed, choose=options.choose)
        rows += rows_of(corpus, asked, seed)
        kept.write_text(json.dumps(rows), encoding="utf-8")
        print(seed, len(rows), flush=True)
    told = {"date": time.strftime("%Y-%m-%d"), "machine": describe_machine("lancedb"), **summary(rows)}
    options.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
