"""HERO's encoders (Li et al., EMNLP 2020, section 3.1): sentences with their clips, then whole videos.

The cross-modal transformer reads one sequence for each sentence: the clips that the sentence covers, then its
words. Its outputs for clips are added to the projected clips, and the temporal transformer encodes the sums
of a whole video. Clips outside of all sentences skip the first transformer.

Words and clips have the same type embedding (the second of two; the first is never used). Their positions
begin at 0 in each sequence, with separate tables for words and clips.

Shapes: V videos, T clips, S sentences of a video, R sentences of a batch, L words, M places of a sequence,
D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from whenabouts.types import UsageError
from whenabouts_systems.models.parts.bert import BertEncoder
from whenabouts_systems.models.parts.layers import Dropout, InputProjection, PositionEmbedding, check_length
from whenabouts_systems.models.parts.packing import Packing, in_turn
from whenabouts_systems.models.protocol import SentenceBatch

CROSS_MODAL: Mapping[str, int] = {
    "layers": 6,
    "heads": 12,
    "feedforward": 3072,
    "vocabulary": 50272,
    "word_places": 514,
    "clip_places": 100,
}
"""Sizes of the released cross-modal transformer: RoBERTa's, with half of its layers."""
TEMPORAL: Mapping[str, int] = {"layers": 3, "heads": 12, "feedforward": 3072, "places": 514}
"""Sizes of the released temporal transformer."""

_EPSILON = 1e-12
"""Epsilon of the LayerNorms inside encoder layers, as in RoBERTa; all others have PyTorch's 1e-5."""
_TYPE = 1
_SETTING = "model.cross_modal."


def sizes_of(given: Mapping[str, int], released: Mapping[str, int], width: int, place: str) -> dict[str, int]:
    """All sizes of a transformer: the given ones over the released ones.

    Raises UsageError, naming the `place`, for an unknown size, and for heads that do not divide the `width`.
    """
    for name in sorted(set(given) - set(released)):
        raise UsageError(f"{place} has no size {name!r}; it has {', '.join(released)}")
    sizes = {**released, **given}
    if width % sizes["heads"]:
        raise UsageError(f"{place}: hidden = {width} is no multiple of heads = {sizes['heads']}")
    return sizes


@dataclass(frozen=True)
class Sequences:
    """R sentences with their clips as sequences: first the clips, then the words.

    - `owner` (R, 2): video and sentence.
    - `clips` (V, T): the sequence of each clip, -1 without one; `clip_places` (V, T): its position there.
    - `words` (R, L): ids with `word_mask`; the first is a token that begins the sentence.
    - `before` (R,): the number of clips before the words.
    """

    owner: Tensor
    clips: Tensor
    clip_places: Tensor
    words: Tensor
    word_mask: Tensor
    before: Tensor

    def __len__(self) -> int:
        return len(self.words)

    @property
    def mask(self) -> Tensor:
        """(R, M): the used positions."""
        lengths = self.before + self.word_mask.sum(1)
        steps = torch.arange(int(lengths.max()) if len(self) else 1, device=lengths.device)
        return steps < lengths[:, None]

    @property
    def word_places(self) -> Tensor:
        """(R, L): the position of each word in its sequence."""
        return self.before[:, None] + torch.arange(self.words.shape[1], device=self.words.device)


def with_context(words: Tensor, mask: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The words (V, S, L) of each sentence after those of the `count` sentences before it, and their mask."""
    shifted = [
        [functional.pad(rows, (0, 0, by, 0))[:, : rows.shape[1]] for rows in (words, mask)]
        for by in range(count, -1, -1)
    ]
    words, mask = (torch.cat(parts, 2) for parts in zip(*shifted, strict=True))
    order = mask.logical_not().argsort(dim=2, stable=True)
    longest = max(1, int(mask.sum(2).max()) if mask.numel() else 1)
    return words.gather(2, order)[:, :, :longest], mask.gather(2, order)[:, :, :longest]


def sequences_of(
    sentences: SentenceBatch,
    begin: int,
    *,
    context: int = 0,
    without_clips: bool = False,
    with_words: bool = False,
) -> Sequences:
    """The sequences of sentences that have clips, in order.

    `without_clips` adds sentences with words but no clips; `with_words` drops sentences without words.
    `begin` is the id of the token before the words; `context` is as `count` in `with_context`.
    """
    words, mask = sentences.words, sentences.mask
    if context:
        words, mask = with_context(words, mask, context)
    of_clips, count = sentences.of_clips, words.shape[1]
    belongs = of_clips[:, :, None] == torch.arange(count, device=of_clips.device)
    clips = belongs.sum(1)
    kept = (clips > 0) | mask.any(2) if without_clips else clips > 0
    kept = kept & mask.any(2) if with_words else kept
    owner = kept.nonzero()
    row = torch.full_like(clips, -1).masked_scatter(kept, torch.arange(len(owner), device=clips.device))
    rows = torch.full_like(of_clips, -1)
    if count:
        rows = row.gather(1, of_clips.clamp(min=0)).where(of_clips >= 0, -1)
    inside = rows >= 0
    # The place of a clip is how many of its sentence's clips come before it.
    earlier = (belongs.long().cumsum(1) * belongs).sum(2) - 1
    own, own_mask = words[kept], mask[kept]
    first = torch.full_like(own[:, :1], begin)
    return Sequences(
        owner,
        rows,
        earlier.where(inside, 0),
        torch.cat([first, own], 1),
        torch.cat([torch.ones_like(own_mask[:, :1]), own_mask], 1),
        clips[kept],
    )


class CrossModalTransformer(nn.Module):
    """Encodes the clips and words of a sentence together, or only the words of a query."""

    def __init__(self, features: int, width: int, dropout: float, sizes: Mapping[str, int]) -> None:
        super().__init__()
        self.words = nn.Embedding(sizes["vocabulary"], width)
        self.word_places = nn.Embedding(sizes["word_places"], width)
        self.types = nn.Embedding(2, width)
        self.word_norm = nn.LayerNorm(width)
        self.clip_features_norm = nn.LayerNorm(features)
        self.clip_projection = nn.Linear(features, width)
        self.clip_places = nn.Embedding(sizes["clip_places"], width)
        self.clip_norm = nn.LayerNorm(width)
        self.dropout = Dropout(dropout)
        self.encoder = BertEncoder(
            sizes["layers"], width, sizes["heads"], sizes["feedforward"], dropout, _EPSILON
        )

    def embedded_words(self, words: Tensor) -> Tensor:
        """(…, L, D) from ids (…, L). Raises UsageError for more words than places, and for unknown ids."""
        check_length(words.shape[-1], self.word_places.num_embeddings, "words", _SETTING + "word_places")
        if words.numel() and int(words.max()) >= self.words.num_embeddings:
            raise UsageError(
                f"a word has the id {int(words.max())}; the model knows {self.words.num_embeddings} words "
                "(model.cross_modal.vocabulary): is the tokenizer of [features] query that of the model, and "
                "model.mask_token its hidden word?"
            )
        places = torch.arange(words.shape[-1], device=words.device)
        embedded = self.words(words) + self.word_places(places) + self.types.weight[_TYPE]
        return cast("Tensor", self.dropout(self.word_norm(embedded)))

    def embedded_clips(self, clips: Tensor, places: Tensor) -> Tensor:
        """(N, D) from features (N, F) of clips at places (N,) of their sequences."""
        if places.numel():
            count = self.clip_places.num_embeddings
            check_length(int(places.max()) + 1, count, "clips of one sentence", _SETTING + "clip_places")
        projected = self.clip_projection(self.clip_features_norm(clips))
        embedded = projected + self.clip_places(places) + self.types.weight[_TYPE]
        return cast("Tensor", self.dropout(self.clip_norm(embedded)))

    def joint(self, features: Tensor, sequences: Sequences) -> Tensor:
        """(R, M, D): clips and words of each sequence at their positions; zeros in padding."""
        mask = sequences.mask
        words = self.embedded_words(sequences.words)
        inside = sequences.clips >= 0
        clips = self.embedded_clips(features[inside], sequences.clip_places[inside])
        spoken = sequences.word_mask
        rows = torch.cat([sequences.clips[inside], spoken.nonzero()[:, 0]])
        places = torch.cat([sequences.clip_places[inside], sequences.word_places[spoken]])
        embedded = torch.cat([clips, words[spoken]])
        joint = embedded.new_zeros((*mask.shape, embedded.shape[1]))
        return joint.index_put((rows, places), embedded)

    def forward(self, features: Tensor, sequences: Sequences) -> Tensor:
        """(R, M, D) from features (V, T, F) of clips."""
        return self.encoded(self.joint(features, sequences), sequences.mask)

    def encoded(self, joint: Tensor, mask: Tensor) -> Tensor:
        """(R, M, D) through the layers; padding is not computed."""
        packing = Packing.of(mask)
        return packing.unpack(self.encoder(packing.pack(joint), packing))

    def read(self, words: Tensor, mask: Tensor) -> Tensor:
        """(Q, L, D) from only words (Q, L), for queries."""
        return self.encoded(self.embedded_words(words), mask)


class TemporalTransformer(nn.Module):
    """Encodes the sums of projected clips and their cross-modal outputs, with positions."""

    def __init__(
        self, features: int, width: int, input_dropout: float, dropout: float, sizes: Mapping[str, int]
    ) -> None:
        super().__init__()
        self.projection = InputProjection(features, width, input_dropout)
        self.positions = PositionEmbedding(sizes["places"], width, dropout, "clips", "model.temporal.places")
        self.encoder = BertEncoder(
            sizes["layers"], width, sizes["heads"], sizes["feedforward"], dropout, _EPSILON
        )

    def joined(self, features: Tensor, among_words: Tensor, mask: Tensor) -> Tensor:
        """(V, T, D): projected features (V, T, F) plus the cross-modal outputs (V, T, D)."""
        return cast("Tensor", self.projection(features, mask) + among_words)

    def forward(self, clips: Tensor, mask: Tensor) -> Tensor:
        """(V, T, D) from the result of `joined`, with the mask (V, T)."""
        return in_turn(clips, mask, self.positions, self.encoder)


class HierarchicalEncoder(nn.Module):
    """Both transformers: encodes the features and sentences of videos."""

    def __init__(
        self,
        features: int,
        width: int,
        input_dropout: float,
        dropout: float,
        cross_modal: Mapping[str, int],
        temporal: Mapping[str, int],
    ) -> None:
        super().__init__()
        self.cross_modal = CrossModalTransformer(features, width, dropout, cross_modal)
        self.temporal = TemporalTransformer(features, width, input_dropout, dropout, temporal)

    def among_words(self, features: Tensor, sequences: Sequences) -> Tensor:
        """(V, T, D): each clip's output in its sentence's sequence; zeros for clips without one."""
        inside = sequences.clips >= 0
        # Computed without clips, too: processes that share a batch need gradients of the same parameters.
        encoded = self.cross_modal(features, sequences)
        clips: Tensor = encoded[sequences.clips[inside], sequences.clip_places[inside]]
        placed = clips.new_zeros((*features.shape[:2], clips.shape[1]))
        return placed.index_put((inside.nonzero()[:, 0], inside.nonzero()[:, 1]), clips)

    def forward(self, features: Tensor, mask: Tensor, sequences: Sequences) -> Tensor:
        """(V, T, D) from features (V, T, F) with their mask (V, T)."""
        among_words = self.among_words(features, sequences)
        return cast("Tensor", self.temporal(self.temporal.joined(features, among_words, mask), mask))
