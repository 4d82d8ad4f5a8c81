"""HERO's pre-training on videos and their sentences (Li et al., section 3.2): five tasks, and their heads.

- "mlm", masked language modelling: words of a sentence are hidden, and told from the others and its clips.
- "mfm", masked frame modelling: clips are hidden, and each is told from the clips that are not (a contrast).
- "mffr", the same by regression: the features of each hidden clip are told.
- "fom", frame order modelling: clips change places before the temporal transformer, which tells the old ones.
- "vsm", video-subtitle matching: sentences, taken out of their videos, are queries for them (`matched`).

What is drawn is drawn apart from what is computed of it: `hidden_words`, `hidden_clips`, `new_places`,
`matched`; then `word_loss`, `clip_loss`, `regression_loss`,
`order_loss`.

`as_released` restores the program: padded clips are negatives of hidden ones; regression counts distances
and not their squares; a vector that nothing trains is added to clips that are not hidden; a sentence of one
clip is to end at the next.

Shapes as in `cross_modal`; F features of a clip, N what is hidden.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from whenabouts.types import UsageError
from whenabouts_systems.models.parts.cross_modal import HierarchicalEncoder, Sequences, sequences_of
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch, SentenceBatch

Task = Literal["mlm", "mfm", "mffr", "fom", "vsm"]
TASKS: tuple[Task, ...] = ("mlm", "mfm", "mffr", "fom", "vsm")
FRAMES_OF_ORDER = 100
"""Places that frame order modelling tells apart."""
_FIRST_WORD = 4
"""RoBERTa's words begin behind its special tokens, and end before the one that hides."""
_KEPT, _ANY_WORD = 0.1, 0.2


class Hidden(NamedTuple):
    """Sequences with hidden words: which of their words (R, L) these are, and the ids (N,) they had."""

    sequences: Sequences
    where: Tensor
    labels: Tensor


class PretrainingHeads(nn.Module):
    """What the tasks have of their own; words are told by the table that reads them."""

    def __init__(self, features: int, width: int, vocabulary: int) -> None:
        super().__init__()
        self.word_dense = nn.Linear(width, width)
        self.word_norm = nn.LayerNorm(width)
        self.word_bias = nn.Parameter(torch.zeros(vocabulary))
        self.clip_dense = nn.Linear(width, width)
        self.clip_norm = nn.LayerNorm(width)
        self.clip_out = nn.Linear(width, features)
        self.hidden_in_sentence = nn.Embedding(2, features, padding_idx=0)
        self.hidden_in_video = nn.Embedding(2, features, padding_idx=0)
        self.order_wide = nn.Linear(width, 2 * width)
        self.order_norm = nn.LayerNorm(2 * width)
        self.order_out = nn.Linear(2 * width, FRAMES_OF_ORDER)

    def words(self, rows: Tensor, table: Tensor) -> Tensor:
        """(N, vocabulary) logits from (N, D)."""
        hidden = self.word_norm(functional.gelu(self.word_dense(rows)))
        return functional.linear(hidden, table, self.word_bias)

    def clips(self, rows: Tensor) -> Tensor:
        """(N, F) features from (N, D)."""
        features: Tensor = self.clip_out(self.clip_norm(functional.gelu(self.clip_dense(rows))))
        return features

    def orders(self, rows: Tensor) -> Tensor:
        """(N, places) logits from (N, D)."""
        logits: Tensor = self.order_out(self.order_norm(functional.gelu(self.order_wide(rows))))
        return logits


@dataclass(frozen=True)
class Pretraining:
    """An encoder with its heads, and whether it computes what the released program does."""

    encoder: HierarchicalEncoder
    heads: PretrainingHeads
    as_released: bool = False

    def word_loss(self, features: Tensor, hidden: Hidden) -> Tensor:
        """(N,): the cross-entropy of each hidden word."""
        return functional.cross_entropy(self.word_logits(features, hidden), hidden.labels, reduction="none")

    def word_logits(self, features: Tensor, hidden: Hidden) -> Tensor:
        """(N, vocabulary) of the hidden words, from features (V, T, F) of the clips."""
        cross, sequences = self.encoder.cross_modal, hidden.sequences
        encoded = cross(features, sequences)
        rows, places = hidden.where.nonzero()[:, 0], sequences.word_places[hidden.where]
        return self.heads.words(encoded[rows, places], cross.words.weight)

    def clip_loss(self, features: Tensor, mask: Tensor, sequences: Sequences, hidden: Tensor) -> Tensor:
        """(N,): the cross-entropy of each hidden clip among all clips; `hidden` (V, T) bool."""
        logits = self.clip_logits(features, mask, sequences, hidden)
        own = torch.arange(len(logits), device=logits.device)
        return functional.cross_entropy(logits, own, reduction="none")

    def clip_logits(self, features: Tensor, mask: Tensor, sequences: Sequences, hidden: Tensor) -> Tensor:
        """(N, N + others): products with what was hidden, then with what is told of the other clips."""
        predicted = self.predicted_clips(features, mask, sequences, hidden)
        others = ~hidden if self.as_released else mask & ~hidden
        # Sums of thousands of products: bfloat16 would lose what tells them apart.
        with torch.autocast(mask.device.type, enabled=False):
            predicted = predicted.float()
            return predicted[hidden] @ torch.cat([features[hidden].float(), predicted[others]]).T

    def regression_loss(self, features: Tensor, mask: Tensor, sequences: Sequences, hidden: Tensor) -> Tensor:
        """(N,): the squared distance of what is told of each hidden clip from its features."""
        apart = self.predicted_clips(features, mask, sequences, hidden)[hidden].float() - features[hidden]
        return apart.norm(dim=1) if self.as_released else apart.square().sum(1)

    def predicted_clips(self, features: Tensor, mask: Tensor, sequences: Sequences, hidden: Tensor) -> Tensor:
        """(V, T, F): what is told of every clip while some are hidden."""
        in_sentence, in_video = (
            self._with_hidden(features, hidden, table)
            for table in (self.heads.hidden_in_sentence, self.heads.hidden_in_video)
        )
        temporal = self.encoder.temporal
        among_words = self.encoder.among_words(in_sentence, sequences)
        return self.heads.clips(temporal(temporal.joined(in_video, among_words, mask), mask))

    def order_loss(self, features: Tensor, mask: Tensor, sequences: Sequences, places: Tensor) -> Tensor:
        """The mean cross-entropy of old places; `places` (V, T) is where each clip goes, -1: not drawn."""
        old = torch.arange(places.shape[1], device=places.device).expand_as(places)
        moved = places >= 0
        going = places.where(moved, old)
        targets = torch.full_like(places, -1).scatter(1, going, old.where(moved, -1))
        logits = self.order_logits(features, mask, sequences, going)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)

    def order_logits(self, features: Tensor, mask: Tensor, sequences: Sequences, going: Tensor) -> Tensor:
        """(V, T, places): clip t stands at place `going` (V, T) before the temporal transformer."""
        if mask.shape[1] > FRAMES_OF_ORDER:
            raise UsageError(
                f"hero: a video of {mask.shape[1]} clips, and pre-training by order (fom) tells "
                f"{FRAMES_OF_ORDER} places apart: set features.max_clips = {FRAMES_OF_ORDER}, or leave fom "
                "out of model.pretraining"
            )
        temporal = self.encoder.temporal
        joined = temporal.joined(features, self.encoder.among_words(features, sequences), mask)
        there = going[..., None].expand_as(joined)
        return self.heads.orders(temporal(torch.zeros_like(joined).scatter(1, there, joined), mask))

    def _with_hidden(self, features: Tensor, hidden: Tensor, table: nn.Embedding) -> Tensor:
        """Features with zeros and a learned vector where clips are hidden."""
        rows = table(hidden.long())
        if not self.as_released:
            rows = rows.masked_fill(~hidden[..., None], 0.0)
        shown: Tensor = features.masked_fill(hidden[..., None], 0.0) + rows
        return shown


def shares_of(given: Mapping[str, float]) -> dict[str, float]:
    """The share of each task. Raises UsageError for a task that there is not, and where all shares are 0."""
    for name in given:
        if name not in TASKS:
            raise UsageError(f"hero: pretraining has no task {name!r}; it has {', '.join(TASKS)}")
    if given and not sum(given.values()):
        raise UsageError("hero: the shares of all tasks of pretraining are 0; give one a share")
    return dict(given)


def drawn_task(shares: Mapping[str, float]) -> str:
    """One of the tasks, as often as its share."""
    names = list(shares)
    weights = torch.tensor([float(shares[name]) for name in names])
    return names[int(torch.multinomial(weights, 1))]


def some_of(mask: Tensor, share: float) -> Tensor:
    """(B, T) bool: each of what is there with that probability, in every row that has any at least one."""
    draws = torch.rand(mask.shape).to(mask.device)
    chosen = (draws < share) & mask
    lacking = mask.any(1) & ~chosen.any(1)
    first = draws.masked_fill(~mask, 2.0).argmin(1)
    return chosen | (lacking[:, None] & (torch.arange(mask.shape[1], device=mask.device) == first[:, None]))


def hidden_words(
    sentences: SentenceBatch, tokens: tuple[int, int], vocabulary: int, share: float, context: int = 0
) -> Hidden | None:
    """Sentences with words, some of which are hidden as by BERT; None where nobody speaks.

    `tokens`: what begins a sequence, and what stands for a hidden word. Of ten hidden words one stays as it
    is, one becomes any word of the `vocabulary`.
    """
    begin, mask_token = tokens
    sequences = sequences_of(sentences, begin, context=context, without_clips=True, with_words=True)
    if not len(sequences):
        return None
    words = sequences.words
    own = sequences.word_mask.clone()
    own[:, 0] = False  # the token that begins
    where = some_of(own, share)
    draws = torch.rand(words.shape).to(words.device)
    others = torch.randint(*_words_beside(mask_token, vocabulary), words.shape).to(words.device)
    shown = torch.where(draws < _KEPT, words, torch.where(draws < _ANY_WORD, others, mask_token))
    return Hidden(replace(sequences, words=shown.where(where, words)), where, words[where])


def _words_beside(mask_token: int, vocabulary: int) -> tuple[int, int]:
    """The ids of words, from and up to: those before the token that hides (RoBERTa's) or behind it (BERT's).

    Whichever are more; tokenizers have other special tokens on the other side.
    """
    before, behind = (_FIRST_WORD, mask_token), (mask_token + 1, vocabulary)
    first, end = max(before, behind, key=lambda ids: ids[1] - ids[0])
    return (first, end) if first < end else (0, vocabulary)


def new_places(mask: Tensor, share: float) -> Tensor:
    """(V, T) int64: where clips go that are drawn, who change places among themselves; -1 for all others."""
    chosen = some_of(mask, share)
    places = torch.full(mask.shape, -1, device=mask.device)
    for video, drawn in enumerate(chosen):
        from_places = drawn.nonzero()[:, 0]
        places[video, from_places] = from_places[torch.randperm(len(from_places)).to(mask.device)]
    return places


def matched(videos: ClipBatch, most: int, words: int, *, as_released: bool = False) -> Batch | None:
    """Up to `most` sentences of each video as queries, taken out of it; None where there is no such sentence.

    A sentence has words, of which so many first `words` are asked, and clips. Its moment is from its first
    clip to its last.
    """
    sentences = videos.sentences
    assert sentences is not None
    count = sentences.mask.shape[1]
    covers = sentences.of_clips[:, None] == torch.arange(count, device=videos.mask.device)[:, None]
    fits = covers.any(2) & sentences.mask.any(2)
    order = torch.rand(fits.shape).to(fits.device).masked_fill(~fits, 2.0).argsort(1)
    ranks = order.argsort(1)
    chosen = fits & (ranks < most)
    own, number = chosen.nonzero().unbind(1)
    if not len(own):
        return None
    clips = covers[own, number]
    first = clips.long().argmax(1)
    last = clips.shape[1] - 1 - clips.flip(1).long().argmax(1)
    if as_released:
        ends = videos.mask.sum(1)[own] - 1
        last = torch.minimum(torch.maximum(first + 1, last), ends)
    silent = replace(sentences, mask=sentences.mask & ~chosen[..., None])
    return Batch(
        QueryBatch(sentences.words[own, number, :words], sentences.mask[own, number, :words]),
        replace(videos, sentences=silent),
        own,
        torch.stack([first, last], 1),
        own[:, None] == torch.arange(len(videos), device=own.device),
    )
