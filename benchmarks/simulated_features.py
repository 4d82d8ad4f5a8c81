"""Simulated clip features of a data set, from a text model that no system and no filter of ours reads.

    python -m benchmarks.simulated_features OUT --prefix e5_charades \
        --train charades_train.json --test charades_test.json [--also didemo=didemo_test.jsonl] [--subtitles]
        [--also-train didemo=didemo_val.json]

Annotations and times are real; what the clips hold is made of the vectors of the captions. The simulator
before (`simulate_features.py`, not part of this repository) took them from MiniLM, which also makes the
words of the queries and the relevant pairs that CroCs leaves out: the filter knew the generator. Here
multilingual-e5 makes the clips (`--generator` names another), and MiniLM still makes words and pairs.

A caption's vector, centred and scaled to a mean length of 1, goes through a random network of two layers
that is the same for all videos. A moment shows its caption's image after a random step; some moments show it
faintly. Borders are drawn off the annotated ones, clips leak into their neighbours, a video's mean content
lies under all its clips, and where nothing is annotated some stretches show another video's caption. Every
clip has the video's scene and white noise besides. `Settings` has the amounts: those of the simulator before.

OUT gets, under names that begin with the prefix: `_train`, `_val` (a tenth of the training videos, or
`--held-out`, chosen by the hash of their ids) and `_test` `.jsonl`; the stores `_video` and, with
--subtitles, `_sub`; the words of all queries, `_words`, by MiniLM; `_settings.json`. With --subtitles also
what is said word by word, drawn by itself (`simulated_sentences`): `_said.jsonl` of all videos,
`_said_train.jsonl` of those to train on, the tokenizer `_tokenizer`, `_said_settings.json`. `--also` has
another data set's videos made by the same network, to be tested on; `--also-train NAME=FILE` to be trained
on: `_NAME_train` and `_NAME_val`. `--videos` and `--test-videos` take the videos with the lowest hashes.
With `--tested SHARE` in place of --test, that share of the training videos (by the other end of the hashes)
is tested on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.simulated_moments import Moment, draws, moments_of
from benchmarks.simulated_sentences import Amounts, write_speech
from numpy.typing import NDArray

from whenabouts.clips import clip_counts
from whenabouts.encoders import TextEncoder, encode_passages, open_text_encoder
from whenabouts_bench.formats import read_annotations, write_annotations
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations, judgement_rows
from whenabouts_systems.features.fingerprint import Fingerprint
from whenabouts_systems.features.layouts.store import write_store
from whenabouts_systems.own_features import write_token_features

GENERATOR, WORDS = "multilingual-e5", "minilm"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Settings:
    """Amounts of the simulation. Lengths of vectors are shares of the captions' mean, after centring."""

    clip_seconds: float = 3.0
    width: int = 256
    hidden: int = 512
    gain: float = 2.0
    """Deviation of what goes into the network's tanh."""
    step: float = 1.0
    """Length of the random step from a caption to what is seen of it."""
    faint_moments: float = 0.15
    faint: float = 0.25
    """Share of moments that are hardly seen, and how much of them is."""
    strangers: float = 0.4
    """Chance that a stretch of one to three clips without a moment shows a caption of another video."""
    context: float = 0.4
    border: float = 0.2
    """Deviation of the seen borders, as a share of the moment."""
    leak: float = 0.25
    """Share of a clip's content that goes to each of its neighbours."""
    scene: float = 1.0
    noise: float = 2.0
    spoken: float = 0.4
    """Chance that a moment is spoken about, in seven of ten of its clips."""
    seed: int = 0


@dataclass(frozen=True)
class SimulatedVideo:
    """What is seen (T, width) and what is said (T, text width; zeros where nothing is)."""

    seen: Floats
    said: Floats


class Captions:
    """Vectors of captions, centred and scaled so that their mean length is 1."""

    def __init__(self, encoder: TextEncoder, texts: Sequence[str]) -> None:
        self.texts = sorted(set(texts))
        vectors = encode_passages(encoder, self.texts).astype(np.float64)
        vectors -= vectors.mean(0)
        self.vectors = vectors / np.linalg.norm(vectors, axis=1).mean()
        self._row = {text: row for row, text in enumerate(self.texts)}

    def __getitem__(self, text: str) -> Floats:
        own: Floats = self.vectors[self._row[text]]
        return own


def rank_correlation(captions: Captions, other: TextEncoder, count: int = 1000, seed: int = 0) -> float:
    """Spearman's correlation of all cosines among some captions by the generator and by another model."""
    from scipy.stats import spearmanr

    size = min(count, len(captions.texts))
    chosen = draws(seed, "captions").choice(len(captions.texts), size, replace=False)
    ours = captions.vectors[chosen] / np.linalg.norm(captions.vectors[chosen], axis=1, keepdims=True)
    theirs = encode_passages(other, [captions.texts[row] for row in chosen])
    pairs = np.triu_indices(size, 1)
    return float(spearmanr((ours @ ours.T)[pairs], (theirs @ theirs.T)[pairs]).statistic)


class Appearance:
    """The random network from captions to what is seen; each value has mean 0 and deviation 1 over them."""

    def __init__(self, captions: Captions, settings: Settings) -> None:
        random = draws(settings.seed, "appearance")
        width = captions.vectors.shape[1]
        self._inner = settings.gain * random.standard_normal((width, settings.hidden))
        self._offset = 0.5 * random.standard_normal(settings.hidden)
        self._outer = random.standard_normal((settings.hidden, settings.width)) / math.sqrt(settings.hidden)
        images = self._image(captions.vectors)
        self._mean, self._deviation = images.mean(0), images.std(0) + 1e-6

    def __call__(self, vector: Floats) -> Floats:
        """(width,) of a caption's vector."""
        image: Floats = (self._image(vector) - self._mean) / self._deviation
        return image

    def _image(self, vectors: Floats) -> Floats:
        image: Floats = np.tanh(vectors @ self._inner + self._offset) @ self._outer
        return image


@dataclass(frozen=True)
class Simulator:
    """Videos of captions; what a video shows depends on the seed and its id, not on the others' order."""

    captions: Captions
    appearance: Appearance
    settings: Settings

    def video(
        self, name: str, duration: float, moments: Sequence[Moment], others: Sequence[tuple[str, str]]
    ) -> SimulatedVideo:
        """A video of `duration` seconds; `others` are videos and captions that strangers are drawn from."""
        settings, random = self.settings, draws(self.settings.seed, "video", name)
        count = max(1, int(clip_counts(duration, settings.clip_seconds)))
        content, underneath = np.zeros((count, settings.width)), np.zeros(settings.width)
        said, free = np.zeros((count, self.captions.vectors.shape[1])), np.ones(count, bool)
        for moment in moments:
            image, weight = self._shown(moment.text, random)
            begin, finish = self._borders(moment, random)
            seen = self._covered(begin, finish, count)
            true = self._covered(moment.start, moment.end, count)
            content += weight * self._leaked(seen)[:, None] * image
            underneath += weight * image / len(moments)
            free &= (seen <= 0.1) & (true <= 0.1)
            if random.random() < settings.spoken:
                self._speak(said, moment.text, (true >= 0.5) & (random.random(count) < 0.7), random)
        # Moments that overlap do not add up to more than one.
        content /= np.maximum(np.linalg.norm(content, axis=1, keepdims=True) / math.sqrt(settings.width), 1)
        content += settings.context * underneath
        self._add_strangers(content, said, free, [text for video, text in others if video != name], random)
        scene = settings.scene * random.standard_normal(settings.width)
        noise = settings.noise * random.standard_normal(content.shape)
        scale = math.sqrt(1 + settings.scene**2 + settings.noise**2)
        return SimulatedVideo((content + scene + noise) / scale, said)

    def _shown(self, text: str, random: np.random.Generator) -> tuple[Floats, float]:
        """What is seen of a caption, and how much."""
        weight = self.settings.faint if random.random() < self.settings.faint_moments else 1.0
        vector = self.captions[text]
        return self.appearance(vector + self.settings.step * _direction(len(vector), random)), weight

    def _borders(self, moment: Moment, random: np.random.Generator) -> tuple[float, float]:
        off = self.settings.border * (moment.end - moment.start) * random.standard_normal(2)
        return moment.start + off[0], moment.end + off[1]

    def _covered(self, start: float, end: float, count: int) -> Floats:
        """(count,) the share of each clip between two instants."""
        begins = self.settings.clip_seconds * np.arange(count)
        inside = np.minimum(begins + self.settings.clip_seconds, end) - np.maximum(begins, start)
        share: Floats = inside.clip(min=0) / self.settings.clip_seconds
        return share

    def _leaked(self, weights: Floats) -> Floats:
        beside = np.pad(weights, 1)
        own = (1 - 2 * self.settings.leak) * weights
        return own + self.settings.leak * (beside[:-2] + beside[2:])

    def _speak(self, said: Floats, text: str, where: NDArray[np.bool_], random: np.random.Generator) -> None:
        for clip in np.flatnonzero(where):
            said[clip] = self.captions[text] + 0.3 * _direction(said.shape[1], random)

    def _add_strangers(
        self,
        content: Floats,
        said: Floats,
        free: NDArray[np.bool_],
        texts: Sequence[str],
        random: np.random.Generator,
    ) -> None:
        clip = 0
        while clip < len(free):
            length = int(random.integers(1, 4)) if free[clip] else 1
            stretch = np.zeros(len(free), bool)
            stretch[clip : clip + length] = True
            # A stretch ends where a moment begins.
            stretch &= np.cumsum(~free & (np.arange(len(free)) >= clip)) == 0
            if stretch.any() and texts and random.random() < self.settings.strangers:
                text = texts[int(random.integers(len(texts)))]
                image, _ = self._shown(text, random)
                content += self._leaked(stretch.astype(np.float64))[:, None] * image
                if random.random() < self.settings.spoken:
                    self._speak(said, text, stretch, random)
            clip += max(1, int(stretch.sum()))


def _direction(width: int, random: np.random.Generator) -> Floats:
    vector = random.standard_normal(width)
    return vector / np.linalg.norm(vector)


def is_held_out(video: str, share: float = 0.1) -> bool:
    """Whether a training video is for validation: that share of them, by the hash of the id."""
    return _digest(video)[0] < share * 256


def is_tested(video: str, share: float) -> bool:
    """Whether a training video is to be tested on instead: that share of them, by the hash of the id."""
    return share > 0 and _digest(video)[0] >= (1 - share) * 256


def _digest(video: str) -> bytes:
    return hashlib.sha256(video.encode()).digest()


def fewer_videos(annotations: Annotations, count: int | None) -> Annotations:
    """The annotations of so many videos, those whose ids' hashes are lowest in all but their first byte."""
    if count is None or count >= len(annotations.videos):
        return annotations
    # The first byte says who is held out.
    names = sorted((video.id for video in annotations.videos), key=lambda video: _digest(video)[1:])
    return some_videos(annotations, annotations.name, frozenset(names[:count]).__contains__)


def some_videos(annotations: Annotations, name: str, is_chosen: Callable[[str], bool]) -> Annotations:
    """The annotations of the videos that are chosen by their ids."""
    builder = AnnotationBuilder(name)
    for video in annotations.videos:
        if is_chosen(video.id):
            builder.add_video(video.id, video.duration)
    for number, video_number, start, end, relevance in judgement_rows(annotations):
        query, video = annotations.queries[number], annotations.videos[video_number]
        if is_chosen(video.id):
            builder.add_query(query.id, query.text)
            builder.judge(query.id, video.id, start, end, relevance)
    return builder.annotations()


def simulated(
    splits: Mapping[str, Annotations], simulator: Simulator
) -> Iterator[tuple[str, SimulatedVideo]]:
    """Every video of the splits, with its id; strangers are of the same split."""
    for split in splits.values():
        moments = moments_of(split)
        others = [(video, moment.text) for video, own in moments.items() for moment in own]
        for video in split.videos:
            if video.duration is None:
                raise SystemExit(
                    f"{split.name}: video {video.id!r} has no duration; name a file that tells it"
                )
            yield video.id, simulator.video(video.id, video.duration, moments[video.id], others)


def main() -> None:
    """Read, encode, simulate, write."""
    options = _options()
    settings = Settings(seed=options.seed, noise=options.noise, clip_seconds=options.clip_seconds)
    splits = _splits(options)
    _refuse_shared_ids(splits)
    queries = [query for split in splits.values() for query in split.queries]
    captions = Captions(open_text_encoder(options.generator), [query.text for query in queries])
    simulator = Simulator(captions, Appearance(captions, settings), settings)
    options.out.mkdir(parents=True, exist_ok=True)
    for name, split in splits.items():
        write_annotations(split, _path(options, f"{name}.jsonl"), "tvr")
    write_token_features(queries, open_text_encoder(WORDS), _path(options, "words"))
    facts: dict[str, Any] = {**asdict(settings), "generator": options.generator, "simulated": True}
    made_by = Fingerprint(
        encoder=f"simulated from {options.generator}", clip_seconds=settings.clip_seconds, extra=facts
    )
    half = np.dtype(np.float16)
    # Twice, one stream each: a store is written item by item, and nothing is kept.
    seen = ((name, video.seen) for name, video in simulated(splits, simulator))
    write_store(_path(options, "video"), seen, made_by, half)
    if options.subtitles:
        said = ((name, video.said) for name, video in simulated(splits, simulator))
        write_store(_path(options, "sub"), said, made_by, half)
        write_speech(splits, Amounts(seed=options.seed), lambda name: _path(options, name))
    counts = {name: [len(own.videos), len(own.queries)] for name, own in splits.items()}
    alike = round(rank_correlation(captions, open_text_encoder(WORDS)), 3)
    told = json.dumps(
        {
            **facts,
            "words": WORDS,
            "rank correlation of captions' cosines": alike,
            "videos and queries": counts,
        },
        indent=1,
    )
    _path(options, "settings.json").write_text(told + "\n", encoding="utf-8")
    print(told)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--prefix", required=True, help="what all names begin with")
    parser.add_argument("--train", type=Path, required=True, help="judgements in any format, with durations")
    parser.add_argument("--val", type=Path, help="likewise; default: a tenth of the training videos")
    tested = parser.add_mutually_exclusive_group(required=True)
    tested.add_argument("--test", type=Path)
    tested.add_argument("--tested", type=float, default=0.0, help="share of the training videos to test on")
    parser.add_argument("--also", action="append", default=[], metavar="NAME=FILE", help="a further split")
    parser.add_argument("--also-train", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--held-out", type=float, default=0.1, help="share of training videos to validate on")
    parser.add_argument("--videos", type=int, help="how many to train and validate on; default: all")
    parser.add_argument("--test-videos", type=int, help="how many of --test and each --also; default: all")
    parser.add_argument("--generator", default=GENERATOR, help="the text model that clips are made from")
    parser.add_argument("--subtitles", action="store_true")
    parser.add_argument("--noise", type=float, default=Settings.noise)
    parser.add_argument("--clip-seconds", type=float, default=Settings.clip_seconds)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def _splits(options: argparse.Namespace) -> dict[str, Annotations]:
    splits = _training_splits("", options.train, options)
    if options.val is not None:
        splits = {
            "train": fewer_videos(read_annotations(options.train), options.videos),
            "val": read_annotations(options.val),
        }
    for name, file in _named(options.also_train).items():
        splits |= _training_splits(f"{name}_", Path(file), options)
    if options.tested:
        whole = read_annotations(options.train)
        splits["test"] = some_videos(whole, "test", lambda name: is_tested(name, options.tested))
    tested = {"test": options.test} if options.test else {}
    for name, file in {**tested, **_named(options.also)}.items():
        splits[name] = fewer_videos(read_annotations(Path(file)), options.test_videos)
    return splits


def _named(items: Sequence[str]) -> dict[str, str]:
    return dict(item.split("=", 1) for item in items)


def _training_splits(prefix: str, file: Path, options: argparse.Namespace) -> dict[str, Annotations]:
    """What is trained on, and the share of it that is held out."""
    whole = fewer_videos(read_annotations(file), options.videos)
    if not prefix:
        whole = some_videos(whole, "train", lambda name: not is_tested(name, options.tested))
    return {
        f"{prefix}train": some_videos(whole, "train", lambda name: not is_held_out(name, options.held_out)),
        f"{prefix}val": some_videos(whole, "val", lambda name: is_held_out(name, options.held_out)),
    }


def _refuse_shared_ids(splits: Mapping[str, Annotations]) -> None:
    names = [video.id for split in splits.values() for video in split.videos]
    twice = (
        next((name for name in names if names.count(name) > 1), None)
        if len(set(names)) < len(names)
        else None
    )
    if twice is not None:
        raise SystemExit(f"video {twice!r} is in two splits; each video may be in one")


def _path(options: argparse.Namespace, name: str) -> Path:
    own: Path = options.out / f"{options.prefix}_{name}"
    return own


if __name__ == "__main__":
    main()
