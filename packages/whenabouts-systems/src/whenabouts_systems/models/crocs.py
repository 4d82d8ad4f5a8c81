"""CroCs: MMN trained with the negatives that can be trusted, against confident answers in the wrong video.

Papers 001 and 002 ("MVMR", section 6). The network, the scores and the vectors in an index are MMN's. The
training differs; it has two stages, each a training of its own:

- "first" (the papers' CroCs with a dagger): a video that may answer a query is none of its negatives, in
  contrast and in cross-entropy (equation 1). `Batch.positives` says which; `[data] positives = "similar"`
  makes them of sentences whose similarity reaches 0.9.
- "second": learning goes on from the first stage's weights, at a tenth of the learning rate, with hard
  negatives alone: videos drawn for each query and queries drawn for each video (equations 2 and 3,
  `training/hard_negatives.py`). `Batch.negatives`, `other_queries` and `negative_queries` hold them.

Where the papers are not clear, this was chosen:

- Cells of the query's own video that miss the truth stay negatives in both stages, and so do sentences of the
  same video that describe another moment: V- leaves out whole other videos, and figure 5 shows negatives
  "intra- and inter-video". Released likewise for cells.
- "BCE for positive and potential true-negative samples": cells of the negative videos have a target of 0.
  Equation 4 takes one mean over all candidates. Of a batch of 48 videos 47 in 48 would then be negatives of
  target 0 and the truth would not count; the two means are taken apart, as released in the second stage, and
  that of the negatives is weighted by `negative_bce` (0.3: a released setting that no released file reads).
- Equation 5 is a sum; contrast is a mean over the positive pairs, as released: lambda was chosen for it.
- Appendix B.1 says that moments as well as sentences pass a layer normalisation, and that the network is
  exactly MMN's. MMN's program normalises sentences alone, and so does that of CroCs; so does this.
- lambda is 0.05 for TACoS in the paper, 0.1 in the released settings; see the experiments.

`as_released` computes the released losses, faults included, and MMN's:

- A pair that is filtered out is not left out of the sum: its cosine becomes 0, so that it adds exp(0) = 1.
  For the moments' side that includes a sentence's own pair, where its own video counts as similar (as true
  similarities have it): the margin alone then stands in the denominator.
- All logits of a denominator, the positive's included, are multiplied by the number of all pairs divided by
  that of the kept ones; the numerator is not.
- Of the drawn queries' loss the matrices of one positive sentence and of all are broadcast: the mean is over
  as many rows as there are sentences, of which only the first is the loss of the paper.
- The mean cross-entropy of negatives is divided once more by the number of maps.

A cross-entropy weighted 50-fold is built there and never called. No released file calls the first-stage or
the second-stage loss, nor is there a sampler.

Shapes as in `parts/mutual_matching.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from whenabouts.types import UsageError
from whenabouts_systems.models import mmn
from whenabouts_systems.models.mmn import KEYS, SHARPNESS, Encoded, rule_of, truth_of
from whenabouts_systems.models.parts.cross_directional import chosen_pairs
from whenabouts_systems.models.parts.mutual_matching import (
    Keep,
    Rule,
    Truth,
    allowed_sentences,
    own_sentence,
    positive_cells,
)
from whenabouts_systems.models.protocol import Batch, Losses, QueryEncoding
from whenabouts_systems.models.settings import NotNegative

Stage = Literal["first", "second"]
_RELEASED_EPSILON = 1e-6
_ABSENT = -1e30
"""A logit that adds nothing, below all that the factor of the released denominators makes."""


@dataclass(frozen=True)
class Config(mmn.Config):
    """The settings of CroCs: MMN's, the stage, and the weight of negative videos in the cross-entropy."""

    stage: Stage = "first"
    negative_bce: NotNegative = 0.3
    """What the mean cross-entropy of the cells of negative videos is multiplied by; 0: as MMN."""
    contrast_epochs: int | None = 14

    def __post_init__(self) -> None:
        """UsageError where a setting makes no model."""
        self.check("crocs")

    @property
    def uses_pairs(self) -> bool:
        """True: relevant pairs of queries say which videos may answer a query."""
        return True

    @property
    def uses_negatives(self) -> bool:
        """Whether a batch must have hard negatives."""
        return self.stage == "second"


class Model(mmn.Model):
    """CroCs with fresh weights: retriever and localizer (see `protocol`)."""

    config: Config

    def loss(self, batch: Batch) -> Losses:
        """MMN's three terms over the negatives that count, and `negatives`: their cross-entropy.

        Raises UsageError where the second stage is given no hard negatives.
        """
        queries, videos = self._sentences(batch), self.encoded(batch.videos)
        truth = truth_of(batch, videos)
        if self.config.stage == "first":
            pairs = ~_with_own(batch)
            keep = Keep.of_pairs(pairs, batch.video_of)
        else:
            pairs, keep = _hard(batch, len(queries))
        terms = self.terms(batch, queries, videos, truth, keep)
        if self.config.as_released and self.config.stage == "first":
            return terms
        return {**terms, "negatives": self._negative_bce(batch, queries, videos, pairs)}

    def contrast(
        self, batch: Batch, queries: QueryEncoding, videos: Encoded, truth: Truth, keep: Keep
    ) -> tuple[Tensor, Tensor]:
        """MMN's two terms, or those of the released program."""
        if not self.config.as_released:
            return super().contrast(batch, queries, videos, truth, keep)
        sentences = queries.search[KEYS]
        if self.config.stage == "first":
            return filtered_matching(
                sentences, videos.contrast, truth, rule_of(self.config), _with_own(batch)
            )
        _, of_sentences = super().contrast(batch, queries, videos, truth, keep)
        return self._drawn_sentences(batch, sentences, videos, truth), of_sentences

    def _sentences(self, batch: Batch) -> QueryEncoding:
        """The batch's queries, and behind them those that are negatives only."""
        queries = self.encode_queries(batch.queries)
        if self.config.stage == "first" or batch.other_queries is None or not len(batch.other_queries):
            return queries
        others = self.encode_queries(batch.other_queries)
        return QueryEncoding(
            {KEYS: torch.cat([queries.search[KEYS], others.search[KEYS]])},
            {"iou": torch.cat([queries.parts["iou"], others.parts["iou"]])},
        )

    def _negative_bce(self, batch: Batch, queries: QueryEncoding, videos: Encoded, pairs: Tensor) -> Tensor:
        """The cross-entropy of cells of negative videos, and of negative queries with a video's cells."""
        sentences, released, count = queries.parts["iou"], self.config.as_released, len(batch)
        logits = SHARPNESS * torch.einsum("sd,vpd->svp", sentences[:count], videos.iou)
        loss = negative_cross_entropy(logits, pairs, videos.there, as_released=released)
        if len(sentences) > count and batch.negative_queries is not None:
            drawn = batch.negative_queries
            cells, there = videos.iou[: len(drawn)], videos.there[: len(drawn)]
            logits = SHARPNESS * torch.einsum("sd,vpd->svp", sentences[count:], cells)
            drawn_pairs = chosen_pairs(drawn, len(sentences) - count).T
            loss = loss + negative_cross_entropy(logits, drawn_pairs, there, as_released=released)
        return self.config.negative_bce * loss

    def _drawn_sentences(self, batch: Batch, sentences: Tensor, videos: Encoded, truth: Truth) -> Tensor:
        """The moments' term as released: the program takes one sentence, so each is taken by itself."""
        rule, count = rule_of(self.config), len(batch)
        moments = videos.contrast[batch.video_of[:, None], positive_cells(truth, rule.positives).chosen]
        drawn = _drawn_queries(batch, len(sentences))
        others = sentences[count:]
        matched = torch.cat(
            [torch.einsum("skd,sd->sk", moments, sentences[:count])[..., None], moments @ others.T], 2
        )
        there = torch.cat([drawn.new_ones((count, 1)), drawn], 1)
        return drawn_sentences(matched.float(), there, rule).mean()


def _with_own(batch: Batch) -> Tensor:
    """(Q, V) bool: pairs that are no negatives, each query's own video among them."""
    return batch.positives.scatter(1, batch.video_of[:, None], True)


def _hard(batch: Batch, sentences: int) -> tuple[Tensor, Keep]:
    """(Q, V) bool: the chosen videos; and the pairs that are compared: with chosen ones, and in one video."""
    if batch.negatives is None:
        raise UsageError(
            "crocs: stage = 'second' has no hard negatives; name the run of the first stage in [data] "
            "first_stage, or train stage = 'first'"
        )
    answering = _with_own(batch)
    pairs = chosen_pairs(batch.negatives, answering.shape[1]) & ~answering
    same = batch.video_of[:, None] == batch.video_of
    return pairs, Keep(torch.cat([same, _drawn_queries(batch, sentences)], 1), pairs)


def _drawn_queries(batch: Batch, sentences: int) -> Tensor:
    """(Q, E) bool: which of the queries that are negatives only were chosen for each query's own video."""
    others = sentences - len(batch)
    if batch.negative_queries is None or not others:
        return torch.zeros((len(batch), others), dtype=torch.bool, device=batch.video_of.device)
    return chosen_pairs(batch.negative_queries, others)[batch.video_of]


def negative_cross_entropy(
    logits: Tensor, pairs: Tensor, cells: Tensor, *, as_released: bool = False
) -> Tensor:
    """The cross-entropy of cells of videos that do not answer: their target is 0; 0 where there is none.

    `logits` (S, V, P) of the IoU head, `pairs` (S, V) bool: which videos are negatives of a sentence,
    `cells` (V, P) bool. A mean over all cells; as released it is divided once more by the number of pairs.
    """
    counted = (pairs[..., None] & cells).to(logits.dtype)
    mean = (functional.softplus(logits) * counted).sum() / counted.sum().clamp(min=1)
    return mean / pairs.sum().clamp(min=1) if as_released else mean


def filtered_matching(
    sentences: Tensor, cells: Tensor, truth: Truth, rule: Rule, filtered: Tensor
) -> tuple[Tensor, Tensor]:
    """The two contrastive terms of the first stage; `filtered` (S, V) bool: similarity above the threshold.

    As `mutual_matching`: `sentences` (S, D), `cells` (V, P, D) unit vectors; means over positive pairs.
    """
    positives = positive_cells(truth, rule.positives)
    matched = (cells[truth.video_of[:, None], positives.chosen] @ sentences.T).float()
    own = own_sentence(matched)
    numerator = (own - rule.margin) / rule.moment_temperature
    of_moments = _filtered_moments(matched, own, truth, rule, filtered) - numerator
    numerator = (own - rule.margin) / rule.sentence_temperature
    of_sentences = _filtered_sentences(sentences, cells, own, truth, rule, filtered) - numerator
    return positives.mean(of_moments), positives.mean(of_sentences)


def _filtered_moments(matched: Tensor, own: Tensor, truth: Truth, rule: Rule, filtered: Tensor) -> Tensor:
    """(S, K) logarithms of the denominators of moments; `matched` (S, K, S), `own` (S, K)."""
    zero = filtered[:, truth.video_of].T
    # All logits are multiplied by the share of pairs that are kept, inverted.
    weight = zero.numel() / (~zero).sum().clamp(min=1) / rule.moment_temperature
    there = allowed_sentences(truth, rule, Keep(), len(matched))
    there = there & ~torch.eye(len(there), dtype=torch.bool, device=there.device)
    others = (matched.masked_fill(zero[:, None], 0.0) * weight).masked_fill(~there[:, None], _ABSENT)
    # The own pair's cosine is zeroed too, where its video is filtered; the margin stays.
    itself = (own.masked_fill(zero.diagonal()[:, None], 0.0) - rule.margin) * weight
    return torch.logaddexp(itself, others.logsumexp(2))


def _filtered_sentences(
    sentences: Tensor, cells: Tensor, own: Tensor, truth: Truth, rule: Rule, filtered: Tensor
) -> Tensor:
    """(S, K) logarithms of the denominators of sentences."""
    at = torch.arange(len(sentences), device=cells.device)
    mine = torch.zeros_like(filtered).index_put((at, truth.video_of), filtered.new_ones(()))
    pairs = (~mine).float() @ truth.cells.sum(1, dtype=torch.float32)
    kept = (~mine & ~filtered).float() @ truth.cells.sum(1, dtype=torch.float32)
    weight = pairs.sum() / kept.sum().clamp(min=1) / rule.sentence_temperature
    weight = torch.where(pairs.sum() > 0, weight, 1 / rule.sentence_temperature)
    cosines = torch.einsum("sd,vpd->svp", sentences, cells).float()
    near = torch.zeros_like(cosines, dtype=torch.bool).index_put(
        (at, truth.video_of), truth.iou >= rule.negative_iou
    )
    zero = near | (filtered & ~mine)[..., None]
    logits = (cosines.masked_fill(zero, 0.0) * weight).masked_fill(~truth.cells, _ABSENT)
    others = torch.logaddexp(logits.flatten(1).logsumexp(1), logits.new_tensor(_RELEASED_EPSILON).log())
    return torch.logaddexp((own - rule.margin) * weight, others[:, None])


def drawn_sentences(matched: Tensor, there: Tensor, rule: Rule) -> Tensor:
    """(S,) the moments' term of the second stage, over all rows; the first row alone is the paper's.

    `matched` (S, K, 1 + M): cosines of a sentence's moments with the sentence (first) and with those that
    were drawn for its video; `there` (S, 1 + M) bool, the first true.
    """
    logits = (matched / rule.moment_temperature).masked_fill(~there[:, None], -torch.inf)
    less = logits - rule.margin / rule.moment_temperature
    # Each column in turn is the positive: the sum of all powers, with the margin taken from that one.
    highest = logits.amax(2, keepdim=True)
    powers = (logits - highest).exp()
    sums = powers.sum(2, keepdim=True) - powers + (less - highest).exp()
    rows = (sums.log() + highest - less[..., :1]).masked_fill(~there[:, None], 0.0)
    return rows.sum((1, 2)) / (there.sum(1) * matched.shape[1])
