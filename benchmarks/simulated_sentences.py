"""Simulated sentences that are said in videos, word by word, and a tokenizer of them: what HERO reads.

A sentence is made of a caption: it keeps a share of the caption's content words, and in the place of each
other one stands a content word of another video's caption, never the one that stood there. At least one
changes, and a sentence that some caption has anyhow is not said: no query is ever said whole. Some moments
are spoken about, by a sentence of their caption near them; in the pauses sentences of other videos' captions
are said, made in the same way, so that what is said of a moment differs from the rest by its words alone.
`Amounts` has how much. Draws are their own: clips do not depend on them.

The tokenizer is a byte-level BPE laid out as RoBERTa's: special tokens first, the hidden word last.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from benchmarks.simulated_moments import Moment, draws, moments_of

from whenabouts.intake.files import write_atomically
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.formats.sentences import Sentence, in_order

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
"""The first ids; HERO's settings of them are RoBERTa's."""
HIDDEN_WORD = "<mask>"
_LESS_COMMON = 2
"""A pair of letters becomes a token where it comes so often."""

_FUNCTION = """
a about again all an and another are as at away back be been before being but by can down each from get
gets has have he her him his how i in inside into is it its itself of off on one onto or other out over
people person she so some someone something that the their them themselves then there they this through
to towards two up very was were what when where which while who with you
"""
FUNCTION_WORDS = frozenset(_FUNCTION.split())
"""Words that are kept as they are; who does it is told by nearly all captions alike."""
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")


@dataclass(frozen=True)
class Amounts:
    """How much is said, and how much of it tells of the moments."""

    spoken: float = 0.4
    """Chance that a moment is spoken about."""
    kept: float = 0.5
    """Chance of each content word of a caption to be said."""
    off: float = 2.0
    """Deviation, in seconds, of a sentence's middle from some instant of the moment that it tells of."""
    seconds_a_word: float = 0.4
    pause: float = 3.0
    """Mean seconds from one sentence to the next, where nothing tells of a moment."""
    vocabulary: int = 1500
    """Ids of the tokenizer, at most."""
    seed: int = 0


def content_words(text: str) -> list[str]:
    """The words of a text but for function words, in lower case.

    >>> content_words("A person opens the Door.")
    ['opens', 'door']
    """
    return [word for word in _WORD.findall(text.lower()) if word not in FUNCTION_WORDS]


class Speech:
    """What is said in the videos of a split, made of its captions: video -> moments."""

    def __init__(self, moments: Mapping[str, Sequence[Moment]], amounts: Amounts) -> None:
        self.amounts = amounts
        self._moments = moments
        self._whole = frozenset(_plain(moment.text) for own in moments.values() for moment in own)

    def said(self, video: str, duration: float) -> tuple[Sentence, ...]:
        """The sentences of a video, in order; they depend on the seed, its id and the split alone."""
        own = [moment.text for moment in self._moments[video]]
        others = [m.text for name, moments in self._moments.items() if name != video for m in moments]
        maker = _Maker(self.amounts, duration, own, others, draws(self.amounts.seed, "said", video))
        spoken = [
            sentence
            for sentence in (*maker.of_moments(self._moments[video]), *maker.between())
            if _plain(sentence.text) not in self._whole
        ]
        return in_order(spoken)


class _Maker:
    """Sentences of one video: its `own` captions and the `others`."""

    def __init__(
        self,
        amounts: Amounts,
        duration: float,
        own: Sequence[str],
        others: Sequence[str],
        random: np.random.Generator,
    ) -> None:
        self._amounts, self._duration, self._random = amounts, duration, random
        self._own, self._others = [f" {_plain(text)} " for text in own], others
        self._pool = [word for text in others for word in content_words(text)]
        self._distinct = frozenset(self._pool)
        self._taken: list[Sentence] = []

    def of_moments(self, moments: Iterable[Moment]) -> Iterator[Sentence]:
        """One near each moment that is spoken about."""
        for moment in moments:
            if self._random.random() < self._amounts.spoken:
                instant = self._random.uniform(moment.start, moment.end)
                yield from self._said(
                    moment.text, instant + self._amounts.off * self._random.standard_normal()
                )

    def between(self) -> Iterator[Sentence]:
        """Those of others' captions, where none is said yet."""
        instant = self._random.exponential(self._amounts.pause)
        while self._others and instant < self._duration:
            text = self._others[int(self._random.integers(len(self._others)))]
            half = self._seconds(text) / 2
            yield from self._said(text, instant + half, only_if_free=True)
            instant += 2 * half + self._random.exponential(self._amounts.pause)

    def _said(self, caption: str, middle: float, *, only_if_free: bool = False) -> Iterator[Sentence]:
        """A sentence around that instant, inside the video; none where nothing of it can change."""
        text = self._changed(caption)
        if text is None or any(own in f" {_plain(text)} " for own in self._own):
            return
        length = min(self._seconds(text), self._duration)
        start = min(max(middle - length / 2, 0), self._duration - length)
        made = Sentence(round(start, 2), round(start + length, 2), text)
        if only_if_free and any(made.start < other.end and other.start < made.end for other in self._taken):
            return
        self._taken.append(made)
        yield made

    def _changed(self, caption: str) -> str | None:
        """The caption with some content words changed, one at least; None where there is none to change."""
        words = content_words(caption)
        if not words or self._distinct <= set(words):
            return None
        changed = self._random.random(len(words)) >= self._amounts.kept
        changed[int(self._random.integers(len(words)))] |= not changed.any()
        new = iter([self._other(words) if each else word for word, each in zip(words, changed, strict=True)])
        return _WORD.sub(lambda found: found[0] if found[0].lower() in FUNCTION_WORDS else next(new), caption)

    def _other(self, words: Sequence[str]) -> str:
        """A content word of the others' captions that is not among these."""
        while (word := self._pool[int(self._random.integers(len(self._pool)))]) in words:
            pass
        return word

    def _seconds(self, text: str) -> float:
        return self._amounts.seconds_a_word * len(text.split())


def _plain(text: str) -> str:
    return " ".join(_WORD.findall(text.lower()))


def write_speech(splits: Mapping[str, Annotations], amounts: Amounts, path: Callable[[str], Path]) -> None:
    """Write the sentences of all videos of the splits, the tokenizer and the amounts, at `path` of each name.

    The tokenizer knows the captions and sentences of the split "train"; those that are said there have a file
    of their own, too, for a pre-training that sees no video that is tested.
    """
    said: dict[str, dict[str, tuple[Sentence, ...]]] = {}
    for name, split in splits.items():
        speech = Speech(moments_of(split), amounts)
        said[name] = {video.id: speech.said(video.id, video.duration or 0.0) for video in split.videos}
    write_sentences(path("said.jsonl"), {video: own for each in said.values() for video, own in each.items()})
    write_sentences(path("said_train.jsonl"), said["train"])
    texts = [query.text for query in splits["train"].queries]
    texts += [sentence.text for own in said["train"].values() for sentence in own]
    tokenizer = trained_tokenizer(texts, amounts.vocabulary)
    path("tokenizer").mkdir(exist_ok=True)
    tokenizer.save(str(path("tokenizer") / "tokenizer.json"))
    told = {
        **asdict(amounts),
        "sentences": {name: sum(map(len, each.values())) for name, each in said.items()},
        "ids": tokenizer.get_vocab_size(),
        HIDDEN_WORD: tokenizer.token_to_id(HIDDEN_WORD),
    }
    path("said_settings.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def write_sentences(path: Path, said: Mapping[str, Sequence[Sentence]]) -> None:
    """A line for each video, as `formats.sentences` reads them."""
    with write_atomically(path) as stream:
        for video, sentences in said.items():
            stream.write(msgspec.json.encode({"video_id": video, "sentences": sentences}) + b"\n")


def trained_tokenizer(texts: Iterable[str], vocabulary: int) -> Any:
    """A byte-level BPE of those texts with at most so many ids; a word is the same at a text's beginning."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token=SPECIAL[-1]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - 1,
        min_frequency=_LESS_COMMON,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([HIDDEN_WORD])
    return tokenizer
