"""How long a step of HERO's fine-tuning takes at the released size, against the same written down plainly.

    python -m benchmarks.hero_step [--videos 4] [--rounds 3] [--threads 1]
                                   [--out benchmarks/results/hero_step.json]

A step is forward, backward and AdamW on so many random queries with a video each, in the shape of TVR: clips
as in `training_step`, of 4,352 dimensions; queries of 6 to 29 tokens. TVR's subtitles were not at hand:
sentences are as long, in seconds and in words, as 27,259 captions of two lines of filmed lectures are
(`SECONDS`, `TOKENS`); a tenth of the clips is in none. Every step learns
borders. Ours and the plain version (`plain_hero`; a test holds its losses and gradients equal) take turns;
see `step_ratio` for what is told, and `places` for how many places of sentences each computes.

The plain version pads each sentence to the longest of a batch, so it matters how large that is. Measured are
the first videos of the released batch of 32, padded as in that batch: a whole step takes minutes and 12 GB.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from benchmarks.plain_hero import Collated, Losses, PlainHero, collated
from benchmarks.step_ratio import in_turns, options, steps_of, told
from benchmarks.training_step import lengths_as_in_tvr
from torch import Tensor
from torch.nn import functional

from whenabouts_systems.models.hero import Config, Model
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch, SentenceBatch

WIDTH, FIRST_WORD, WORDS, BATCH = 4352, 4, 50_000, 32
SHARES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 1.0)
SECONDS = (0.4, 2.0, 3.3, 4.3, 5.5, 7.5, 9.9, 23.9)
TOKENS = (1, 5, 10, 14, 17, 23, 28, 51)
"""What that share of captions stays under; the two are correlated."""
CORRELATION = 0.56
Settings = dict[str, Any]


def random_batch(count: int = BATCH) -> Batch:
    """So many queries with a video each."""
    random = torch.Generator().manual_seed(0)
    lengths = lengths_as_in_tvr(random)[:count]
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    of_clips, said = _sentences(lengths.tolist(), random)
    heard = torch.arange(int(said.max())) < said[..., None]
    asked = torch.randint(6, 30, (count,), generator=random)
    asked_mask = torch.arange(int(asked.max())) < asked[:, None]

    def words(shape: torch.Size) -> Tensor:
        return torch.randint(FIRST_WORD, WORDS, shape, generator=random)

    rows = torch.randn(*mask.shape, WIDTH, generator=random)
    first = (torch.rand(count, generator=random) * 0.8 * lengths).long()
    own = torch.arange(count)
    return Batch(
        QueryBatch(words(asked_mask.shape), asked_mask),
        ClipBatch(
            {"frames": functional.normalize(rows, dim=-1) * mask[..., None]},
            mask,
            sentences=SentenceBatch(words(heard.shape), heard, of_clips),
        ),
        own,
        torch.stack([first, first + lengths // 8], 1),
        own[:, None] == own,
    )


def _sentences(lengths: list[int], random: torch.Generator) -> tuple[Tensor, Tensor]:
    """The sentence of each clip (V, T), and how many words each has (V, S)."""
    of_clips, words = torch.full((len(lengths), max(lengths)), -1), []
    for video, length in enumerate(lengths):
        own: list[int] = []
        at = 0
        while at < length:
            first, second = torch.randn(2, generator=random)
            lasts = torch.special.ndtr(CORRELATION * first + math.sqrt(1 - CORRELATION**2) * second)
            clips = min(max(1, round(_quantile(SECONDS, lasts) / 1.5)), length - at)
            if float(torch.rand((), generator=random)) >= 0.1:
                of_clips[video, at : at + clips] = len(own)
                own.append(round(_quantile(TOKENS, torch.special.ndtr(first))))
            at += clips
        words.append(torch.tensor(own))
    return of_clips, torch.nn.utils.rnn.pad_sequence(words, batch_first=True)


def _quantile(table: Sequence[float], share: Tensor) -> float:
    return float(np.interp(float(share), SHARES, table))


def first_of(batch: Batch, count: int) -> Batch:
    """The first queries with their videos, padded as all are."""
    videos, rows = batch.videos, torch.arange(count)
    assert videos.sentences is not None
    streams = {name: features[:count] for name, features in videos.streams.items()}
    return Batch(
        QueryBatch(batch.queries.tokens[:count], batch.queries.mask[:count]),
        ClipBatch(streams, videos.mask[:count], sentences=videos.sentences.take(rows)),
        rows,
        batch.spans[:count],
        batch.positives[:count, :count],
    )


def first_laid_out(made: Collated, count: int) -> Collated:
    """The same of what the plain version wants."""
    said = sum(map(len, made.frames[:count]))
    lengths = {"words": said, "clips": said, "index": said, "mask": said}
    return Collated(**{name: rows[: lengths.get(name, count)] for name, rows in vars(made).items()})


def laid_out(batch: Batch, config: Config) -> Collated:
    """The batch as the plain version wants it; sentences without clips are left out."""
    sentences = batch.videos.sentences
    assert sentences is not None
    words: list[list[list[int]]] = []
    frames: list[list[list[int]]] = []
    for ids, mask, of_clips in zip(sentences.words, sentences.mask, sentences.of_clips, strict=True):
        owned = [(of_clips == number).nonzero()[:, 0].tolist() for number in range(len(ids))]
        words.append(
            [
                [config.sentence_token, *one[real].tolist()]
                for one, real, own in zip(ids, mask, owned, strict=True)
                if own
            ]
        )
        frames.append([own for own in owned if own])
    rows = torch.cat([batch.videos.streams[name] for name in config.streams], 2)
    queries = functional.pad(batch.queries.tokens, (1, 0), value=config.query_token)
    heard = functional.pad(batch.queries.mask, (1, 0), value=True)
    return collated(words, frames, (rows, batch.videos.mask), (queries, heard), batch.spans)


def heads_of(config: Config) -> tuple[int, int, int]:
    """Heads of the cross-modal and of the temporal transformer, and of the query's attention."""
    return config.cross_modal.get("heads", 12), config.temporal.get("heads", 12), config.heads


def main() -> None:
    """Measure, show, and write."""
    chosen = options(__doc__, videos=4, rounds=3)
    config, whole = Config(streams={"frames": WIDTH}, text_encoder="numbers"), random_batch()
    batch = first_of(whole, chosen.videos)
    made = first_laid_out(laid_out(whole, config), chosen.videos)
    del whole
    torch.manual_seed(0)
    ours = Model(config).train()
    weights = {name: one.detach().clone().requires_grad_() for name, one in ours.named_parameters()}
    system = PlainHero(weights, heads_of(config), config.dropout)
    steps = steps_of(ours, lambda: ours.loss(batch).values(), weights, lambda: system.losses(made, Losses()))
    size = {"videos": chosen.videos, "of_a_batch_of": BATCH, "hidden": config.hidden}
    places = {"ours": int(made.mask.sum()), "plain": made.mask.numel()}
    told({**size, "places": places, **in_turns(steps, chosen.rounds)}, chosen.out)


if __name__ == "__main__":
    main()
