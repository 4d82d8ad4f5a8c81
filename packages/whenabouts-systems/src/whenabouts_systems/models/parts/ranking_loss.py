"""Ranking losses: a positive must score higher than a negative drawn from the best-scoring negatives.

First come functions that several systems use, then the losses with potentially relevant pairs: equations 10
to 18 of Maeoki et al. (paper 000). A pair (i, j) is query i with the moment of query j. Besides the positives
(i, i) some pairs of a batch are "potentially relevant": they come with a confidence C in (0, 1], and are
neither positive nor negative. R is the score of a pair: its video's (equation 1) or its moment's (14).

Readings of what the paper leaves open:

- A negative of a query (or of a moment) is a pair that is neither positive nor potentially relevant, in
  equation 10 as well as in 11; a query without negatives has loss 0 and still counts in the mean.
- The negative of equations 10 and 11 is drawn once in a step for each query and for each moment, and shared
  by all terms, since both equations write the same accented R.
- `Levels.of_all` has the negatives of another reading of equation 10: as in XML, it draws separate negatives,
  also from the relevant pairs.
- N_pairs counts ordered pairs (i, i+). Each has two terms in equations 11 and 12: one for its query and one
  for its moment.
- If the moments of i and j are in one video, the pair has no part in equation 13, since this video is the
  positive itself; in equations 15 and 17 it is a relevant pair like others, and never a negative.
- Equation 11 has the margin of equation 10; 12 has none. With the ranking loss "lse" (XML's alternative, not
  in this paper) log(1 + e^x) stands for [margin + x]+ and [x]+.
- R may be negative: a cosine, or R of equation 14 where a logit is at the bound (-13.8). Then C R is larger
  than R: C then has the reverse effect. Training exploits this: it makes the scores negative
  (`benchmarks/results/two_annotators.md`). The formula is kept as printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

Kind = Literal["hinge", "lse"]


@dataclass(frozen=True)
class Negatives:
    """One negative for each of A anchors: its `score` (A,), and whether it `exists` (A,).

    If no negative exists, the score belongs to an arbitrary candidate and must not count.
    """

    score: Tensor
    exists: Tensor


def draw_negatives(scores: Tensor, allowed: Tensor, pool: int | None) -> Negatives:
    """A negative for each row of `scores` (A, C), drawn uniformly from the `pool` highest that are `allowed`.

    With `pool` None it is drawn from all that are allowed. The generator is PyTorch's. Paper 000, equation 10
    (the accent on R); XML draws alike.
    """
    order = scores.detach().masked_fill(~allowed, -torch.inf).argsort(dim=1, descending=True, stable=True)
    number = allowed.sum(1)
    limit = number if pool is None else number.clamp(max=pool)
    ranks = (torch.rand(len(scores), device=scores.device) * limit).long()
    ranks = torch.minimum(ranks, (limit - 1).clamp(min=0))
    chosen = order.gather(1, ranks[:, None])
    return Negatives(scores.gather(1, chosen)[:, 0], number > ranks)


def shortfall(higher: Tensor, lower: Tensor, *, margin: float = 0.0, kind: Kind = "hinge") -> Tensor:
    """The amount by which `higher` fails to be above `lower`, element by element.

    "hinge": [margin + lower - higher]+; "lse": log(1 + exp(lower - higher)), which has no margin.
    """
    if kind == "lse":
        return functional.softplus(lower - higher)
    return (margin + lower - higher).relu()


def against_negatives(
    positive: Tensor, negatives: Negatives, *, margin: float, kind: Kind = "hinge"
) -> Tensor:
    """(A,): the shortfall of each positive (A,) against its negative; 0 where there is no negative."""
    lacking = shortfall(positive, negatives.score, margin=margin, kind=kind)
    return torch.where(negatives.exists, lacking, 0.0)


def weighted_mean(losses: Tensor, weight: Tensor | None) -> Tensor:
    """(…) the mean over the last axis of losses (…, Q), times `weight` (Q,) where there is one."""
    return (losses if weight is None else losses * weight).mean(-1)


SMALLEST_LOGIT = 1e-6
"""The infimum of logits before their logarithm is taken (below equation 14)."""

MomentScores = Literal["log", "shift", "logits"]
"""The readings of equation 14 and of "inf o = 1e-6" below it; see `moment_relevance`."""


@dataclass(frozen=True)
class Pairs:
    """P potentially relevant pairs: `query` and `moment` (P,) int64 in the batch, `confidence` (P,)."""

    query: Tensor
    moment: Tensor
    confidence: Tensor

    def __len__(self) -> int:
        return len(self.query)

    def those(self, keep: Tensor) -> Pairs:
        """The pairs for which `keep` (P,) is true."""
        return Pairs(self.query[keep], self.moment[keep], self.confidence[keep])


@dataclass(frozen=True)
class Levels:
    """The scores R that the multi-level ranking loss compares.

    `positive` (Q,) is R(i, i), `relevant` (P,) R of the `pairs`. `of_queries` is the negative moment or
    video of each query, `of_moments` the negative query of each moment; `of_all`: both for equation 10 alone.
    """

    positive: Tensor
    relevant: Tensor
    pairs: Pairs
    of_queries: Negatives
    of_moments: Negatives
    of_all: tuple[Negatives, Negatives] | None = None


@dataclass(frozen=True)
class Rule:
    """The margin and kind of a ranking loss, and the weights of its terms (lambda)."""

    margin: float = 0.1
    kind: Kind = "hinge"
    relevant_over_negative: float = 0.0
    positive_over_relevant: float = 0.0


def pairs_of(confidence: Tensor, *, confidence_is_one: bool = False) -> Pairs:
    """The potentially relevant pairs: all off the diagonal with a `confidence` (Q, Q) above 0.

    `confidence_is_one` sets C to 1 for all of them (the paper's "C = 1" rows).
    """
    itself = torch.eye(len(confidence), dtype=torch.bool, device=confidence.device)
    query, moment = ((confidence > 0) & ~itself).nonzero().unbind(1)
    values = confidence[query, moment]
    return Pairs(query, moment, torch.ones_like(values) if confidence_is_one else values)


def positive_over_negative(levels: Levels, rule: Rule, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Equation 10: the mean over queries against a negative video, and over videos against a negative query.

    `weight` (Q,) multiplies a query's terms (paper 004). The sum of the two is the equation.
    """
    first, second = (
        weighted_mean(against_negatives(levels.positive, drawn, margin=rule.margin, kind=rule.kind), weight)
        for drawn in levels.of_all or (levels.of_queries, levels.of_moments)
    )
    return first, second


def relevant_over_negative(levels: Levels, rule: Rule) -> Tensor:
    """Equation 11: a relevant pair's score times C exceeds the negatives of its query and its moment."""
    pairs = levels.pairs
    lowered = pairs.confidence * levels.relevant
    of_query, of_moment = (
        against_negatives(
            lowered, Negatives(drawn.score[rows], drawn.exists[rows]), margin=rule.margin, kind=rule.kind
        )
        for drawn, rows in ((levels.of_queries, pairs.query), (levels.of_moments, pairs.moment))
    )
    return _per_pair(of_query + of_moment)


def positive_over_relevant(levels: Levels, rule: Rule) -> Tensor:
    """Equation 12: C times the positive of a relevant pair's query, or moment, is no less than its score."""
    pairs = levels.pairs
    of_query, of_moment = (
        shortfall(pairs.confidence * levels.positive[rows], levels.relevant, kind=rule.kind)
        for rows in (pairs.query, pairs.moment)
    )
    return _per_pair(of_query + of_moment)


def video_ranking_loss(
    levels: Levels, rule: Rule, weight: Tensor | None = None, sides: tuple[float, float] = (1.0, 1.0)
) -> Mapping[str, Tensor]:
    """Equation 13, or 15 with R of moments, term by term; `sides` weigh the sums of equation 10 (XML).

    Terms of equations 11 and 12 with weight 0 are absent.
    """
    against_video, against_query = positive_over_negative(levels, rule, weight)
    terms = {"negative_videos": sides[0] * against_video, "negative_queries": sides[1] * against_query}
    if rule.relevant_over_negative:
        terms["relevant_over_negative"] = rule.relevant_over_negative * relevant_over_negative(levels, rule)
    if rule.positive_over_relevant:
        terms["positive_over_relevant"] = rule.positive_over_relevant * positive_over_relevant(levels, rule)
    return terms


def moment_relevance(
    logits: Tensor,
    video_scores: Tensor,
    alpha: float,
    reading: MomentScores = "log",
    lowest: Tensor | None = None,
) -> Tensor:
    """Equation 14: R of moments, (Q, M), from the logits (2, Q, M) of start and end at their true borders.

    The constraint inf o = 1e-6 below the equation has two readings, and the prose a third:

    - "log": lower logits are raised to 1e-6. Below it a logit has no gradient, just above it one of up to a
      million.
    - "shift": a border's logits over the clips of a video move together until the lowest, `lowest` (2, Q, M),
      is 1e-6. All clips keep a gradient; a common offset of a video's logits has no effect.
    - "logits": R is the sum of the logits themselves: log s_vcmr of equation 3 without the logarithms of the
      two softmax sums, which is what the paper's text wants R to be.
    """
    borders: Tensor = logits.float()
    if reading == "shift":
        if lowest is None:
            raise ValueError('moment_relevance: "shift" needs the lowest logits')
        borders = (borders - lowest.float() + SMALLEST_LOGIT).log()
    elif reading == "log":
        borders = borders.clamp(min=SMALLEST_LOGIT).log()
    return borders.sum(0) + alpha * video_scores


def relevant_likelihood(log_truth: Tensor, confidence: Tensor) -> Tensor:
    """Equation 17: the mean negative log-likelihood of relevant pairs (P,), each times its confidence."""
    return -_per_pair(confidence * log_truth)


def _per_pair(values: Tensor) -> Tensor:
    """The sum over pairs divided by their number; 0, with a gradient of 0, where there is none."""
    return values.sum() / max(len(values), 1)
