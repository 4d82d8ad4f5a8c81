"""CroCs: MMN trained with reliable negatives, against confident answers in wrong videos.

Papers 001 and 002 ("MVMR", section 6). Network, scores and index vectors are MMN's. The training has two
stages, each a training of its own:

- "first" (CroCs with a dagger in the papers): videos that may answer a query are excluded from its negatives,
  in contrast and in cross-entropy (equation 1). These videos are `Batch.positives`; with
  `[data] positives = "similar"` these come from sentences with a similarity of at least 0.9.
- "second": training continues from the first stage's weights, at a tenth of the learning rate, with hard
  negatives only: videos drawn for each query and queries drawn for each video (equations 2 and 3,
  `training/hard_negatives.py`), in `Batch.negatives`, `other_queries` and `negative_queries`.

Readings where the papers are unclear:

- Cells of the query's own video that miss the truth stay negatives in both stages, as in the program, and so
  do sentences of the same video with another moment: V- excludes whole other videos, and figure 5 shows
  negatives "intra- and inter-video".
- "BCE for positive and potential true-negative samples": cells of negative videos have target 0. Equation 4
  takes one mean over all candidates; in a batch of 48 videos 47 in 48 would have target 0 and the truth would
  hardly count. So the two means are separate, as in the program's second stage, and the mean over negatives
  is weighted by `negative_bce`. Its 0.3 stands in the program's settings, but the program does not use it.
- Equation 5 is a sum; the contrast here is a mean over the positive pairs, as in the program, for which
  lambda was chosen.
- Appendix B.1 of paper 002 applies a layer normalisation to moments and sentences, and says that the network
  is exactly MMN's. The programs of MMN and CroCs normalise sentences only, and so does this.
- lambda is 0.05 for TACoS in the paper, 0.1 in the program.

`released/crocs.py` has the program's departures. Shapes as in `parts/mutual_matching.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from whenabouts.types import UsageError
from whenabouts_systems.models import mmn
from whenabouts_systems.models.mmn import SHARPNESS, Encoded, truth_of
from whenabouts_systems.models.parts.cross_directional import chosen_pairs
from whenabouts_systems.models.parts.mutual_matching import Keep
from whenabouts_systems.models.protocol import Batch, Losses, QueryEncoding, joined
from whenabouts_systems.models.settings import NotNegative


@dataclass(frozen=True)
class Config(mmn.Config):
    """The settings of CroCs: those of MMN, the stage, and the weight of negatives in the cross-entropy."""

    stage: Literal["first", "second"] = "first"
    negative_bce: NotNegative = 0.3
    """Weight of the cross-entropy of cells of negative videos; at 0 the cross-entropy is MMN's."""
    contrast_epochs: int | None = 14

    @property
    def uses_pairs(self) -> bool:
        """True: relevant pairs of queries tell which videos may answer a query."""
        return True

    @property
    def uses_negatives(self) -> bool:
        """Whether batches need hard negatives."""
        return self.stage == "second"


def negative_cross_entropy(logits: Tensor, pairs: Tensor, cells: Tensor) -> Tensor:
    """The mean cross-entropy of cells of videos that do not answer, target 0; 0 without such cells.

    `logits` (S, V, P) of the IoU head, `pairs` (S, V) bool: negative videos of a sentence, `cells` (V, P)
    bool.
    """
    counted = (pairs[..., None] & cells).float()
    return (functional.softplus(logits.float()) * counted).sum() / counted.sum().clamp(min=1)


class Model(mmn.Model):
    """CroCs with fresh weights: retriever and localizer (see `protocol`)."""

    cross_entropy = staticmethod(negative_cross_entropy)
    config: Config

    def loss(self, batch: Batch) -> Losses:
        """MMN's three terms over the reliable negatives, and `negatives`: their cross-entropy.

        Raises UsageError in the second stage without hard negatives.
        """
        queries, videos = self._sentences(batch), self.encoded(batch.videos)
        truth = truth_of(batch, videos)
        if self.config.stage == "first":
            pairs = ~with_own(batch)
            keep = Keep.of_pairs(pairs, batch.video_of)
        else:
            pairs, keep = _hard(batch, len(queries))
        terms = self.terms(batch, queries, videos, truth, keep)
        return {**terms, **self.negative_terms(batch, queries, videos, pairs)}

    def _sentences(self, batch: Batch) -> QueryEncoding:
        """The encodings of the batch's queries, in the second stage followed by those of negative queries."""
        queries = self.encode_queries(batch.queries)
        if self.config.stage == "first" or batch.other_queries is None or not len(batch.other_queries):
            return queries
        return joined([queries, self.encode_queries(batch.other_queries)])

    def negative_terms(
        self, batch: Batch, queries: QueryEncoding, videos: Encoded, pairs: Tensor
    ) -> dict[str, Tensor]:
        """Term `negatives`: the cross-entropy of cells of negative videos, and with negative queries."""
        sentences, count = queries.parts["iou"], len(batch)
        logits = SHARPNESS * torch.einsum("sd,vpd->svp", sentences[:count], videos.iou)
        loss = self.cross_entropy(logits, pairs, videos.there)
        if len(sentences) > count and batch.negative_queries is not None:
            drawn = batch.negative_queries
            cells, there = videos.iou[: len(drawn)], videos.there[: len(drawn)]
            logits = SHARPNESS * torch.einsum("sd,vpd->svp", sentences[count:], cells)
            drawn_pairs = chosen_pairs(drawn, len(sentences) - count).T
            loss = loss + self.cross_entropy(logits, drawn_pairs, there)
        return {"negatives": self.config.negative_bce * loss}


def with_own(batch: Batch) -> Tensor:
    """(Q, V) bool: the videos that are no negatives of a query, and in any case its own."""
    return batch.positives.scatter(1, batch.video_of[:, None], True)


def _hard(batch: Batch, sentences: int) -> tuple[Tensor, Keep]:
    """(Q, V) bool: the drawn videos of each query; and what contrast compares: these, drawn sentences, and
    sentences of the same video. `sentences` is their number, with the queries'.
    """
    if batch.negatives is None:
        raise UsageError(
            "crocs: stage = 'second' has no hard negatives; name the run of the first stage in [data] "
            "first_stage, or train stage = 'first'"
        )
    answering = with_own(batch)
    pairs = chosen_pairs(batch.negatives, answering.shape[1]) & ~answering
    same = batch.video_of[:, None] == batch.video_of
    return pairs, Keep(torch.cat([same, drawn_queries(batch, sentences)], 1), pairs)


def drawn_queries(batch: Batch, sentences: int) -> Tensor:
    """(Q, E) bool: the negative queries that were drawn for each query's own video; E = `sentences` - Q."""
    others = sentences - len(batch)
    if batch.negative_queries is None or not others:
        return torch.zeros((len(batch), others), dtype=torch.bool, device=batch.video_of.device)
    return chosen_pairs(batch.negative_queries, others)[batch.video_of]
