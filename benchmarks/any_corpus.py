"""How true the confidence is in corpora of any kind, put together by chance from real transcripts.

    WHENABOUTS_SHARED_DATA=... python -m benchmarks.any_corpus --folder /tmp/any
    python -m benchmarks.any_corpus --folder /tmp/any --learn     # and write confidence/learned.json
    python -m benchmarks.any_corpus --folder /tmp/any --only slides

Corpora of each kind in `KINDS` are drawn from `transcripts` and `transcripts_languages`: 1 recording to 53,
translations beside their originals, files that stand there twice, captions in two languages, text on the
screen beside the words. Each is indexed as a user indexes it and asked through the steps of a search:

- the titles of its recordings, with the recording there, and with it and all its copies and translations
  left out by a filter;
- titles of recordings of other sets, and sentences that have nothing to do with any of them.

The probability of every answer comes from curves fitted without its recording (ten folds of whole recordings;
a question without a recording is dealt out by itself). Intervals draw whole recordings. Vectors and corpora
are kept in `--folder`.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import math
import os
import random
import shutil
import textwrap
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.packed import packed_text, write_packed
from benchmarks.spoken_search import describe_machine
from numpy.typing import NDArray
from scipy.optimize import minimize

from whenabouts import Corpus
from whenabouts.calibration.measuring import calibrate
from whenabouts.confidence.common_words import is_term
from whenabouts.confidence.outcomes import TAKEN_OUT_WORTH
from whenabouts.confidence.probability import (
    NAMES,
    OWN,
    PROBABLE,
    RISING,
    Features,
    Probability,
    answer_for,
    from_json,
    learned,
    stands_out,
)
from whenabouts.encoders import TextEncoder, encode_passages, open_text_encoder
from whenabouts.index.filters import Filter
from whenabouts.index.lookup import words_of
from whenabouts.search.answer_probability import ProbableMoments
from whenabouts.search.moments import StreamAnswer
from whenabouts.search.phrases import parsed_query
from whenabouts.search.rank import judged, literal_in
from whenabouts.search.searcher import Searcher
from whenabouts.types import ScoredMoment
from whenabouts.video.cues import read_cue_file
from whenabouts_bench.harness.rejection import auroc, calibration_error

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("WHENABOUTS_SHARED_DATA", ROOT.parent / "shared" / "data"))
ENGLISH = SHARED / "transcripts"
LANGUAGES = SHARED / "transcripts_languages"
TOLERANCE = 45.0
RESULT = ROOT / "benchmarks" / "results" / "any_corpus.json"
ROWS = RESULT.with_name("any_corpus_rows.csv.xz")
LEARNED = ROOT / "packages" / "whenabouts" / "src" / "whenabouts" / "confidence" / "learned.json"
SEED, SAMPLES, FOLDS = 1, 1000, 10

# Not in the bank of the package; nothing is chosen on them.
UNRELATED = (
    "how to groom a poodle for a show",
    "the best season for planting tulips",
    "a recipe for plum dumplings",
    "which vaccines a kitten needs",
    "the height of mountains in Nepal",
    "folk dances from Bulgaria",
    "restoring a rusty cast iron pan",
    "a sailor's knots for beginners",
    "prices of second hand pianos",
    "why flamingos are pink",
    "the second wife of Henry the Eighth",
    "how to make a paper lantern",
    "a walk through the gardens of Kyoto",
    "exercises for tennis elbow",
    "the taste of goat cheese",
    "building a tree house for children",
    "the rules of water polo",
    "sewing a zip into a skirt",
    "the monks who brewed beer",
    "how to bathe a newborn baby",
    "a guided tour of the Louvre",
    "the fastest horse in the derby",
    "pruning roses in winter",
    "songs for a children's choir",
    "the best camping sites in Norway",
    "removing wallpaper with steam",
    "a short history of perfume",
    "which fish live in coral reefs",
    "how to dance the Viennese waltz",
    "the plot of a romantic comedy",
    "lifting heavy weights safely",
    "carving a pumpkin for Halloween",
    "the language of whales",
    "a barbecue with friends by the river",
    "cures for seasickness",
    "how the postal service began",
    "making soap at home",
    "the weather in Lisbon in May",
    "painting eggs for Easter",
    "the wool of alpacas",
)

Floats = NDArray[np.float64]


class KeptVectors:
    """A sentence encoder whose vectors of passages are kept in a file for the next corpus."""

    def __init__(self, encoder: TextEncoder, file: Path) -> None:
        self.name, self.dimension, self.fingerprint = encoder.name, encoder.dimension, encoder.fingerprint
        self._encoder, self._file = encoder, file
        self._rows: dict[str, NDArray[np.float32]] = {}
        self._fresh = False
        if file.exists():
            with np.load(file) as kept:
                self._rows = dict(zip(kept["names"].tolist(), kept["vectors"], strict=True))

    def encode_text(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Queries, as they are."""
        return self._encoder.encode_text(texts)

    def encode_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Passages, each encoded once."""
        names = [hashlib.blake2b(text.encode(), digest_size=12).hexdigest() for text in texts]
        fresh = {name: text for name, text in zip(names, texts, strict=True) if name not in self._rows}
        if fresh:
            vectors = encode_passages(self._encoder, list(fresh.values()))
            self._rows |= dict(zip(fresh, vectors, strict=True))
            self._fresh = True
        return np.stack([self._rows[name] for name in names])

    def keep(self) -> None:
        """Write what has come since the file was read."""
        if self._fresh:
            np.savez(self._file, names=list(self._rows), vectors=np.stack(list(self._rows.values())))
            self._fresh = False


# Corpora ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Item:
    """A file of a corpus: the captions of a recording, as they are or in another form.

    `form`: "en", "fr", "pt" (captions in that language), "copy" (the same file under another name), "recut"
    (the same words in other cues, half a second later) or "slides" (a video with slides, and the captions).
    """

    recording: str
    form: str = "en"

    @property
    def name(self) -> str:
        """The stem of its file; the recording stands before the last dot."""
        return f"{self.recording}.{self.form}"


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


SETS = {row["recording"]: row["set"] for row in read_lines(ENGLISH / "recordings.jsonl")}
TITLED = {row["recording"] for row in read_lines(ENGLISH / "queries.jsonl")}
TRANSLATED = {
    language: sorted(path.name.split(".")[0] for path in (LANGUAGES / language).glob("*.vtt"))
    for language in ("fr", "pt")
}


def some(names: Sequence[str], count: int, rng: random.Random) -> list[str]:
    return rng.sample(sorted(names), min(count, len(names)))


def english(count: int, rng: random.Random) -> list[Item]:
    """Recordings of all sets, half of them with titles at least."""
    titled = some(sorted(TITLED), math.ceil(count / 2), rng)
    others = some(sorted(set(SETS) - set(titled)), count - len(titled), rng)
    return [Item(name) for name in [*titled, *others]]


def translated(count: int, rng: random.Random) -> list[Item]:
    """Lectures with translations of some, in one or two languages, and as many talks."""
    lectures = [name for name in SETS if SETS[name] == "nyu"]
    own = some([name for name in lectures if name in TITLED], count // 2, rng)
    languages = rng.choice([("fr",), ("pt",), ("fr", "pt")])
    items = [Item(name) for name in own]
    for language in languages:
        there = TRANSLATED[language]
        beside = some([name for name in own if name in there], max(1, count // 6), rng)
        others = some([name for name in there if name not in beside], count // 8, rng)
        items += [Item(name, language) for name in [*beside, *others]]
    talks = [name for name in SETS if SETS[name] != "nyu"]
    return items + [Item(name) for name in some(talks, count - count // 2, rng)]


def doubled(count: int, rng: random.Random) -> list[Item]:
    """One recording in ten stands there twice, at least one of them as it is and one in other cues."""
    items = english(count, rng)
    twice = some([item.recording for item in items], max(2, round(0.1 * count)), rng)
    return items + [Item(name, ("copy", "recut")[place % 2]) for place, name in enumerate(twice)]


def french(count: int, rng: random.Random) -> list[Item]:
    """Lectures in French alone, or with some in Portuguese."""
    names = some(TRANSLATED["fr"], count, rng)
    more = some(TRANSLATED["pt"], rng.choice([0, count // 3]), rng)
    return [Item(name, "fr") for name in names] + [Item(name, "pt") for name in more]


def slides(count: int, rng: random.Random) -> list[Item]:
    """Recordings of which some are videos of slides, read with `--screen-text`."""
    items = english(count, rng)
    shown = some(
        [i.recording for i in items if i.recording in TITLED and SETS[i.recording] != "apollo13"], 3, rng
    )
    return [Item(i.recording, "slides") if i.recording in shown else i for i in items]


@dataclass(frozen=True)
class Kind:
    """Corpora of one kind: how they are drawn, and the sizes of those that are drawn."""

    draw: Callable[[int, random.Random], list[Item]]
    sizes: tuple[int, ...]


KINDS = {
    "1 recording": Kind(english, (1,) * 24),
    "3 recordings": Kind(english, (3,) * 16),
    "6 recordings": Kind(english, (6,) * 12),
    "17 recordings": Kind(english, (17,) * 5),
    "53 recordings": Kind(english, (53,) * 3),
    "translations": Kind(translated, (6,) * 4 + (17,) * 5 + (40,) * 3),
    "doubled": Kind(doubled, (3,) * 4 + (6,) * 4 + (17,) * 3 + (53,)),
    "French and Portuguese": Kind(french, (3,) * 4 + (6,) * 4 + (12,) * 3 + (20,) * 2),
    "slides": Kind(slides, (3, 6, 17) + (3,) * 2 + (6,) * 3 + (17,) * 2),
}


def write(item: Item, folder: Path, made: Path) -> Path:
    """Put the file of an item into a folder."""
    target = folder / f"{item.name}.vtt"
    if item.form in TRANSLATED:
        shutil.copy(LANGUAGES / item.form / f"{item.recording}.{item.form}.vtt", target)
    elif item.form == "recut":
        target.write_text(recut(ENGLISH / f"{item.recording}.vtt"), encoding="utf-8")
    else:
        shutil.copy(ENGLISH / f"{item.recording}.vtt", target)
    if item.form == "slides":
        shutil.copy(slide_show(item.recording, made), folder / f"{item.name}.mp4")
    return target


def recut(path: Path) -> str:
    """The words of a file in other cues: three of them as two, half a second later."""
    cues = read_cue_file(path).cues
    lines = ["WEBVTT", ""]
    for begin in range(0, len(cues), 3):
        group = cues[begin : begin + 3]
        words = " ".join(cue.text for cue in group).split()
        start, end = group[0].start + 0.5, max(cue.end for cue in group) + 0.5
        middle = (start + end) / 2
        half = len(words) // 2
        for own, since, until in ((words[:half], start, middle), (words[half:], middle, end)):
            if own and until > since:
                lines += [f"{stamp(since)} --> {stamp(until)}", " ".join(own), ""]
    return "\n".join(lines)


def stamp(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"{int(minutes // 60):02}:{int(minutes % 60):02}:{rest:06.3f}"


def slide_show(recording: str, folder: Path) -> Path:
    """A video as long as a recording, a frame a second: each slide has three sentences of two minutes."""
    import av
    from PIL import Image, ImageDraw, ImageFont

    path = folder / f"{recording}.mp4"
    if path.exists():
        return path
    cues = read_cue_file(ENGLISH / f"{recording}.vtt").cues
    font = ImageFont.load_default(26)
    rng = random.Random(recording)
    partial = path.with_suffix(".part.mp4")
    with av.open(str(partial), "w") as container:
        stream = container.add_stream("libx264", rate=1)
        stream.width, stream.height, stream.pix_fmt = 960, 540, "yuv420p"
        stream.options = {"preset": "ultrafast", "crf": "28"}
        for second in range(int(cues[-1].end) + 1):
            if second % 120 == 0:
                near = [c.text for c in cues if second <= c.start < second + 120 and len(c.text.split()) > 5]
                image = Image.new("RGB", (960, 540), (250, 250, 246))
                lines = [
                    line
                    for text in rng.sample(near, min(3, len(near)))
                    for line in textwrap.wrap(text, 60)[:3]
                ]
                for number, line in enumerate(lines):
                    ImageDraw.Draw(image).text((50, 60 + 45 * number), line, (25, 25, 30), font)
            frame = av.VideoFrame.from_ndarray(np.asarray(image), format="rgb24")
            frame.pts = second
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    partial.replace(path)
    return path


def opened(kind: str, number: int, folder: Path, encoder: KeptVectors, seed: int) -> Corpus:
    """A corpus of a kind, made if need be and measured anew."""
    own = KINDS[kind]
    rng = random.Random(f"{seed} {kind} {number}")
    items = own.draw(own.sizes[number], rng)
    place = folder / f"{seed}_{kind.replace(' ', '_')}_{number}"
    if not (place / "done").exists():
        shutil.rmtree(place, ignore_errors=True)
        (place / "files").mkdir(parents=True)
        for item in items:
            write(item, place / "files", folder)
        corpus = Corpus(place / "corpus", create=True, encoders=[encoder])
        corpus.add(place / "files", text=encoder, screen_text=kind == "slides")
        encoder.keep()
        (place / "done").touch()
        return corpus
    corpus = Corpus(place / "corpus", encoders=[encoder])
    calibrate(corpus, made=0)
    return corpus


# Asking -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A moment of the answer to a question; those behind the first only of titles.

    `kind`: "title", "name" (a rare word that is said; right where it is said), "taken out" (its recording and
    all copies left out), "other title" (of a set that is not there) or "unrelated". `right`: the moment is;
    `in_five`: one of the first five. `answer` is that of the search.
    """

    corpus: str
    kind: str
    number: int
    recording: str
    language: str
    rank: int
    right: bool
    in_five: bool
    is_name: bool
    is_literal: bool
    is_foreign: bool
    answer: str
    features: Features | None

    @property
    def group(self) -> str:
        """Rows of one group are never parted by a fold."""
        return self.recording or f"{self.kind} {self.number}"

    @property
    def corpus_kind(self) -> str:
        """The kind of its corpus."""
        return self.corpus.rpartition(" ")[0]


@dataclass(frozen=True)
class Title:
    """A title and the part of a recording that it was given to; seconds."""

    text: str
    recording: str
    start: float
    end: float
    language: str = "en"

    def is_right(self, scored: ScoredMoment, recording_of: Mapping[str, str]) -> bool:
        """Right recording in any form, and the middle inside the part with some tolerance."""
        inside = self.start - TOLERANCE <= scored.moment.middle <= self.end + TOLERANCE
        return recording_of[scored.video_id] == self.recording and inside


def titles() -> list[Title]:
    rows = [*read_lines(ENGLISH / "queries.jsonl"), *read_lines(LANGUAGES / "queries.jsonl")]
    return [
        Title(
            parsed_query(row["query"]).plain,
            row["recording"],
            float(row["start"]),
            float(row["end"]),
            row.get("language", "en"),
        )
        for row in rows
        if row.get("language", "en") in ("en", "fr", "pt")
    ]


def rare_words(corpus: Corpus) -> list[str]:
    """English words that are no common ones and are said in two passages of a corpus or more."""
    videos = sorted(record.video_id for record in corpus.records() if record.language in ("", "en"))
    counts: Counter[str] = Counter()
    for text in corpus.store.clips_of("subtitle", videos, vectors=False).text:
        counts.update(set(words_of(text)))
    return sorted(
        word for word, n in counts.items() if n >= 2 and len(word) > 3 and word.isalpha() and is_term([word])
    )


def ask(kind: str, number: int, corpus: Corpus, seed: int) -> Iterator[Row]:
    """All questions of one corpus."""
    records = corpus.records()
    recording_of = {record.video_id: Path(record.path).name.split(".")[0] for record in records}
    forms = {Path(record.path).name.split(".")[1] for record in records}
    spoken = {form if form in TRANSLATED else "en" for form in forms}
    sets = {SETS.get(name, "nyu") for name in recording_of.values()}
    asking, rng = (
        Asking(f"{kind} {number}", corpus.searcher()),
        random.Random(f"{seed} {kind} {number} asked"),
    )
    own = list(enumerate(titles()))
    for place, title in own:
        if title.language in spoken and title.recording in recording_of.values():
            yield from asking.title(place, title, recording_of)
    for place, word in enumerate(rng.sample(names := rare_words(corpus), min(10, len(names)))):
        yield asking.question("name", place, word)
    foreign = [
        (place, title)
        for place, title in own
        if title.language in spoken and SETS.get(title.recording, "nyu") not in sets
    ]
    for place, title in rng.sample(foreign, min(20, len(foreign))):
        yield asking.question("other title", place, title.text)
    for place, text in enumerate(UNRELATED if "en" in spoken else ()):
        yield asking.question("unrelated", place, text)


@dataclass(frozen=True)
class Asking:
    """A corpus that is asked questions, by the steps of a search."""

    corpus: str
    searcher: Searcher

    def title(self, number: int, title: Title, recording_of: Mapping[str, str]) -> Iterator[Row]:
        """The rows of a title: its first moments with its recording in, and the first with it taken out."""
        answers, found = self.searcher.answered(title.text)
        hits = [title.is_right(scored, recording_of) for scored in found.moments[:5]]
        answer, is_literal = self._answer(title.text, found, answers)
        about = (self.corpus, "title", number, title.recording, title.language)
        for rank, (right, own) in enumerate(zip(hits, found.features[:3] or [None], strict=False), 1):
            flags = (right, any(hits), found.is_name, is_literal, found.is_foreign)
            yield Row(*about, rank, *flags, answer, own)
        if not hits:
            yield Row(*about, 1, False, False, False, False, False, answer, None)
        others = tuple(video_id for video_id, name in recording_of.items() if name != title.recording)
        if others:
            row = self.question("taken out", number, title.text, Filter(within=others))
            yield replace(row, recording=title.recording, language=title.language)

    def question(self, kind: str, number: int, text: str, filter: Filter | None = None) -> Row:
        """The row of a question without a part of a recording."""
        answers, found = self.searcher.answered(text, self.searcher.retrieval.allowed(filter))
        answer, is_literal = self._answer(text, found, answers)
        right = kind == "name" and bool(found.moments) and found.moments[0].says_query
        first = found.features[0] if found.features else None
        flags = (right, right, found.is_name, is_literal, found.is_foreign)
        return Row(self.corpus, kind, number, "", "en", 1, *flags, answer, first)

    def _answer(self, text: str, found: ProbableMoments, answers: Sequence[StreamAnswer]) -> tuple[str, bool]:
        """The answer in one word, and whether it is never "no match"."""
        answer, _ = judged(text, found, answers, None, "")
        spared = bool(found.moments) and stands_out(found.moments[0].chance_percentile)
        return answer, spared or literal_in(text, answers) is not None


# Learning -----------------------------------------------------------------------------------------

OF_WORDS = ("spoken", "length", "nearer", "name")
OF_LIST = tuple(name for name in NAMES if name not in OF_WORDS)
RIDGE = 3.0
WORTH = {
    "title": 1.0,
    "taken out": TAKEN_OUT_WORTH,
    "other title": 0.3,
    "unrelated": 0.045,
    "name": 0.03,
}
"""How much a question of each kind counts in the fit; people mostly ask for what is there, in own words."""


def worth_of(rows: Sequence[Row]) -> Floats:
    """(N,) how much each row counts: corpora of all kinds have about as much to say together."""
    counts = Counter(row.corpus_kind for row in rows if row.kind == "title")
    usual = float(np.mean(list(counts.values())))
    return np.array([WORTH[row.kind] * usual / max(counts[row.corpus_kind], usual / 4) / 4 for row in rows])


def fit(rows: Sequence[Row]) -> dict[str, Any]:
    """The curves in the form of `learned.json`, from first moments; later ones only say how they fall off."""
    first = [row for row in rows if row.rank == 1 and row.features is not None]
    right = np.array([row.right for row in first], np.float64)
    in_five = np.array([row.in_five for row in first], np.float64)
    value: dict[str, Any] = {
        "words": _curve(first, right, NAMES),
        "others": _curve(first, right, OF_LIST),
        "words_five": _curve(first, in_five, NAMES),
        "others_five": _curve(first, in_five, OF_LIST),
        "later": 0.0,
        "gap": 0.0,
        "between": 0.5,
        "slopes": 0.3,
    }
    value["later"], value["gap"] = _fall(rows, from_json(value))
    value["between"] = _between(first, from_json(value))
    return value


def _curve(rows: Sequence[Row], right: Floats, names: Sequence[str]) -> dict[str, Any]:
    """Logistic regression with a ridge on standardised features, and the signs that `RISING` demands."""
    x = np.array([[getattr(row.features, name) for name in names] for row in rows])
    worth = worth_of(rows)
    centre, spread = np.average(x, axis=0, weights=worth), x.std(axis=0) + 1e-9
    z = (x - centre) / spread

    def loss(value: Floats) -> tuple[float, Floats]:
        odds = value[0] + z @ value[1:]
        slope = worth * (1 / (1 + np.exp(-odds)) - right)
        lost = float((worth * (np.logaddexp(0, odds) - right * odds)).sum())
        ridge = 0.5 * RIDGE * float(value[1:] @ value[1:])
        return lost + ridge, np.concatenate([[slope.sum()], z.T @ slope + RIDGE * value[1:]])

    limits = {1: (0.0, None), -1: (None, 0.0), 0: (None, None)}
    bounds = [limits[0], *(limits[RISING.get(name, 0)] for name in names)]
    value = minimize(loss, np.zeros(len(names) + 1), jac=True, bounds=bounds, method="L-BFGS-B").x
    weights = value[1:] / spread
    return {
        "intercept": round(float(value[0] - weights @ centre), 4),
        "weights": dict(zip(names, weights.round(4).tolist(), strict=True)),
    }


def _fall(rows: Sequence[Row], curves: Probability) -> tuple[float, float]:
    """By how much (log odds) a later moment is less likely than its own features say, and by unit of gap."""
    by_title: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        if row.kind == "title" and row.features is not None:
            by_title.setdefault((row.corpus, row.number), []).append(row)
    at, gap, right = [], [], []
    for first, *later in by_title.values():
        for row in later:
            assert row.features is not None and first.features is not None
            differs = sum(
                curves.words.weights[name] * (getattr(row.features, name) - getattr(first.features, name))
                for name in OWN
            )
            at.append(curves.words.log_odds_of(first.features) + differs)
            gap.append(first.features.surprise - row.features.surprise)
            right.append(row.right)
    odds, below, truth = np.array(at), np.array(gap), np.array(right, np.float64)

    def loss(value: Floats) -> float:
        final = odds - value[0] - value[1] * below
        return float((np.logaddexp(0, final) - truth * final).sum())

    value = minimize(loss, np.array([0.5, 0.1]), bounds=[(0.0, None), (0.0, None)]).x
    return round(float(value[0]), 3), round(float(value[1]), 3)


def _between(rows: Sequence[Row], curves: Probability) -> float:
    """The standard deviation (log odds) between recordings that questions do not account for.

    Method of moments: the scatter of each recording's shift beyond what its number of titles explains.
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.kind == "title":
            groups.setdefault(row.recording, []).append(row)
    shifts, noise, worth = [], [], []
    for own in groups.values():
        p = np.array([curves.of_first(row.features, has_words=True) for row in own if row.features])
        information = float((p * (1 - p)).sum())
        if information > 0.3:
            shifts.append((sum(row.right for row in own) - float(p.sum())) / information)
            noise.append(1 / information)
            worth.append(information)
    weights = np.array(worth) / np.sum(worth)
    extra = float(weights @ (np.array(shifts) ** 2 - np.array(noise)))
    return round(math.sqrt(max(0.01, extra)), 3)


# Judging ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judged:
    """First answers with the probabilities that curves without their recording give; columns (N,).

    `given`: that the first moment is right. `answer`: 1 match by probability, 2 match by a name that is said,
    0 unsure, -1 no match.
    """

    rows: Sequence[Row]
    given: Floats
    answer: NDArray[np.int64]

    @classmethod
    def left_out(cls, rows: Sequence[Row]) -> Judged:
        """By folds of whole recordings; questions without one are dealt out by themselves."""
        fold_of = folds_of(rows)
        first = [row for row in rows if row.rank == 1]
        folds = np.array([fold_of[row.group] for row in first])
        given, answer = np.zeros(len(first)), np.zeros(len(first), np.int64)
        for fold in range(FOLDS):
            curves = from_json(fit([row for row in rows if fold_of[row.group] != fold]))
            for place in np.flatnonzero(folds == fold).tolist():
                given[place], answer[place] = judge(first[place], curves)
        return cls(first, given, answer)

    def of(self, kept: Sequence[int]) -> Judged:
        """Some of the rows."""
        return Judged([self.rows[place] for place in kept], self.given[kept], self.answer[kept])

    def where(self, holds: Callable[[Row], bool]) -> Judged:
        """The rows for which a condition holds."""
        return self.of([place for place, row in enumerate(self.rows) if holds(row)])

    def column(self, name: str) -> NDArray[np.bool_]:
        """(N,) a flag of each row."""
        return np.array([getattr(row, name) for row in self.rows], bool)


def folds_of(rows: Sequence[Row]) -> dict[str, int]:
    """The fold of each group of rows: whole recordings, and questions without one by themselves."""
    groups = sorted({row.group for row in rows})
    random.Random(7).shuffle(groups)
    return {group: place % FOLDS for place, group in enumerate(groups)}


def judge(row: Row, curves: Probability) -> tuple[float, int]:
    """The probability and the answer of a first moment by some curves."""
    if row.features is None:
        return 0.0, -1
    given = curves.of_first(row.features, has_words=True)
    in_five = curves.of_five(row.features, has_words=True)
    answer = answer_for(
        given,
        has_moments=True,
        never_no_match=row.is_literal or row.is_foreign,
        is_name=row.is_name,
        in_five=in_five,
        thresholds=PROBABLE,
    )
    if answer == "match":
        return given, 2 if row.is_name else 1
    return given, 0 if answer == "unsure" else -1


def _weighed(measure: Callable[[Floats, NDArray[np.bool_], Floats], float], own: Judged) -> float:
    """A measure of what was stated and what was right, in which all questions count the same."""
    return measure(own.given, own.column("right"), np.ones(len(own.given)))


def _share(held: NDArray[np.bool_]) -> float:
    return float(held.mean()) if len(held) else math.nan


MEASURES: dict[str, tuple[str, Callable[[Judged], float]]] = {
    "right first": ("title", lambda own: _share(own.column("right"))),
    "stated": ("title", lambda own: float(own.given.mean())),
    "expected calibration error": ("title", lambda own: _weighed(calibration_error, own)),
    "AUROC": ("title", lambda own: _weighed(auroc, own)),
    "among five": ("title", lambda own: _share(own.column("in_five"))),
    "of these, no match": ("title", lambda own: _share(own.answer[own.column("in_five")] < 0)),
    "match": ("title", lambda own: _share(own.answer > 0)),
    "matches that are right": ("title", lambda own: _share(own.column("right")[own.answer > 0])),
    "matches by probability that are right": (
        "title",
        lambda own: _share(own.column("right")[own.answer == 1]),
    ),
    "matches by a name that are right": ("title", lambda own: _share(own.column("right")[own.answer == 2])),
    "taken out, match": ("taken out", lambda own: _share(own.answer > 0)),
    "taken out, no match": ("taken out", lambda own: _share(own.answer < 0)),
    "other titles, match": ("other title", lambda own: _share(own.answer > 0)),
    "unrelated, match": ("unrelated", lambda own: _share(own.answer > 0)),
    "unrelated, no match": ("unrelated", lambda own: _share(own.answer < 0)),
    "names that are said, match": ("name", lambda own: _share(own.answer > 0)),
    "names that are said, found": ("name", lambda own: _share(own.column("right"))),
}
"""What is measured of one kind of corpus, and on which questions; shares in [0, 1]."""


def measured(judged: Judged) -> dict[str, Any]:
    """Each measure with its interval (95 %), drawn by whole recordings, and how many questions it is of."""
    value: dict[str, Any] = {}
    for name, (kind, measure) in MEASURES.items():
        own = judged.where(lambda row, kind=kind: row.kind == kind)  # type: ignore[misc]
        if not own.rows:
            continue
        groups: dict[str, list[int]] = {}
        for place, row in enumerate(own.rows):
            groups.setdefault(row.group, []).append(place)
        members, rng = list(groups.values()), np.random.default_rng(3)
        drawn = []
        for _ in range(SAMPLES):
            chosen = rng.integers(0, len(members), len(members))
            drawn.append(measure(own.of([place for at in chosen.tolist() for place in members[at]])))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # no draw has such a question
            low, high = np.nanquantile(drawn, [0.025, 0.975])
        value[name] = [_rounded(each) for each in (measure(own), low, high)] + [len(own.rows)]
    return value


def _rounded(value: float) -> float | None:
    return None if math.isnan(value) else round(float(value), 4)


def table(result: Mapping[str, Any]) -> Iterator[str]:
    """The measures as rows, kinds of corpora as columns, in percent."""
    kinds = list(result)
    yield "| | " + " | ".join(kinds) + " |"
    yield "| --- |" + " --- |" * len(kinds)
    for name in MEASURES:
        cells = [_cell(result[kind].get(name)) for kind in kinds]
        yield f"| {name} | " + " | ".join(cells) + " |"


def _cell(value: Sequence[float | None] | None) -> str:
    if value is None or value[0] is None:
        return "–"
    middle, low, high = (math.nan if each is None else 100 * each for each in value[:3])
    return f"{middle:.1f} ({low:.0f} to {high:.0f})"


FLAGS = ("right", "in_five", "is_name", "is_literal", "is_foreign")


def keep_rows(rows: Sequence[Row]) -> None:
    """The rows as compressed columns, without any text; the same rows give the same bytes."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([*[field.name for field in fields(Row)][:-1], *NAMES])
    for row in rows:
        *about, own = (getattr(row, field.name) for field in fields(Row))
        numbers = [""] * len(NAMES) if own is None else [f"{getattr(own, name):.5g}" for name in NAMES]
        writer.writerow([*(int(value) if isinstance(value, bool) else value for value in about), *numbers])
    write_packed(ROWS, text.getvalue())


def read_rows() -> list[Row]:
    """Rows that were kept, for fitting anew without asking."""
    rows = []
    for line in csv.DictReader(packed_text(ROWS).splitlines()):
        own = Features(*(float(line[name]) for name in NAMES)) if line[NAMES[0]] else None
        right, in_five, is_name, is_literal, is_foreign = (line.get(name) == "1" for name in FLAGS)
        about = (line["corpus"], line["kind"], int(line["number"]), line["recording"], line["language"])
        rank = int(line["rank"])
        flags = (right, in_five, is_name, is_literal, is_foreign)
        rows.append(Row(*about, rank, *flags, line["answer"], own))
    return rows


def asked(folder: Path, kinds: Sequence[str]) -> Iterator[Row]:
    """The answers of all corpora of some kinds, which are made in a folder."""
    encoder = KeptVectors(open_text_encoder(), folder / "vectors.npz")
    for kind in kinds:
        for number, size in enumerate(KINDS[kind].sizes):
            began = time.perf_counter()
            rows = list(ask(kind, number, opened(kind, number, folder, encoder, SEED), SEED))
            yield from rows
            print(
                f"{kind} {number} ({size}): {len(rows)} rows, {time.perf_counter() - began:.0f} s", flush=True
            )


def main() -> None:
    """Ask, fit, judge, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, help="where corpora and vectors are kept; None: the kept rows")
    parser.add_argument("--only", nargs="+", choices=KINDS, help="kinds to ask anew; others keep their rows")
    parser.add_argument("--learn", action="store_true", help="write the curves that the package ships")
    options = parser.parse_args()
    anew = options.only or list(KINDS)
    if options.folder is None:
        rows = read_rows()
    else:
        kept = [row for row in read_rows() if row.corpus_kind not in anew] if options.only else []
        rows = kept + list(asked(options.folder, anew))
    if options.folder is not None:
        keep_rows(rows)
    judged = Judged.left_out(rows)
    kinds = {kind: judged.where(lambda row, kind=kind: row.corpus_kind == kind) for kind in KINDS}  # type: ignore[misc]
    result = {kind: measured(own) for kind, own in {**kinds, "all": judged}.items()}
    learned_now = {"date": time.strftime("%Y-%m-%d"), "fitted_on": list(KINDS), **fit(rows)}
    # `languages.py` and `likeness.py` learn these.
    learned_now |= {key: learned()[key] for key in ("across", "alike")}
    if options.learn:
        LEARNED.write_text(json.dumps(learned_now, indent=1) + "\n", encoding="utf-8")
    about = {"date": learned_now["date"], "machine": describe_machine()}
    RESULT.write_text(json.dumps({**about, "kinds": result, "learned": learned_now}, indent=1) + "\n")
    print("\n".join(table(result)))


if __name__ == "__main__":
    main()
