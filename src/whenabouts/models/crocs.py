"""CroCs: MMN that is taught which negatives to trust, against confident answers in the wrong video.

Papers 001 and 002 ("MVMR", section 6). The network, the scores and what is kept of a video are MMN's; what
differs is the training, in two stages, each a training of its own:

- "first" (the papers' CroCs with a dagger): a video that may answer a query is none of its negatives, in
  contrast and in cross-entropy (equation 1). `Batch.positives` says which; `[data] positives = "similar"`
  makes them of sentences whose similarity reaches 0.9.
- "second": learning goes on from the first stage's weights, at a tenth of the learning rate, with hard
  negatives alone: videos drawn for each query and queries drawn for each video (equations 2 and 3,
  `training/hard_negatives.py`). `Batch.negatives`, `other_queries` and `negative_queries` hold them.

Where the papers are not clear, and what was chosen:

- Cells of the query's own video that miss the truth stay negatives in both stages, and so do sentences of the
  same video that tell of another moment: V- leaves out whole other videos, and figure 5 shows negatives
  "intra- and inter-video". Released likewise for cells.
- "BCE for positive and potential true-negative samples": cells of the negative videos have a target of 0.
  Equation 4 takes one mean over all candidates. Of a batch of 48 videos 47 in 48 would then be negatives of
  target 0 and the truth would not count; the two means are taken apart, as released in the second stage, and
  that of the negatives is weighted by `negative_bce` (0.3: a released setting that no released file reads).
- Equation 5 is a sum; contrast is a mean over the positive pairs, as released: lambda was chosen for it.
- Appendix B.1 says that moments as well as sentences pass a layer normalisation, and that the network is
  exactly MMN's. MMN's program normalises sentences alone, and so does that of CroCs; so does this.
- lambda is 0.05 for TACoS in the paper, 0.1 in the released settings; see the experiments.

`as_released` computes the released losses, faults included (`_parts/crocs_released.py`), and MMN's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from whenabouts.models import mmn
from whenabouts.models._parts.crocs_released import drawn_sentences, filtered_matching
from whenabouts.models._parts.cross_directional import chosen_pairs, negative_cross_entropy
from whenabouts.models._parts.mutual_matching import Keep, Truth, mutual_matching, positive_cells, scaled_bce
from whenabouts.models.mmn import (
    KEYS,
    Encoded,
    config_faults,
    contrast_weight,
    rule_of,
    truth_of,
)
from whenabouts.models.protocol import Batch, Losses, QueryEncoding
from whenabouts.types import UsageError

Stage = Literal["first", "second"]

_SHARPNESS = 10.0
"""What a cosine of the IoU space is multiplied by before the sigmoid."""


@dataclass(frozen=True)
class Config(mmn.Config):
    """The settings of CroCs: MMN's, the stage, and the weight of negative videos in the cross-entropy."""

    stage: Stage = "first"
    negative_bce: float = 0.3
    """What the mean cross-entropy of the cells of negative videos is multiplied by; 0: as MMN."""
    contrast_epochs: int | None = 14

    def __post_init__(self) -> None:
        """UsageError where a setting makes no model."""
        object.__setattr__(self, "pooling_counts", tuple(self.pooling_counts))
        faults = list(config_faults(self))
        if self.stage not in get_args(Stage):
            faults.append(f"stage = {self.stage!r}: known are {', '.join(get_args(Stage))}")
        if not 0 <= self.negative_bce < float("inf"):
            faults.append(f"negative_bce = {self.negative_bce!r}: a number, 0 or more, is expected")
        if faults:
            raise UsageError(f"crocs: {faults[0]}")

    @property
    def uses_pairs(self) -> bool:
        """Which videos may answer a query is told by relevant pairs of queries."""
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
        if self.config.as_released:
            return self._released(batch, queries, videos, truth, keep, pairs)
        return {
            **self.terms(batch, queries, videos, truth, keep),
            "negatives": self._negative_bce(batch, queries, videos, pairs),
        }

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
        sentences, released = queries.parts["iou"], self.config.as_released
        count = len(batch)
        logits = _SHARPNESS * torch.einsum("sd,vpd->svp", sentences[:count], videos.iou)
        found = negative_cross_entropy(logits, pairs, videos.there, as_released=released)
        if len(sentences) > count and batch.negative_queries is not None:
            drawn = batch.negative_queries
            asked = chosen_pairs(drawn, len(sentences) - count).T
            logits = _SHARPNESS * torch.einsum("sd,vpd->svp", sentences[count:], videos.iou[: len(drawn)])
            found = found + negative_cross_entropy(
                logits, asked, videos.there[: len(drawn)], as_released=released
            )
        return self.config.negative_bce * found

    def _released(
        self,
        batch: Batch,
        queries: QueryEncoding,
        videos: Encoded,
        truth: Truth,
        keep: Keep,
        pairs: Tensor,
    ) -> Losses:
        """The losses of the released program."""
        config, count = self.config, len(batch)
        own = queries.parts["iou"][:count]
        logits = _SHARPNESS * torch.einsum("sd,spd->sp", own, videos.iou[batch.video_of])
        there = truth.cells[batch.video_of]
        sentences, rule = queries.search[KEYS], rule_of(config)
        if config.stage == "first":
            filtered = _with_own(batch)
            found = filtered_matching(sentences, videos.contrast, truth, rule, filtered)
        else:
            _, of_sentences = mutual_matching(sentences, videos.contrast, truth, rule, keep)
            found = self._drawn_sentences(batch, sentences, videos, truth), of_sentences
        weight = contrast_weight(config, batch.epoch)
        terms = {
            "iou": scaled_bce(logits, truth.iou, there, config.lowest_iou, config.highest_iou),
            "moments": weight * found[0],
            "sentences": weight * found[1],
        }
        if config.stage == "second":
            terms["negatives"] = self._negative_bce(batch, queries, videos, pairs)
        return terms

    def _drawn_sentences(self, batch: Batch, sentences: Tensor, videos: Encoded, truth: Truth) -> Tensor:
        """The moments' term as released: the program takes one sentence, so each is taken by itself."""
        rule, count = rule_of(self.config), len(batch)
        moments = videos.contrast[batch.video_of[:, None], positive_cells(truth, rule.positives)[1]]
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
    known = _with_own(batch)
    pairs = chosen_pairs(batch.negatives, known.shape[1]) & ~known
    same = batch.video_of[:, None] == batch.video_of
    return pairs, Keep(torch.cat([same, _drawn_queries(batch, sentences)], 1), pairs)


def _drawn_queries(batch: Batch, sentences: int) -> Tensor:
    """(Q, E) bool: which of the queries that are negatives only were chosen for each query's own video."""
    others = sentences - len(batch)
    if batch.negative_queries is None or not others:
        return torch.zeros((len(batch), others), dtype=torch.bool, device=batch.video_of.device)
    return chosen_pairs(batch.negative_queries, others)[batch.video_of]
