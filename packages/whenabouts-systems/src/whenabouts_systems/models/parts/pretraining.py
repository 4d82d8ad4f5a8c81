"""HERO's pre-training on videos and their sentences: losses and layers of five tasks (Li et al., 3.2).

- "mlm", masked language modelling: predict hidden words from the other words of the sentence and its clips.
- "mfm", masked frame modelling: pick each hidden clip's features among those of other clips (a contrast).
- "mffr", masked frame feature regression: predict the features of each hidden clip.
- "fom", frame order modelling: shuffle clips before the temporal transformer and predict their old places.
- "vsm", video-subtitle matching: take sentences out of their videos and search with them.

Random draws (`some_of`, `hidden_words`, `new_places`, `matched`) are separate from the losses
(`Pretraining`).

Shapes as in `cross_modal`; F features of a clip, N hidden words or clips.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from whenabouts.types import UsageError
from whenabouts_systems.models.parts.cross_modal import HierarchicalEncoder, Sequences, sequences_of
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch, SentenceBatch

TASKS = ("mlm", "mfm", "mffr", "fom", "vsm")
FRAMES_OF_ORDER = 100
"""Places that frame order modelling can predict."""
_FIRST_WORD = 4
"""RoBERTa's words have the ids from here to its mask token; special tokens come first."""
_KEPT, _ANY_WORD = 0.1, 0.2


class Hidden(NamedTuple):
    """Sequences with hidden words: `where` (R, L) bool marks them, `labels` (N,) are their ids."""

    sequences: Sequences
    where: Tensor
    labels: Tensor


class PretrainingHeads(nn.Module):
    """The output layers of the tasks; that for words shares its weights with the word embeddings."""

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
        """(N, vocabulary) logits of hidden words, from encoded rows (N, D) and the table of embeddings."""
        hidden = self.word_norm(functional.gelu(self.word_dense(rows)))
        return functional.linear(hidden, table, self.word_bias)

    def clips(self, rows: Tensor) -> Tensor:
        """(N, F) predicted features of clips, from encoded rows (N, D)."""
        return cast("Tensor", self.clip_out(self.clip_norm(functional.gelu(self.clip_dense(rows)))))

    def orders(self, rows: Tensor) -> Tensor:
        """(N, places) logits of a clip's old place, from encoded rows (N, D)."""
        return cast("Tensor", self.order_out(self.order_norm(functional.gelu(self.order_wide(rows)))))


@dataclass(frozen=True)
class Pretraining:
    """The losses of the tasks, computed with an encoder and its heads."""

    encoder: HierarchicalEncoder
    heads: PretrainingHeads

    def word_loss(self, features: Tensor, hidden: Hidden) -> Tensor:
        """(N,): the cross-entropy of each hidden word."""
        return functional.cross_entropy(self.word_logits(features, hidden), hidden.labels, reduction="none")

    def word_logits(self, features: Tensor, hidden: Hidden) -> Tensor:
        """(N, vocabulary) for the hidden words, from features (V, T, F) of the clips."""
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
        """(N, N + others): logits against the hidden features, then against predictions for other clips."""
        predicted = self.predicted_clips(features, mask, sequences, hidden)
        others = self.others(mask, hidden)
        # Not in bfloat16: in sums of thousands of products it would round away the differences.
        with torch.autocast(mask.device.type, enabled=False):
            predicted = predicted.float()
            return predicted[hidden] @ torch.cat([features[hidden].float(), predicted[others]]).T

    def regression_loss(self, features: Tensor, mask: Tensor, sequences: Sequences, hidden: Tensor) -> Tensor:
        """(N,): the `error` of the predicted features of each hidden clip."""
        predicted = self.predicted_clips(features, mask, sequences, hidden)[hidden].float()
        return self.error(predicted - features[hidden])

    def predicted_clips(self, features: Tensor, mask: Tensor, sequences: Sequences, hidden: Tensor) -> Tensor:
        """(V, T, F): the predicted features of every clip while some are hidden."""
        in_sentence, in_video = (
            features.masked_fill(hidden[..., None], 0.0) + self.marks(hidden, table)
            for table in (self.heads.hidden_in_sentence, self.heads.hidden_in_video)
        )
        temporal = self.encoder.temporal
        among_words = self.encoder.among_words(in_sentence, sequences)
        return self.heads.clips(temporal(temporal.joined(in_video, among_words, mask), mask))

    def order_loss(self, features: Tensor, mask: Tensor, sequences: Sequences, places: Tensor) -> Tensor:
        """The mean cross-entropy of the old places of moved clips; `places` as in `new_places`."""
        old = torch.arange(places.shape[1], device=places.device).expand_as(places)
        moved = places >= 0
        going = places.where(moved, old)
        targets = torch.full_like(places, -1).scatter(1, going, old.where(moved, -1))
        logits = self.order_logits(features, mask, sequences, going)
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)

    def order_logits(self, features: Tensor, mask: Tensor, sequences: Sequences, going: Tensor) -> Tensor:
        """(V, T, places): logits of old places, after clip t moved to place `going` (V, T).

        Raises UsageError for a video of more than `FRAMES_OF_ORDER` clips.
        """
        if mask.shape[1] > FRAMES_OF_ORDER:
            raise UsageError(
                f"hero: a video has {mask.shape[1]} clips, but pre-training by order (fom) has only "
                f"{FRAMES_OF_ORDER} places: set features.max_clips = {FRAMES_OF_ORDER}, or leave fom "
                "out of model.pretraining"
            )
        temporal = self.encoder.temporal
        joined = temporal.joined(features, self.encoder.among_words(features, sequences), mask)
        places = going[..., None].expand_as(joined)
        return self.heads.orders(temporal(torch.zeros_like(joined).scatter(1, places, joined), mask))

    def others(self, mask: Tensor, hidden: Tensor) -> Tensor:
        """(V, T) bool: the clips that are negatives of hidden ones."""
        return mask & ~hidden

    def error(self, difference: Tensor) -> Tensor:
        """(N,) sums of squares of differences (N, F)."""
        return difference.square().sum(1)

    def marks(self, hidden: Tensor, table: nn.Embedding) -> Tensor:
        """(V, T, F): the learned vector of hidden clips, zeros for others."""
        return cast("Tensor", table(hidden.long()).masked_fill(~hidden[..., None], 0.0))


def check_shares(given: Mapping[str, float]) -> None:
    """Raise UsageError for an unknown task, or if the shares of all tasks are 0."""
    for name in given:
        if name not in TASKS:
            raise UsageError(f"hero: pretraining has no task {name!r}; it has {', '.join(TASKS)}")
    if given and not sum(given.values()):
        raise UsageError("hero: the shares of all tasks of pretraining are 0; give one a share")


def drawn_task(shares: Mapping[str, float]) -> str:
    """Draw a task in proportion to the shares."""
    weights = torch.tensor(list(map(float, shares.values())))
    return list(shares)[int(torch.multinomial(weights, 1))]


def some_of(mask: Tensor, share: float) -> Tensor:
    """(B, T) bool: draw from `mask` with probability `share`, at least one in each row that is not empty."""
    draws = torch.rand(mask.shape).to(mask.device)
    chosen = (draws < share) & mask
    lacking = mask.any(1) & ~chosen.any(1)
    first = draws.masked_fill(~mask, 2.0).argmin(1)
    return chosen | (lacking[:, None] & (torch.arange(mask.shape[1], device=mask.device) == first[:, None]))


def hidden_words(
    sentences: SentenceBatch, tokens: tuple[int, int], vocabulary: int, share: float, context: int = 0
) -> Hidden | None:
    """Hide words of the sentences as BERT does; None if no video has speech.

    `tokens` are the ids of the token that begins a sequence and of the mask. Of ten hidden words, eight
    become the mask, one becomes a random word and one stays.
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
    others = torch.randint(*_ids_of_words(mask_token, vocabulary), words.shape).to(words.device)
    shown = torch.where(draws < _KEPT, words, torch.where(draws < _ANY_WORD, others, mask_token))
    return Hidden(replace(sequences, words=shown.where(where, words)), where, words[where])


def _ids_of_words(mask_token: int, vocabulary: int) -> tuple[int, int]:
    """The range of the ids of words: the first one, and the one after the last.

    RoBERTa's words precede its mask token, BERT's follow it: the larger of the two ranges is returned.
    """
    before, behind = (_FIRST_WORD, mask_token), (mask_token + 1, vocabulary)
    first, end = max(before, behind, key=lambda ids: ids[1] - ids[0])
    return (first, end) if first < end else (0, vocabulary)


def new_places(mask: Tensor, share: float) -> Tensor:
    """(V, T) int64: the new places of clips that are drawn and shuffled; -1 for all others."""
    chosen = some_of(mask, share)
    places = torch.full(mask.shape, -1, device=mask.device)
    for video, drawn in enumerate(chosen):
        from_places = drawn.nonzero()[:, 0]
        places[video, from_places] = from_places[torch.randperm(len(from_places)).to(mask.device)]
    return places


def matched(videos: ClipBatch, most: int, words: int) -> Batch | None:
    """A batch whose queries are up to `most` sentences of each video; None if none has words and clips.

    A query is the first `words` words of its sentence; the video loses this sentence. The query's moment is
    from the sentence's first clip to its last.
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
    silent = replace(sentences, mask=sentences.mask & ~chosen[..., None])
    return Batch(
        QueryBatch(sentences.words[own, number, :words], sentences.mask[own, number, :words]),
        replace(videos, sentences=silent),
        own,
        torch.stack([first, last], 1),
        own[:, None] == torch.arange(len(videos), device=own.device),
    )
