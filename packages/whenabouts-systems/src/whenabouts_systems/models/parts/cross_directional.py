"""Draw CroCs' hard negatives: which videos and queries, with which probabilities (papers 001, 002).

Equation 1 excludes videos that may answer a query; equations 2 and 3 draw the others by the distance of their
matching score from that of the true pairs. The text is not always clear. We read it as follows:

- Equation 1, V-(q) = {v | s_te(q, v) < t_tr}, comes from `[data] positives = "similar"`: s_te(q, v) is the
  largest similarity of q with any sentence of v (section 4.1), even outside of the batch, t_tr a threshold.
  "Above the threshold" and "< t" disagree on equality; we follow the equation: exactly t is no negative.
- r(q, v) is the matching score s = s_iou * s_rmm (equation 6) of the video's best moment (equation 3). For
  the query's own video, too, r(q, v+) is that of the best moment, not of the annotated one.
- "Mean matching scores for all golden positive moments and queries" can be a mean per query, per video, or
  over the whole training set. Equation 2 writes r(q, m+) and r(q+, m), which depend on q and on m: "own" is
  the mean over the query's own videos, or over the video's own queries. "global" is the other reading, which
  the sentence below equation 2 allows ("the average matching score of golden query-moment pairs").
- Equations 2 and 3 have no temperature. Scores lie in [0, 1], so exp(-(r - mean)^2) lies in [1/e, 1]: as
  published, no negative is more than e times as likely as another, and drawing is nearly uniform. Reading
  equation 6 as a product of two cosines does not help: that varies less. SimANS, the source of the equations,
  has a factor of 0.5 before the square, but its scores are dot products of any size, and it draws from the
  passages that a retriever ranks highest. The released settings TAU = 0.5 and PRE_TOPK = 100, which no
  released file reads, look like this factor and this choice. So `temperature` divides the square (SimANS's
  factor is its inverse), and `highest` keeps only the candidates with the highest scores.
- "The number of negatives to calculate p'(v|q)" is the number drawn without replacement.

The draws of a seed must stay: another order, noise or dtype would change seeded and resumed trainings.
Shapes: K true pairs; N rows to draw for (queries or videos), M columns to draw from.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

MeanOf = Literal["own", "global"]
"""Average the matching scores of true pairs over each query or video, or over the training set."""


def golden_means(values: Tensor, rows: Tensor, count: int, over: MeanOf = "own") -> Tensor:
    """(count,) the mean matching score of true pairs, of each row ("own") or of all rows ("global").

    `values` (K,) are the scores of the true pairs, `rows` (K,) int64 their queries for p'(v|q), or their
    videos for p'(q|v). A row without a true pair gets the mean of all.
    """
    overall = (values.mean() if len(values) else values.new_zeros(())).expand(count)
    if over == "global":
        return overall
    sums = values.new_zeros(count).index_add(0, rows, values)
    counts = torch.bincount(rows, minlength=count)
    return torch.where(counts > 0, sums / counts.clamp(min=1), overall)


def draw_logits(
    scores: Tensor, means: Tensor, candidates: Tensor, temperature: float = 1.0, highest: int | None = None
) -> Tensor:
    """(N, M) logarithms of weights, equations 2 and 3: -(r - mean)^2 / temperature, -inf for non-candidates.

    The softmax over a row is p'(v|q), or p'(q|v) if rows are videos. `means` (N,); `candidates` (N, M) bool;
    `highest` keeps this many candidates of a row, those with the highest scores.
    """
    kept = candidates
    if highest is not None and highest < scores.shape[1]:
        ranked = scores.masked_fill(~candidates, -torch.inf).topk(highest, dim=1).indices
        kept = candidates & torch.zeros_like(candidates).scatter(1, ranked, True)
    return (-((scores - means[:, None]) ** 2) / temperature).masked_fill(~kept, -torch.inf)


def draw(logits: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """(N, count) int64: columns drawn from each row without replacement, first drawn first, then -1.

    The `count` largest values of logit + Gumbel noise (-log of exponential noise) are such a draw: each
    column is drawn with a probability proportional to exp(logit) among the remaining ones.
    """
    noise = torch.empty(logits.shape, dtype=logits.dtype).exponential_(generator=generator).to(logits.device)
    keys = logits - noise.clamp(min=torch.finfo(noise.dtype).tiny).log()
    top_keys, columns = keys.topk(min(count, logits.shape[1]), dim=1)
    columns = columns.masked_fill(top_keys == -torch.inf, -1)
    return functional.pad(columns, (0, count - columns.shape[1]), value=-1)


def chosen_pairs(rows: Tensor, columns: int) -> Tensor:
    """(N, columns) bool: which columns each row of `rows` (N, M) lists; -1 is filler."""
    chosen = torch.zeros(len(rows), columns + 1, dtype=torch.bool, device=rows.device)
    # Fillers fall into an extra column, which is dropped.
    return chosen.scatter(1, rows.where(rows >= 0, columns), True)[:, :columns]
