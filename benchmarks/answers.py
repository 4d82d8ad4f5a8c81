"""How probable it is that an answer is right: asked, learned, and measured on recordings left out.

    python -m benchmarks.answers --corpora /tmp/corpora              # ask, fit, measure
    python -m benchmarks.answers --corpora /tmp/corpora --learn      # and write confidence/learned.json

`--corpora` is a folder; corpora that are missing in it are indexed first (600 processor seconds for all 227
hours). They are each set of `transcripts`, all of them together, and small ones; each is asked the titles
of its recordings (with the recording in, and taken out), titles of other sets, unrelated sentences in and
not in the bank, sentences about what is to be seen elsewhere, questions made of what is said, single words
and pairs that are said or are not, and phrases. French captions of the lectures (`transcripts_languages`)
are asked their French titles.

Every answer becomes one row: the features of its first moment, and whether that is right. The curves are
fitted with whole recordings left out, and with whole sets left out, and judged on what was left out; the
shipped ones are fitted on all rows. Intervals are by recording (2,000 samples of recordings). Rows without
any text are kept in `results/answers_questions.csv.gz`. In the end every title is asked once more through the
finished search, as a user asks, and must be answered as its row says ("asked as users ask").
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import itertools
import json
import math
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.spoken_search import describe_machine
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import rankdata

from whenabouts import Corpus
from whenabouts.confidence.background import SENTENCES
from whenabouts.confidence.outcomes import TAKEN_OUT_WORTH
from whenabouts.confidence.probability import (
    NAMES,
    OWN,
    PROBABLE,
    RISING,
    Features,
    Probability,
    from_json,
    general,
    learned,
)
from whenabouts.product.calibration.measuring import (
    QuestionResult,
    calibrate,
    results_with_and_without,
)
from whenabouts.product.calibration.questions import CalibrationQuestion, made_from
from whenabouts.product.index.lookup import words_of
from whenabouts.product.phrases import parsed_query
from whenabouts.product.search import Searcher
from whenabouts.product.stored_calibration import load_calibration
from whenabouts.types import Moment, ScoredMoment

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("WHENABOUTS_SHARED_DATA", ROOT.parent / "shared" / "data"))
DATA = SHARED / "transcripts"
FRENCH = SHARED / "transcripts_languages"
RESULT = ROOT / "benchmarks" / "results" / "answers.json"
QUESTIONS = RESULT.with_name("answers_questions.csv.gz")
LEARNED = ROOT / "src" / "whenabouts" / "confidence" / "learned.json"
TOLERANCE = 45.0
SAMPLES = 2000
FOLDS = 10

SETS = ("bitcoin", "devtools", "nyu", "apollo13")
SMALL = {
    "devtools one": ("devtools_104",),
    "bitcoin one": ("btc_the-great-consensus-cleanup-revival",),
    "bitcoin another": ("btc_miniscript",),
    "devtools four": ("devtools_102", "devtools_103", "devtools_104", "devtools_105"),
    "bitcoin six": (
        *(f"btc_bitcoin-core-v{name}" for name in ("0-21", "22-explained", "23", "24")),
        "btc_mempool-policy",
        "btc_op-return",
    ),
}
OTHERS = ("french",)

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

SPOKEN = (
    "Lovell", "Haise", "oxygen", "Houston", "ReLU", "dropout", "autoencoder", "softmax", "SegWit", "Taproot",
    "mempool", "Schnorr", "TypeScript", "webpack", "Kubernetes", "Svelte",
)  # fmt: skip
"""Terms that are said word for word, for the corpus of all recordings."""

WORTH = {
    "title": 1.0,
    "title, taken out": TAKEN_OUT_WORTH,
    "title of another set": 0.3,
    "bank": 0.045,
    "made": 0.09,
    "word": 0.09,
    "pair": 0.09,
    "phrase": 0.09,
    "word not said": 0.09,
    "pair not said": 0.09,
}
"""How much a question of each kind counts in the fit; people mostly ask for what is there, in own words."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Row:
    """An answer: where and what was asked, whether its first moment is right, and its features.

    `is_name`: the question is said as it is at the moment, and rare.
    """

    corpus: str
    kind: str
    number: int
    recording: str
    right: bool
    features: Features | None
    rank: int = 1
    is_name: bool = False

    @property
    def group(self) -> str:
        """Rows of one group are never parted: questions about a recording, or one question of any corpus."""
        return self.recording or f"{self.kind} {self.number}"


@dataclass(frozen=True)
class Title:
    """A title and the part of a recording that it was given to."""

    number: int
    text: str
    recording: str
    start: float
    end: float

    def is_right(self, moment: Moment, stems: Mapping[str, str]) -> bool:
        """Right recording, and the middle inside the part with some tolerance."""
        inside = self.start - TOLERANCE <= moment.middle <= self.end + TOLERANCE
        return stems[moment.video_id] == self.recording and inside


def titles(folder: Path = DATA, language: str = "") -> list[Title]:
    """All titles, or those in a language; without quotation marks, which would ask for an exact phrase."""
    lines = (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    values = [json.loads(line) for line in lines]
    return [
        Title(number, parsed_query(v["query"]).plain, v["recording"], float(v["start"]), float(v["end"]))
        for number, v in enumerate(values)
        if v.get("language", "") == language
    ]


def titles_of(corpus: str) -> list[Title]:
    """The titles that a corpus is asked."""
    return titles(FRENCH, "fr") if corpus == "french" else titles()


def seen() -> list[str]:
    """Sentences about what is to be seen in other videos."""
    lines = (SHARED / "real_video" / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["query"] for line in lines]


def sets() -> dict[str, str]:
    """The set of each recording."""
    values = [
        json.loads(line) for line in (DATA / "recordings.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    return {value["recording"]: value["set"] for value in values}


def recordings_of(corpus: str) -> tuple[str, ...]:
    """The recordings of one of the corpora that are asked."""
    if corpus in SMALL:
        return SMALL[corpus]
    if corpus == "french":
        return tuple(sorted(path.stem for path in (FRENCH / "fr").glob("*.vtt")))
    return tuple(name for name, own in sets().items() if corpus in (own, "all"))


def recording_of(path: str) -> str:
    """The recording whose captions a file has."""
    return Path(path).name.removesuffix(".vtt").removesuffix(".fr")


def opened(folder: Path, name: str) -> Corpus:
    """A corpus of the folder, made if need be, its unrelated sentences asked anew."""
    corpus = Corpus(folder / name.replace(" ", "_"), create=True)
    if not corpus.streams:
        place = FRENCH / "fr" if name == "french" else DATA
        corpus.add(*(place / f"{recording}.vtt" for recording in recordings_of(name)), processes=1)
    calibrate(corpus, made=0)
    return corpus


# Asking -------------------------------------------------------------------------------------------


class Examiner:
    """Asks one corpus and makes rows of what comes."""

    def __init__(self, name: str, corpus: Corpus) -> None:
        self.name = name
        self.corpus = corpus
        self.searcher: Searcher = corpus.searcher()
        self.chances = load_calibration(corpus.store).chances
        records = corpus.records()
        self.stems = {record.video_id: recording_of(record.path) for record in records}
        self.ids = {stem: video_id for video_id, stem in self.stems.items()}
        self.texts = corpus.store.clips_of("subtitle", sorted(self.stems), vectors=False).text

    def ask(
        self, kind: str, number: int, text: str, is_right: Callable[[ScoredMoment, Features], bool]
    ) -> Row:
        """The row of a question that is right or wrong by itself."""
        anywhere = Moment(next(iter(self.stems)), 0.0, 1.0)
        result, _ = results_with_and_without(self.searcher, CalibrationQuestion(text, anywhere))
        return next(self._rows(kind, number, "", result, is_right, 1))

    def ask_title(self, title: Title) -> Iterator[Row]:
        """Rows of a title: its first moments with the recording in, and the first with it taken out."""
        truth = Moment(self.ids[title.recording], title.start, title.end)
        kept, without = results_with_and_without(self.searcher, CalibrationQuestion(title.text, truth))

        def is_right(scored: ScoredMoment, features: Features) -> bool:
            return title.is_right(scored.moment, self.stems)

        yield from self._rows("title", title.number, title.recording, kept, is_right, 3)
        if len(self.stems) > 1:
            yield from self._rows(
                "title, taken out", title.number, title.recording, without, lambda *given: False, 1
            )

    def _rows(
        self,
        kind: str,
        number: int,
        recording: str,
        result: QuestionResult,
        is_right: Callable[[ScoredMoment, Features], bool],
        count: int,
    ) -> Iterator[Row]:
        moments, features = result.first(self.chances, count)
        if not features:
            yield Row(self.name, kind, number, recording, False, None)
        for rank, (scored, own) in enumerate(zip(moments, features, strict=False), 1):
            said = result.said_at(scored)
            is_name = said is not None and said.is_name
            yield Row(self.name, kind, number, recording, is_right(scored, own), own, rank, is_name)


def is_said(scored: ScoredMoment, features: Features) -> bool:
    """Whether all words are said there in this order: all that a question for a word or a phrase asks."""
    return features.phrase > 0


def never(scored: ScoredMoment, features: Features) -> bool:
    """Of a question that has no answer."""
    return False


def ask(name: str, corpus: Corpus, seed: int = 20261122) -> list[Row]:
    """All questions of one corpus."""
    rng = random.Random(f"{seed} {name}")
    examiner, own_sets = Examiner(name, corpus), sets()
    count = 20 if name in SMALL else 60
    own = [title for title in titles_of(name) if title.recording in examiner.ids]
    rows = [row for title in own for row in examiner.ask_title(title)]
    if name in OTHERS:
        return rows
    here = {own_sets[recording] for recording in examiner.ids}
    foreign = [title for title in titles() if own_sets[title.recording] not in here]
    some = rng.sample(foreign, min(count, len(foreign)))
    rows += [examiner.ask("title of another set", title.number, title.text, never) for title in some]
    rows += [examiner.ask("unrelated", number, text, never) for number, text in enumerate(UNRELATED)]
    rows += [examiner.ask("bank", number, text, never) for number, text in enumerate(SENTENCES)][: 4 * count]
    if name == "all":
        rows += [examiner.ask("seen, not said", number, text, never) for number, text in enumerate(seen())]
    for number, question in enumerate(made_from(corpus.store, count, seed)):
        rows.append(examiner.ask("made", number, question.text, _within(question)))
    return rows + list(_asked_of_words(examiner, rng, count))


def _within(question: CalibrationQuestion) -> Callable[[ScoredMoment, Features], bool]:
    return lambda scored, features: scored.moment.overlap(question.answer) > 0 or features.whole > 0


def _asked_of_words(examiner: Examiner, rng: random.Random, count: int) -> Iterator[Row]:
    """Single words, pairs and phrases that are said, and words and pairs that are not."""
    spoken = [words_of(text) for text in examiner.texts]
    common = Counter(word for words in spoken for word in set(words))
    rare = {
        word
        for word, times in common.items()
        if len(word) > 3 and word.isalpha() and 2 <= times <= max(3, 0.02 * len(spoken))
    }
    for number, word in enumerate(rng.sample(sorted(rare), min(count, len(rare)))):
        yield examiner.ask("word", number, word, is_said)
    pairs = sorted(
        {(a, b) for words in spoken for a, b in itertools.pairwise(words) if a in rare and b in rare}
    )
    for number, pair in enumerate(rng.sample(pairs, min(count // 2, len(pairs)))):
        yield examiner.ask("pair", number, " ".join(pair), is_said)
    for number, words in enumerate(rng.sample([words for words in spoken if len(words) >= 6], count)):
        length = rng.randint(3, 6)
        start = rng.randrange(len(words) - length + 1)
        phrase = words[start : start + length]
        if any(word in rare for word in phrase):
            yield examiner.ask("phrase", number, " ".join(phrase), is_said)
    absent = sorted(_vocabulary() - set(common))
    for number, word in enumerate(rng.sample(absent, min(count, len(absent)))):
        yield examiner.ask("word not said", number, word, never)
    for number in range(min(count // 2, len(absent))):
        yield examiner.ask("pair not said", number, " ".join(rng.sample(absent, 2)), never)


def _vocabulary() -> set[str]:
    """Words of all transcripts, and of what unrelated sentences are about."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(DATA.glob("*.vtt"))]
    words = {word for text in [*texts, *SENTENCES] for word in words_of(text)}
    return {word for word in words if len(word) > 3 and word.isalpha() and word.isascii()}


# Fitting ------------------------------------------------------------------------------------------

OF_WORDS = ("spoken", "unspoken", "whole", "phrase", "name", "length")
OF_LIST = tuple(name for name in NAMES if name not in OF_WORDS)
RIDGE = 3.0


def fit(rows: Sequence[Row]) -> dict[str, Any]:
    """The curves in the form of `learned.json`, from first moments; later ones only say how they fall off."""
    first = [row for row in rows if row.rank == 1 and row.features is not None and WORTH.get(row.kind)]
    found = {"words": _curve(first, NAMES), "others": _curve(first, OF_LIST)}
    value: dict[str, Any] = {**found, "later": 0.0, "gap": 0.0, "between": 0.5, "slopes": 0.3}
    value["later"], value["gap"] = _fall(rows, from_json(value))
    value["between"] = _between(first, from_json(value))
    return value


def _curve(rows: Sequence[Row], names: Sequence[str]) -> dict[str, Any]:
    """Logistic regression with a ridge on standardised features, and the signs that `RISING` demands."""
    x = np.array([[getattr(row.features, name) for name in names] for row in rows])
    right = np.array([row.right for row in rows], np.float64)
    worth = np.array([WORTH[row.kind] for row in rows])
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
    for own in by_title.values():
        first = own[0].features
        assert first is not None
        for row in own[1:]:
            assert row.features is not None
            differs = sum(
                curves.words.weights[name] * (getattr(row.features, name) - getattr(first, name))
                for name in OWN
            )
            at.append(curves.words.log_odds_of(first) + differs)
            gap.append(first.surprise - row.features.surprise)
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
        p = np.array(
            [curves.of_first(row.features, has_words=True) for row in own if row.features is not None]
        )
        information = float((p * (1 - p)).sum())
        if information > 0.3:
            shifts.append((sum(row.right for row in own) - float(p.sum())) / information)
            noise.append(1 / information)
            worth.append(information)
    weights = np.array(worth) / np.sum(worth)
    extra = float(weights @ (np.array(shifts) ** 2 - np.array(noise)))
    return round(math.sqrt(max(0.01, extra)), 3)


# Judging ------------------------------------------------------------------------------------------


def left_out(rows: Sequence[Row], fold_of: Callable[[Row], int | str]) -> Floats:
    """The probability of each first answer by curves that were fitted without its fold."""
    folds = [fold_of(row) for row in rows]
    given = np.zeros(len(rows))
    for fold in sorted(set(folds), key=str):
        curves = from_json(fit([row for row, own in zip(rows, folds, strict=True) if own != fold]))
        for place, row in enumerate(rows):
            if folds[place] == fold and row.features is not None:
                given[place] = curves.of_first(row.features, has_words=True)
    return given


def fold_by_recording(rows: Sequence[Row]) -> Callable[[Row], int]:
    """Folds of whole recordings; unrelated questions are dealt out by themselves."""
    groups = sorted({row.group for row in rows})
    random.Random(7).shuffle(groups)
    fold = {group: number % FOLDS for number, group in enumerate(groups)}
    return lambda row: fold[row.group]


def fold_by_set(rows: Sequence[Row]) -> Callable[[Row], str]:
    """Folds of whole sets: all questions about a set's recordings, and all that were asked of it alone."""
    own = sets()

    def fold(row: Row) -> str:
        if row.recording:
            return own[row.recording]
        return "" if row.corpus == "all" else own[recordings_of(row.corpus)[0]]

    return fold


def auroc(given: Floats, right: NDArray[np.bool_]) -> float:
    """How surely a right answer stands above a wrong one; NaN where all are alike."""
    good, bad = int(right.sum()), int((~right).sum())
    return (
        float((rankdata(given)[right].sum() - good * (good + 1) / 2) / (good * bad))
        if good and bad
        else math.nan
    )


def calibration_error(given: Floats, right: NDArray[np.bool_]) -> float:
    """Expected calibration error over ten bins of equal width."""
    bin_of = np.minimum((given * 10).astype(int), 9)
    return sum(abs(float((given - right)[bin_of == number].sum())) for number in range(10)) / len(given)


def judged(rows: Sequence[Row], given: Floats) -> dict[str, Any]:
    """The numbers of first answers to titles, with intervals by recording."""
    right = np.array([row.right for row in rows])
    recordings = sorted({row.recording for row in rows})
    matched = np.array([is_match(row, p) for row, p in zip(rows, given.tolist(), strict=True)])
    rows_of = [np.flatnonzero([row.recording == name for row in rows]) for name in recordings]
    rng = np.random.default_rng(3)
    samples = [
        np.concatenate([rows_of[i] for i in rng.integers(0, len(rows_of), len(rows_of))])
        for _ in range(SAMPLES)
    ]

    def measured(number: Callable[[Floats, NDArray[np.bool_]], float]) -> list[float]:
        drawn = [number(given[sample], right[sample]) for sample in samples]
        low, high = np.nanquantile(drawn, [0.025, 0.975])
        return [round(float(value), 4) for value in (number(given, right), low, high)]

    def share(of: NDArray[np.bool_], held: NDArray[np.bool_]) -> list[float]:
        drawn = [held[sample][of[sample]].mean() for sample in samples if of[sample].any()]
        low, high = np.quantile(drawn, [0.025, 0.975])
        return [round(float(value), 4) for value in (held[of].mean(), low, high)]

    def at(level: float) -> dict[str, list[float]]:
        return {
            "coverage": measured(lambda p, y: float((p >= level).mean())),
            "right": measured(lambda p, y: float(y[p >= level].mean()) if (p >= level).any() else math.nan),
            "of the right ones": measured(
                lambda p, y: float((p >= level)[y].mean()) if y.any() else math.nan
            ),
        }

    return {
        "titles": len(rows),
        "recordings": len(recordings),
        "right": measured(lambda p, y: float(y.mean())),
        "stated": measured(lambda p, y: float(p.mean())),
        "expected calibration error": measured(calibration_error),
        "auroc": measured(auroc),
        "match": {
            "coverage": share(np.ones(len(rows), bool), matched),
            "right": share(matched, right),
            "of the right ones": share(right, matched),
        },
        "no match": measured(lambda p, y: float((p < PROBABLE.no_match_below).mean())),
        "curve": {f"{level:.2f}": at(level) for level in np.arange(0.1, 0.96, 0.1).round(2).tolist()},
    }


def is_match(row: Row, given: float) -> bool:
    """Whether a search calls the answer a match."""
    return row.is_name or given >= PROBABLE.match_at


def report(rows: Sequence[Row], given: Floats) -> dict[str, Any]:
    """Numbers by corpus: titles, and how often every kind of question is called a match."""
    own_sets, found = sets(), {}
    views = {name: name for name in dict.fromkeys(row.corpus for row in rows)}
    for name in [*views, *(f"all: {own}" for own in SETS), "small ones"]:

        def belongs(row: Row, name: str = name) -> bool:
            if name == "small ones":
                return row.corpus in SMALL
            corpus, _, own = name.partition(": ")
            return row.corpus == corpus and (not own or own_sets.get(row.recording) == own)

        places = [place for place, row in enumerate(rows) if belongs(row) and row.rank == 1]
        of_titles = [place for place in places if rows[place].kind == "title"]
        if not of_titles or (name in SMALL):
            continue
        kinds: dict[str, list[bool]] = {}
        for place in places:
            kinds.setdefault(rows[place].kind, []).append(is_match(rows[place], float(given[place])))
        found[name] = {
            **judged([rows[place] for place in of_titles], given[of_titles]),
            "called a match": {kind: [sum(own), len(own)] for kind, own in kinds.items()},
        }
    return found


def asked_again(name: str, corpus: Corpus, rows: Sequence[Row]) -> dict[str, Any]:
    """What the finished search says to the titles of a corpus, beside what their rows say.

    `differ` counts titles whose answer, first moment's truth or probability (by 0.001) is another one.
    """
    row_of = {row.number: row for row in rows if (row.corpus, row.kind, row.rank) == (name, "title", 1)}
    stems = {record.video_id: recording_of(record.path) for record in corpus.records()}
    curves, counts = general(), Counter[str]()
    for title in titles_of(name):
        if title.number not in row_of:
            continue
        row, result = row_of[title.number], corpus.search(title.text, k=1)
        first = next(iter(result), None)
        is_right = first is not None and title.is_right(first.moment, stems)
        stated = 0.0 if row.features is None else curves.of_first(row.features, has_words=True)
        is_matched = is_match(row, stated)
        counts.update({"titles": 1, "right": is_right, "match": result.answer == "match"})
        counts["right match"] += is_right and result.answer == "match"
        counts["match by their rows"] += is_matched
        counts["right by their rows"] += row.right
        counts["differ"] += (
            is_right != row.right
            or is_matched != (result.answer == "match")
            or abs((first.confidence if first and first.confidence else 0.0) - stated) > 0.001
        )
    return dict(counts)


def spoken_terms(corpus: Corpus) -> dict[str, str]:
    """The answers to terms that are said word for word."""
    return {term: corpus.search(term, k=1).answer for term in SPOKEN}


def keep_rows(rows: Sequence[Row], given: Mapping[str, Floats]) -> None:
    """The rows as compressed columns, without any text; the same rows give the same bytes."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["corpus", "kind", "number", "recording", "rank", "right", "is_name", *NAMES, *given])
    for place, row in enumerate(rows):
        numbers = [] if row.features is None else [f"{value:.5g}" for value in astuple(row.features)]
        shares = [f"{column[place]:.3f}" for column in given.values()]
        padded = numbers or [""] * len(NAMES)
        about = (row.corpus, row.kind, row.number, row.recording, row.rank, int(row.right), int(row.is_name))
        writer.writerow([*about, *padded, *shares])
    QUESTIONS.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


def read_rows(path: Path) -> list[Row]:
    """Rows that were kept, for fitting anew without asking."""
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        lines = list(csv.DictReader(stream))
    return [
        Row(
            line["corpus"],
            line["kind"],
            int(line["number"]),
            line["recording"],
            line["right"] == "1",
            Features(*(float(line[name]) for name in NAMES)) if line[NAMES[0]] else None,
            int(line["rank"]),
            line["is_name"] == "1",
        )
        for line in lines
    ]


def main() -> None:
    """Ask, fit, judge, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--corpora", type=Path, required=True)
    parser.add_argument("--learn", action="store_true", help="write the curves that the package ships")
    parser.add_argument(
        "--only", nargs="*", default=[*SETS, "all", *SMALL, *OTHERS], help="ask these corpora alone"
    )
    parser.add_argument("--again", action="store_true", help="fit and judge the rows of the last run")
    options = parser.parse_args()
    result: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "machine": describe_machine()}
    if options.again:
        rows = read_rows(QUESTIONS)
    else:
        rows = []
        for name in options.only:
            began = time.perf_counter()
            rows += ask(name, opened(options.corpora, name))
            print(f"{name}: {len(rows)} rows, {time.perf_counter() - began:.0f} s", flush=True)
    given = {
        "recordings left out": left_out(rows, fold_by_recording(rows)),
        "sets left out": left_out(rows, fold_by_set(rows)),
    }
    keep_rows(rows, given)
    for way, own in given.items():
        result[way] = report(rows, own)
    fitted = {"date": result["date"], "fitted_on": sorted({row.corpus for row in rows}), **fit(rows)}
    fitted |= {key: learned()[key] for key in ("across", "alike")}  # languages.py and likeness.py learn these
    result["learned"] = fitted
    if options.learn:
        LEARNED.write_text(json.dumps(fitted, indent=1) + "\n", encoding="utf-8")
        learned.cache_clear()
    result["asked as users ask"] = {
        name: asked_again(name, Corpus(options.corpora / name.replace(" ", "_")), rows)
        for name in dict.fromkeys(row.corpus for row in rows)
    }
    if "all" in options.only:
        result["terms that are said"] = spoken_terms(opened(options.corpora, "all"))
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({key: value for key, value in result.items() if key != "learned"}, indent=1))


if __name__ == "__main__":
    main()
