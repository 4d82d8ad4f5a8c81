"""One list of all streams, measured: each stream alone, every pair, all; said, shown and seen.

    python -m benchmarks.fusion make DATA FOLDER [--films 20] [--choose]
    python -m benchmarks.fusion index DATA FOLDER [--choose]
    python -m benchmarks.fusion measure DATA FOLDER OUT.json [--choose]

DATA is the folder of `real_video` and `transcripts`. `make` renders films of two minutes: two titled parts of
a recording are said, a minute of each (every other film has them as subtitles, every other read aloud by
flite and recognised by the packaged tiny.en), over real footage with slides, captions, lower thirds and
signs; and
adds films of `real_video` as they are. `index` takes all with every stream, once. `--choose` makes others: of
other recordings, with other fonts, footage and seeds; settings were chosen there.

Queries and their truth:
- said, by title: the title that people gave to a part; the minute in which it is said.
- said, words: three words of a sentence that stand nowhere else.
- shown, words; shown, part: three words of a slide or caption; four signs of a number plate.
- shown, by title: the heading of another recording's part of which sentences are written; asked once, and
  true wherever sentences of that part stand on a slide or in a caption.
- seen: `queries.jsonl` of `real_video`; heard: sounds in the films that have subtitles beside them. Pictures
  and sounds are encoded by `planted.py`, which knows them under noise and says nothing of real models.

Titles all of whose words are said or written together somewhere else as well are left out, and counted.
A hit: the right film, and at least half of the shorter span is shared. Intervals (95 %) draw whole films.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import random
import re
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import screen_text
from benchmarks.machine import describe_machine
from benchmarks.planted import (
    NOISE,
    OTHER_SOUNDS,
    SOUND_SECONDS,
    SOUNDS,
    PlantedEars,
    PlantedEyes,
    planted_sound,
    queries_seen,
)
from benchmarks.planted import RATE as RATE_OF_SOUND
from benchmarks.screen_text import FILMS, FONTS, OTHER_FILMS, OTHER_FONTS, RATE, Drawer, Style, Words
from benchmarks.speech import GAP_SECONDS, speak, stamp, write_sound
from numpy.typing import NDArray

from whenabouts import Corpus
from whenabouts.index.lookup import query_words, says
from whenabouts.search.moments import StreamAnswer
from whenabouts.search.searcher import Searcher
from whenabouts.types import ScoredMoment
from whenabouts.video.cue import Cue
from whenabouts.video.cues import read_cue_file

PART_SECONDS, SEGMENT = 60.0, screen_text.SECONDS
SIZE = (640, 360)
STREAMS = ("subtitle", "screen_text", "vision", "sound")
STYLES = (
    Style("slide", SIZE, 0.05, 30),
    Style("slide", SIZE, 0.05, 30),
    Style("caption", SIZE, 0.055, 30),
    Style("lower third", SIZE, 0.05, 30),
    Style("sign", SIZE, 0.07, 28, speed=0.03),
)
UNQUERIED = ("flipping_pancake.mkv", "makeup_mpeg4.avi", "basketball.mp4")
STREAM_OF = {"said": "subtitle", "shown": "screen_text", "seen": "vision", "heard": "sound"}
KINDS = ("said, by title", "said, words", "shown, words", "shown, part", "shown, by title", "seen", "heard")


# Films --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A query of some kind, and where its answers are: film, start, end."""

    kind: str
    text: str
    places: tuple[tuple[str, float, float], ...]

    @property
    def film(self) -> str:
        """The film of its first place."""
        return self.places[0][0]

    def is_at(self, film: str, start: float, end: float) -> bool:
        """Whether a span shares time with one of its places."""
        return any(film == own and start < until and end > since for own, since, until in self.places)


@dataclass(frozen=True)
class Part:
    """A titled part of a recording: a minute of it."""

    title: str
    recording: str
    cues: tuple[Cue, ...]


def parts_of(data: Path, *, choose: bool) -> dict[str, list[Part]]:
    """The parts of the recordings of one half, by recording: the first minute of each."""
    lines = (data / "transcripts" / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    parts: defaultdict[str, list[Part]] = defaultdict(list)
    rows = [json.loads(line) for line in lines]
    names = sorted({row["recording"] for row in rows if not row["recording"].startswith("apollo13")})
    half = set(names[choose::2])
    for row in rows:
        if row["recording"] not in half or row["end"] - row["start"] < PART_SECONDS:
            continue
        whole = read_cue_file(data / "transcripts" / f"{row['recording']}.vtt").cues
        own = [
            Cue(c.start - row["start"], c.end - row["start"], re.sub(r"^[\w .'-]{1,40}: ", "", c.text))
            for c in whole
            if row["start"] <= c.start and c.end <= row["start"] + PART_SECONDS
        ]
        if sum(len(cue.text.split()) for cue in own) >= 80:
            parts[row["recording"]].append(Part(row["query"], row["recording"], tuple(own)))
    return {name: own for name, own in parts.items() if len(own) >= 2}


def sentences_of(part: Part) -> list[str]:
    words = " ".join(cue.text for cue in part.cues)
    return [text for text in re.split(r"(?<=[.?!]) ", words) if 20 <= len(text) <= 90 and text.isascii()]


class Maker:
    """Renders the films of one half."""

    def __init__(self, data: Path, folder: Path, *, choose: bool) -> None:
        self.folder, self.rng = folder, random.Random(f"fusion {choose}")
        names, self.fonts = (OTHER_FILMS, OTHER_FONTS) if choose else (FILMS, FONTS)
        self.footage = [screen_text.background(data / "real_video" / name, SIZE) for name in names]
        parts = parts_of(data, choose=choose)
        recordings = sorted(parts)
        self.rng.shuffle(recordings)
        self.parts, self.recordings = parts, recordings
        self.asked: list[Asked] = []
        self.heard: list[Asked] = []
        self.sounds, self.places = OTHER_SOUNDS if choose else SOUNDS, np.random.default_rng(choose)
        self.said: dict[str, list[Cue]] = {}
        self.shown: dict[str, list[screen_text.Shown]] = {}

    def make(self, count: int) -> None:
        """`count` films; recordings that none of them is of give what else is written in them."""
        # Every other recording is only read from slides.
        pairs = [
            (number, pair)
            for number, name in enumerate(self.recordings)
            for pair in zip(self.parts[name][::2], self.parts[name][1::2], strict=False)
            if number % 2 == 0
        ]
        self.rng.shuffle(pairs)
        others = [part for name in self.recordings[1::2] for part in self.parts[name]]
        sections = [(part.title, sentences_of(part)) for part in others]
        self.other = Words([section for section in sections if len(section[1]) >= 4])
        for number, (_, pair) in enumerate(pairs[:count]):
            self._film(f"film{number:02d}", pair, is_spoken=bool(number % 2))

    def _film(self, name: str, pair: Sequence[Part], *, is_spoken: bool) -> None:
        shown: list[screen_text.Shown] = []
        path = self.folder / f"{name}.mp4"
        silent = self.folder / f".{name}.mp4"
        drawers = []
        for segment in range(5):
            part = pair[min(1, int(segment * SEGMENT / PART_SECONDS))]
            own = Words([(part.title, sentences_of(part))])
            # One slide in five shows what is said beside it, as in a talk.
            is_own = self.rng.random() < 0.2 and len(own.sections[0][1]) >= 4
            style = STYLES[0] if is_own else self.rng.choice(STYLES)
            drawer = Drawer(style, own if is_own else self.other, self.fonts, self.rng)
            drawers.append(drawer)
            begins = segment * SEGMENT
            shown += [
                dataclasses.replace(
                    text,
                    start=text.start + begins,
                    end=text.end + begins,
                    meaning="" if is_own else text.meaning,
                )
                for text in drawer.shown
            ]
        self._render(silent, drawers)
        cues = self._words(name, pair, silent, path, is_spoken=is_spoken)
        self.said[name], self.shown[name] = cues, shown
        for at, part in enumerate(pair):
            own_cues = [c for c in cues if at * PART_SECONDS <= c.start < (at + 1) * PART_SECONDS]
            self.asked.append(
                Asked("said, by title", part.title, ((name, own_cues[0].start, own_cues[-1].end),))
            )
        print(name, flush=True)

    def _render(self, path: Path, drawers: Sequence[Drawer]) -> None:
        import av

        with av.open(str(path), "w") as container:
            encoded = container.add_stream("libx264", rate=RATE, options={"crf": "28", "preset": "veryfast"})
            (encoded.width, encoded.height), encoded.pix_fmt = SIZE, "yuv420p"
            for drawer in drawers:
                frames = self.rng.choice(self.footage)
                order = [*range(len(frames)), *range(len(frames) - 2, 0, -1)]
                for number in range(int(SEGMENT * RATE)):
                    base = frames[order[number % len(order)]]
                    picture = av.VideoFrame.from_ndarray(drawer.frame(base, number / RATE), format="rgb24")
                    container.mux(encoded.encode(picture))
            container.mux(encoded.encode(None))

    def _words(
        self, name: str, pair: Sequence[Part], silent: Path, path: Path, *, is_spoken: bool
    ) -> list[Cue]:
        """The film with its words: as subtitles beside it, or read aloud in it; when each is said."""
        if not is_spoken:
            cues = [
                Cue(cue.start + at * PART_SECONDS, cue.end + at * PART_SECONDS, cue.text)
                for at, part in enumerate(pair)
                for cue in part.cues
            ]
            lines = [f"{stamp(c.start)} --> {stamp(c.end)}\n{c.text}\n" for c in cues]
            path.with_suffix(".vtt").write_text("WEBVTT\n\n" + "\n".join(lines), encoding="utf-8")
            self._with_sound(silent, path, self._heard(name))
            return cues
        sound = np.zeros(int(2 * PART_SECONDS * RATE_OF_SOUND), np.float32)
        cues = []
        for at, part in enumerate(pair):
            samples, spoken = speak(part.cues, self.folder)
            fitting = [cue for cue in spoken if cue.end < PART_SECONDS]
            until = int((fitting[-1].end + GAP_SECONDS / 2) * RATE_OF_SOUND)
            begins = int(at * PART_SECONDS * RATE_OF_SOUND)
            sound[begins : begins + until] = samples[:until]
            cues += [Cue(c.start + at * PART_SECONDS, c.end + at * PART_SECONDS, c.text) for c in fitting]
        self._with_sound(silent, path, sound)
        return cues

    def _heard(self, name: str) -> NDArray[np.float32]:
        """The sound of a film with two of the planted sounds in it, one in each minute."""
        sound = self.places.standard_normal(int(2 * PART_SECONDS * RATE_OF_SOUND)).astype(np.float32) * 0.003
        for minute in range(2):
            if len(self.heard) == len(self.sounds):
                break
            number = len(self.heard)
            at = float(self.places.uniform(5, PART_SECONDS - 10)) + minute * PART_SECONDS
            first, samples = int(at * RATE_OF_SOUND), planted_sound(number)
            sound[first : first + len(samples)] += samples
            self.heard.append(Asked("heard", self.sounds[number], ((name, at, at + SOUND_SECONDS),)))
        return sound

    def _with_sound(self, silent: Path, path: Path, sound: NDArray[np.float32]) -> None:
        write_sound(self.folder / "sound.wav", sound)
        command = ["ffmpeg", "-v", "error", "-y", "-i", str(silent), "-i", str(self.folder / "sound.wav")]
        subprocess.run([*command, "-c:v", "copy", "-c:a", "aac", "-b:a", "64k", str(path)], check=True)
        silent.unlink()
        for left_over in ("sound.wav", "line.wav", "line.txt"):
            (self.folder / left_over).unlink(missing_ok=True)

    def queries(self) -> Iterator[Asked]:
        """What is asked of what is said and shown, with words that stand nowhere else."""
        lines = [
            (film, c.start, c.end, c.text, "said, words") for film, own in self.said.items() for c in own
        ]
        lines += [
            (film, shown.start, shown.end, line, "shown, words")
            for film, own in self.shown.items()
            for shown in own
            for line in shown.lines
        ]
        counts = Counter(word for *_, text, _ in lines for word in set(plain_words(text)))
        by_film: defaultdict[tuple[str, str], list[Asked]] = defaultdict(list)
        for film, start, end, text, kind in lines:
            words = plain_words(text)
            triples = [words[at : at + 3] for at in range(len(words) - 2)]
            rare = [triple for triple in triples if min(counts[word] for word in triple) == 1]
            if rare:
                by_film[film, kind].append(
                    Asked(kind, " ".join(self.rng.choice(rare)), ((film, start, end),))
                )
        for queries in by_film.values():
            yield from self.rng.sample(queries, min(3, len(queries)))
        for film, texts in self.shown.items():
            for shown in texts:
                if re.fullmatch(r"[A-Z]{2}\d\d [A-Z]{3}", shown.lines[0]):
                    plate = shown.lines[0].replace(" ", "")
                    at = self.rng.randint(0, len(plate) - 4)
                    place = film, shown.start, shown.end
                    yield Asked("shown, part", plate[at : at + 4], (place,))
        for title, places in self._written_of().items():
            yield Asked("shown, by title", title, tuple(places))

    def _written_of(self) -> dict[str, list[tuple[str, float, float]]]:
        """Where the sentences of each other part with a slide are written: on slides, and in captions."""
        title_of = {_letters(text): title for title, own in self.other.sections for text in own}
        places: defaultdict[str, list[tuple[str, float, float]]] = defaultdict(list)
        slides: set[str] = set()
        for film, texts in self.shown.items():
            for shown in texts:
                written = _letters(" ".join(shown.lines))
                titles = {title for text, title in title_of.items() if written and text.startswith(written)}
                for title in {shown.meaning} - {""} or titles:
                    places[title].append((film, shown.start, shown.end))
                slides |= {shown.meaning}
        return {title: own for title, own in places.items() if title in slides}


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def plain_words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9']+", text.lower())


def make(data: Path, folder: Path, films: int, *, choose: bool) -> None:
    """Films and queries."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "films").mkdir(exist_ok=True)
    maker = Maker(data, folder / "films", choose=choose)
    maker.make(films)
    asked = [*maker.asked, *maker.queries(), *maker.heard]
    real = real_films(choose=choose)
    asked += [
        Asked("seen", row["query"], ((Path(row["video"]).stem, row["start"], row["end"]),))
        for row in queries_seen(data)
        if row["video"] in real
    ]
    rows = [dataclasses.asdict(query) for query in asked]
    (folder / "asked.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def index(data: Path, folder: Path, *, choose: bool) -> None:
    """The corpus, by every stream."""
    real = real_films(choose=choose)
    corpus = Corpus(folder / "corpus", create=True)
    summary = corpus.add(
        folder / "films",
        *(data / "real_video" / name for name in real),
        vision=PlantedEyes(data / "real_video", real, queries_seen(data)),
        sound=PlantedEars(OTHER_SOUNDS if choose else SOUNDS),
        screen_text=True,
        transcribe=True,
        processes=1,
    )
    print("\n".join(summary.lines()))


def real_films(*, choose: bool) -> list[str]:
    return list(FILMS) if choose else [*OTHER_FILMS, *UNQUERIED]


# What is found ------------------------------------------------------------------------------------------

Fused = list[ScoredMoment]


def by_ranks(answers: Sequence[StreamAnswer]) -> Fused:
    """Reciprocal rank fusion (Cormack et al. 2009, k = 60); what streams share is one moment."""
    return _merged(answers, lambda rank, score, best: 1 / (60 + rank))


def by_share_of_best(answers: Sequence[StreamAnswer]) -> Fused:
    """The sum of scores, each as a share of the best of its stream for this query (CombSUM)."""
    return _merged(answers, lambda rank, score, best: max(0.0, score) / max(best, 1e-9))


def _merged(answers: Sequence[StreamAnswer], worth: Callable[[int, float, float], float]) -> Fused:
    merged: list[ScoredMoment] = []
    for answer in answers:
        scored = sorted((answer.scored(row) for row in range(len(answer.moments))), key=lambda m: m.sort_key)
        for rank, moment in enumerate(scored, 1):
            own = dataclasses.replace(moment, score=worth(rank, moment.score, scored[0].score))
            twin = next(
                (
                    at
                    for at, other in enumerate(merged)
                    if answer.stream not in other.evidence and other.moment.iou(own.moment) >= 0.5
                ),
                None,
            )
            if twin is None:
                merged.append(own)
            else:
                joined = {**merged[twin].evidence, **own.evidence}
                total = merged[twin].score + own.score
                merged[twin] = dataclasses.replace(merged[twin], score=total, evidence=joined)
    return sorted(merged, key=lambda moment: moment.sort_key)


def rank_of(asked: Asked, fused: Sequence[ScoredMoment], stems: dict[str, str]) -> int:
    """At which place the first hit is (1 is first); 99 where none of ten is one."""
    for place, scored in enumerate(fused[:10], 1):
        moment = scored.moment
        for film, start, end in asked.places:
            shared = min(moment.end, end) - max(moment.start, start)
            shorter = min(moment.end - moment.start, end - start)
            if stems[moment.video_id] == film and shared >= 0.5 * shorter:
                return place
    return 99


def texts_of(corpus: Corpus, stems: dict[str, str]) -> Iterator[tuple[str, float, float, str]]:
    """Film, start, end and text of every clip with words."""
    for name in ("subtitle", "screen_text"):
        for video_id, stem in stems.items():
            block = corpus.store.clips_of(name, [video_id], vectors=False)
            for row, text in enumerate(block.text):
                yield stem, float(block.start[row]), float(block.end[row]), text


def is_elsewhere(query: Asked, texts: Sequence[tuple[str, float, float, str]]) -> bool:
    """Whether all words of a title stand together in a clip outside of its truth."""
    words = set(query_words(query.text)[0])
    return "by title" in query.kind and any(
        says(text, words) for film, start, end, text in texts if not query.is_at(film, start, end)
    )


def subsets(streams: Sequence[str]) -> list[tuple[str, ...]]:
    return [own for size in range(1, len(streams) + 1) for own in itertools.combinations(streams, size)]


def read_asked(folder: Path) -> list[Asked]:
    rows = json.loads((folder / "asked.json").read_text(encoding="utf-8"))
    return [Asked(row["kind"], row["text"], tuple(map(tuple, row["places"]))) for row in rows]


def opened(data: Path, folder: Path, *, choose: bool) -> Corpus:
    """The corpus that `index` made, with what knows its pictures and sounds."""
    corpus = Corpus(folder / "corpus")
    eyes = PlantedEyes(data / "real_video", real_films(choose=choose), queries_seen(data))
    corpus.encoders.adopt(eyes, corpus.store.streams["vision"])
    ears = PlantedEars(OTHER_SOUNDS if choose else SOUNDS)
    corpus.encoders.adopt(ears, corpus.store.streams["sound"])
    return corpus


def measure(data: Path, folder: Path, *, choose: bool) -> dict[str, Any]:
    """Ranks of every query by every subset of the streams, and how sure the answers were."""
    corpus = opened(data, folder, choose=choose)
    every_query = read_asked(folder)
    stems = {record.video_id: Path(record.path).stem for record in corpus.records()}
    searcher: Searcher = corpus.searcher()
    texts = list(texts_of(corpus, stems))
    asked = [query for query in every_query if not is_elsewhere(query, texts)]
    ranks: defaultdict[str, list[int]] = defaultdict(list)
    sure: list[dict[str, Any]] = []
    for query in asked:
        answers = {answer.stream: answer for answer in searcher.find_all(query.text)}
        for own in subsets(STREAMS):
            some = [answers[name] for name in own]
            ranks["+".join(own)].append(rank_of(query, searcher.rank(query.text, some), stems))
        every = list(answers.values())
        ranks["all, by ranks"].append(rank_of(query, by_ranks(every), stems))
        ranks["all, by shares"].append(rank_of(query, by_share_of_best(every), stems))
        sure.append(_sureness(corpus, query, stems))
    return {
        "machine": describe_machine("lancedb", "rapidocr", "faster-whisper"),
        "date": time.strftime("%Y-%m-%d"),
        "noise": NOISE,
        "answered_elsewhere": len(every_query) - len(asked),
        "queries": [[query.kind, query.film] for query in asked],
        "table": table(asked, ranks),
        "gain of all over the best stream alone": gains(asked, ranks),
        "answers": answers_table(sure),
        "ranks": dict(ranks),
    }


def _sureness(corpus: Corpus, query: Asked, stems: dict[str, str]) -> dict[str, Any]:
    """What an answer says of itself, of all streams and of the one that knows; and whether it is so."""
    own = STREAM_OF[query.kind.split(",")[0]]
    row: dict[str, Any] = {"kind": query.kind}
    for way, streams in (("all", ()), ("own", (own,))):
        result = corpus.search(query.text, k=10, streams=streams)
        first = result.moments[:1]
        right = rank_of(query, result.moments, stems) == 1
        row[way] = [result.answer, round(first[0].confidence or 0.0, 3) if first else 0.0, right]
    return row


def answers_table(sure: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """How many answers are a match, unsure, none, and how many of each are right."""
    rows = []
    for kind in KINDS:
        for way in ("all", "own"):
            some = [row[way] for row in sure if row["kind"] == kind]
            row: dict[str, Any] = {"kind": kind, "streams": way, "queries": len(some)}
            for answer in ("match", "unsure", "no_match"):
                given = [right for said, _, right in some if said == answer]
                row[answer] = [len(given), sum(given)]
            row["stated"] = round(float(np.mean([stated for _, stated, _ in some])), 3) if some else None
            row["right"] = round(float(np.mean([right for *_, right in some])), 3) if some else None
            rows.append(row)
    return rows


def table(asked: Sequence[Asked], ranks: dict[str, list[int]]) -> list[dict[str, Any]]:
    """hit@1 and hit@5 with intervals, of each way and kind."""
    rows = []
    for way, own in ranks.items():
        for kind in (*KINDS, "all"):
            chosen = [at for at, query in enumerate(asked) if kind in (query.kind, "all")]
            films = [asked[at].film for at in chosen]
            row: dict[str, Any] = {"streams": way, "kind": kind, "queries": len(chosen)}
            for k in (1, 5):
                hits = np.array([own[at] <= k for at in chosen], float)
                row[f"hit@{k}"] = interval(hits, films)
            rows.append(row)
    return rows


def gains(asked: Sequence[Asked], ranks: dict[str, list[int]]) -> list[dict[str, Any]]:
    """What all streams find more than the best of them alone: of each kind, with intervals."""
    rows = []
    for kind in KINDS:
        chosen = [at for at, query in enumerate(asked) if query.kind == kind]
        films = [asked[at].film for at in chosen]
        row: dict[str, Any] = {"kind": kind}
        for k in (1, 5):
            hits = {name: np.array([ranks[name][at] <= k for at in chosen], float) for name in STREAMS}
            best = max(STREAMS, key=lambda name: (hits[name].mean(), name))
            every = np.array([ranks["+".join(STREAMS)][at] <= k for at in chosen], float)
            row[f"hit@{k}"] = {"best": best, "gain": interval(every - hits[best], films)}
        rows.append(row)
    return rows


def interval(values: NDArray[np.float64], films: Sequence[str]) -> list[float]:
    """The mean in percent, and its 95 % interval when whole films are drawn."""
    names = sorted(set(films))
    of_film = [values[[film == name for film in films]] for name in names]
    sums = np.array([own.sum() for own in of_film])
    counts = np.array([len(own) for own in of_film])
    drawn = np.random.default_rng(0).integers(0, len(names), (4000, len(names)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return [round(100 * float(value), 1) for value in (values.mean(), low, high)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("step", choices=("make", "index", "measure"))
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--films", type=int, default=20)
    parser.add_argument("--choose", action="store_true")
    options = parser.parse_args()
    if options.step == "make":
        make(options.data, options.folder, options.films, choose=options.choose)
        return
    if options.step == "index":
        index(options.data, options.folder, choose=options.choose)
        return
    result = measure(options.data, options.folder, choose=options.choose)
    text = json.dumps(result, indent=1) + "\n"
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    for row in result["table"]:
        print(f"{row['streams']:34} {row['kind']:16} {row['queries']:4} {row['hit@1']} {row['hit@5']}")
    for row in [*result["gain of all over the best stream alone"], *result["answers"]]:
        print(json.dumps(row))


if __name__ == "__main__":
    main()
