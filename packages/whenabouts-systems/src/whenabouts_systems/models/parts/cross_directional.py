"""CroCs: which videos and queries are negatives at all, and how often each is drawn (papers 001, 002).

Equation 1 leaves out videos that may answer a query; equations 2 and 3 draw the rest by how close their
matching score comes to that of the truth. The sentences are not clear everywhere. How they are read here:

- Equation 1, V-(q) = {v | s_te(q, v) < t_tr}, is `[data] positives = "similar"`: s_te(q, v) is the largest
  similarity of q with any sentence of v (section 4.1), also with those that are not in the batch. "Above the
  threshold" and "< t" disagree on equality; the equation counts: a similarity of exactly t is no negative.
- r(q, v) is the matching score s = s_iou * s_rmm (equation 6) of the video's best moment (equation 3), also
  for the query's own video: r(q, v+) is that of its best moment, not of the annotated one.
- "Mean matching scores for all golden positive moments and queries" can be a mean per query, per video, or
  over the whole training set. Equation 2 writes r(q, m+) and r(q+, m), which depend on q and on m: "own" is
  the mean over the query's own videos, or over the video's own queries. "global" is the other reading, which
  the sentence below it allows ("the average matching score of golden query-moment pairs").
- Equations 2 and 3 have no temperature. Scores lie in [0, 1], so that exp(-(r - mean)^2) lies in [0.37, 1]:
  as published no negative is 2.8 times as likely as another, and drawing is nearly uniform. No reading of r
  is more peaked: a product of the two cosines, as equation 6 may be read, spreads less. SimANS, from which
  the equations are taken, has a factor of 0.5 before the square, but its scores are dot products of any size,
  and it draws from the passages that a retriever ranks highest. The released settings TAU of 0.5 and PRE_TOPK
  of 100, which no released file reads, look like these two. `temperature` divides the square (SimANS's factor
  is one over it), `highest` leaves only the candidates of the highest scores.
- "The number of negatives to calculate p'(v|q)" is how many are drawn without replacement.

Shapes: Q queries, V videos, P cells of a map; N rows that draw (queries, or videos), M that can be drawn.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

MeanOf = Literal["own", "global"]
"""Over what the matching scores of true pairs are averaged."""


def golden_means(values: Tensor, rows: Tensor, count: int, over: MeanOf = "own") -> Tensor:
    """(count,) the mean matching score of true pairs: of each row's own, or of all rows together.

    `values` (K,) are the scores of the true pairs, `rows` (K,) int64 whose they are: a query's for p'(v|q), a
    video's for p'(q|v). A row without a true pair has the mean of all.
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
    """(N, M) logarithms of weights, equations 2 and 3: -(r - mean)^2 / temperature, -inf where no candidate.

    Their softmax over a row is p'(v|q), or p'(q|v) where videos are the rows. `means` (N,); `candidates` (N,
    M) bool; `highest`: only so many candidates of a row, those of the highest scores.
    """
    kept = candidates
    if highest is not None and highest < scores.shape[1]:
        ranked = scores.masked_fill(~candidates, -torch.inf).topk(highest, dim=1).indices
        kept = candidates & torch.zeros_like(candidates).scatter(1, ranked, True)
    return (-((scores - means[:, None]) ** 2) / temperature).masked_fill(~kept, -torch.inf)


def draw(logits: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """(N, count) int64 columns drawn from each row without replacement; -1 where a row has no more.

    The `count` largest of logit + Gumbel noise are a draw of that many, one after the other, each with a
    probability proportional to exp(logit) among those that are left. The first drawn stands first.
    """
    noise = torch.empty(logits.shape, dtype=logits.dtype).exponential_(generator=generator).to(logits.device)
    keys = logits - noise.clamp(min=torch.finfo(noise.dtype).tiny).log()
    highest, columns = keys.topk(min(count, logits.shape[1]), dim=1)
    columns = columns.masked_fill(highest == -torch.inf, -1)
    return functional.pad(columns, (0, count - columns.shape[1]), value=-1)


def chosen_pairs(rows: Tensor, columns: int) -> Tensor:
    """(N, columns) bool of lists (N, M) of columns, in which -1 is none."""
    chosen = torch.zeros(len(rows), columns + 1, dtype=torch.bool, device=rows.device)
    # Those that are none fall into a column of their own, which is cut off.
    return chosen.scatter(1, rows.where(rows >= 0, columns), True)[:, :columns]
