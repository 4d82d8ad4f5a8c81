"""The losses of papers 000 and 003 once more, in NumPy and float64, written from their equations alone.

Nothing here is shared with the package: tests hold its values and gradients (`slopes`, central differences)
against those of PyTorch. Shapes as in `models.protocol`; S streams, B = 2 borders (start, end).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Arrays = dict[str, Floats]


def slopes(loss: Callable[[Arrays], float], arrays: Arrays, step: float = 1e-6) -> Arrays:
    """The gradient of a loss by every number of `arrays`, from central differences."""
    found = {}
    for name, array in arrays.items():
        slope = np.zeros_like(array)
        for at in np.ndindex(array.shape):
            sides = []
            for sign in (1, -1):
                moved = array.copy()
                moved[at] += sign * step
                sides.append(loss({**arrays, name: moved}))
            slope[at] = (sides[0] - sides[1]) / (2 * step)
        found[name] = slope
    return found


@dataclass(frozen=True)
class Facts:
    """What is known of a batch: clips of each video, tokens of each query, own videos, moments, pairs."""

    clips: list[int]
    tokens: list[int]
    own: list[int]
    spans: list[tuple[int, int]]
    confidence: Mapping[tuple[int, int], float]
    """C(i, j) > 0 of query i with the moment of query j."""

    def answers(self, query: int, video: int) -> bool:
        """Whether a video is known to answer a query."""
        return self.own[query] == video


# --- paper 000


@dataclass(frozen=True)
class Paper000:
    """Equations 1 to 4 and 9 to 18 on vectors that a model made.

    Arrays: `search` (S, Q, D), `keys` (S, V, T, D); for the borders `asked` (S, Q, D), `seen` (S, V, T, D)
    and the kernels of XML's convolutions, `kernels` (B, K). N_pool is 1.
    """

    facts: Facts
    margin: float = 0.1
    alpha: float = 20.0
    tl: float = 0.01
    tl_2: float = 0.0
    vcmr: float = 0.0
    rel_neg: tuple[float, float] = (0.0, 0.0)
    """Lambda of equation 11 in equations 13 and 15."""
    pos_rel: tuple[float, float] = (0.0, 0.0)
    reading: str = "log"

    def s_vr(self, arrays: Arrays) -> Floats:
        """(Q, V): equation 1, averaged over streams as in XML."""
        search = arrays["search"] / np.linalg.norm(arrays["search"], axis=-1, keepdims=True)
        keys = arrays["keys"] / np.linalg.norm(arrays["keys"], axis=-1, keepdims=True)
        cosines = np.einsum("sqd,svtd->sqvt", search, keys)
        best = [cosines[:, :, v, :count].max(-1) for v, count in enumerate(self.facts.clips)]
        scores: Floats = np.stack(best, -1).mean(0)
        return scores

    def logits(self, arrays: Arrays) -> list[Floats]:
        """A video -> (B, Q, its clips): o_st and o_ed."""
        found = []
        for video, count in enumerate(self.facts.clips):
            similarity = np.einsum("sqd,std->sqt", arrays["asked"], arrays["seen"][:, video, :count]).mean(0)
            reach = arrays["kernels"].shape[1] // 2
            padded = np.pad(similarity, ((0, 0), (reach, reach)))
            windows = np.stack([padded[:, at : at + 2 * reach + 1] for at in range(count)], 1)
            found.append(np.einsum("qtk,bk->bqt", windows, arrays["kernels"]))
        return found

    def s_vcmr(self, arrays: Arrays, least: int, most: int) -> dict[tuple[int, int, int, int], float]:
        """(query, video, first, last) -> equation 3, of `least` to `most` clips (equation 4 on a grid)."""
        video_scores, found = self.s_vr(arrays), {}
        for video, logits in enumerate(self.logits(arrays)):
            exponentials = np.exp(logits)
            p_st, p_ed = exponentials / exponentials.sum(-1, keepdims=True)
            for query in range(len(self.facts.own)):
                weight = np.exp(self.alpha * video_scores[query, video])
                for first in range(logits.shape[2]):
                    for last in range(first, logits.shape[2]):
                        if least <= last - first + 1 <= most:
                            s_tl = p_st[query, first] * p_ed[query, last]  # equation 2
                            found[query, video, first, last] = float(s_tl * weight)
        return found

    def loss(self, arrays: Arrays) -> float:
        """Equation 9."""
        return self.l_vr(arrays) + self.tl * self.l_tl(arrays) + self.vcmr * self.l_vcmr(arrays)

    def l_vr(self, arrays: Arrays) -> float:
        """Equation 13; two moments of one video are no pair of videos."""
        facts, scores = self.facts, self.s_vr(arrays)
        own, every = facts.own, range(len(facts.own))
        near = {(i, own[j]) for i, j in facts.confidence}
        against = [
            [scores[i, v] for v in range(len(facts.clips)) if not facts.answers(i, v) and (i, v) not in near]
            for i in every
        ]
        queries = [
            [scores[i, own[j]] for i in every if not facts.answers(i, own[j]) and (i, own[j]) not in near]
            for j in every
        ]
        pairs = {(i, j): c for (i, j), c in facts.confidence.items() if not facts.answers(i, own[j])}
        return self._ranked(scores[:, own], (against, queries), pairs, 0)

    def l_vcmr(self, arrays: Arrays) -> float:
        """Equation 15, R being that of equation 14."""
        facts, scores, logits = self.facts, self.s_vr(arrays), self.logits(arrays)
        own, every = facts.own, range(len(facts.own))
        relevance = np.zeros((len(own), len(own)))
        for i in every:
            for j in every:
                borders = [logits[own[j]][b, i] for b in (0, 1)]
                at = [o[clip] for o, clip in zip(borders, facts.spans[j], strict=True)]
                if self.reading == "log":
                    parts = [np.log(max(o, 1e-6)) for o in at]
                elif self.reading == "shift":
                    parts = [np.log(o - all_.min() + 1e-6) for o, all_ in zip(at, borders, strict=True)]
                else:
                    parts = at
                relevance[i, j] = sum(parts) + self.alpha * scores[i, own[j]]
        apart = [
            [not facts.answers(i, own[j]) and (i, j) not in facts.confidence for j in every] for i in every
        ]
        against = [[relevance[i, j] for j in every if apart[i][j]] for i in every]
        queries = [[relevance[i, j] for i in every if apart[i][j]] for j in every]
        return self._ranked(relevance, (against, queries), facts.confidence, 1)

    def l_tl(self, arrays: Arrays) -> float:
        """Equation 18, from 16 and 17."""
        facts, logits = self.facts, self.logits(arrays)

        def log_p(i: int, j: int) -> float:
            of_pair = logits[facts.own[j]][:, i]
            log_sums = np.log(np.exp(of_pair).sum(-1))
            return float(sum(of_pair[b, facts.spans[j][b]] - log_sums[b] for b in (0, 1)))

        nll_1 = -np.mean([log_p(i, i) for i in range(len(facts.own))])
        pairs = facts.confidence.items()
        nll_2 = -sum(c * log_p(i, j) for (i, j), c in pairs) / len(pairs) if self.tl_2 else 0.0
        return float(nll_1 + self.tl_2 * nll_2)

    def _ranked(
        self,
        r: Floats,
        negatives: tuple[list[list[float]], list[list[float]]],
        pairs: Mapping[tuple[int, int], float],
        which: int,
    ) -> float:
        """Equations 10, 11 and 12 with their weights; negatives of each query and of each moment."""
        of_query, of_moment = ([max(some) if some else -np.inf for some in side] for side in negatives)

        def plus(value: float) -> float:
            return max(value, 0.0)

        n = len(r)
        pos_neg = sum(
            plus(self.margin + of_query[i] - r[i, i]) + plus(self.margin + of_moment[i] - r[i, i])
            for i in range(n)
        )
        rel_neg = sum(
            plus(self.margin + of_query[i] - c * r[i, j]) + plus(self.margin + of_moment[j] - c * r[i, j])
            for (i, j), c in pairs.items()
        )
        pos_rel = sum(
            plus(r[i, j] - c * r[i, i]) + plus(r[i, j] - c * r[j, j]) for (i, j), c in pairs.items()
        )
        weighted = self.rel_neg[which] * rel_neg + self.pos_rel[which] * pos_rel
        return float(pos_neg / n + weighted / max(len(pairs), 1))


# --- paper 003 (PREM)


def pooled(words: Floats, weight: Floats, tokens: list[int]) -> Floats:
    """(S, Q, H): equation 5, from words (Q, L, H) and W_d (S, H)."""
    vectors = np.zeros((len(weight), len(tokens), words.shape[2]))
    for query, count in enumerate(tokens):
        o = np.exp(words[query, :count] @ weight.T)
        vectors[:, query] = (o / o.sum(0)).T @ words[query, :count]
    return vectors


@dataclass(frozen=True)
class PremRetriever:
    """Equations 5 to 8 and L^q; arrays `words` (Q, L, H), `clips` (S, V, T, H), `pooling` (S, H)."""

    facts: Facts
    temperature: float
    weak: float

    def loss(self, arrays: Arrays) -> float:
        """L^v + L^q, means over the queries."""
        facts = self.facts
        queries = pooled(arrays["words"], arrays["pooling"], facts.tokens)
        queries = queries / np.linalg.norm(queries, axis=-1, keepdims=True)
        clips = arrays["clips"] / np.linalg.norm(arrays["clips"], axis=-1, keepdims=True)
        cosines = np.einsum("sqh,svth->qvst", queries, clips)
        scores = np.array(
            [[cosines[q, v, :, :n].max(-1).mean() for v, n in enumerate(facts.clips)] for q in self._every]
        )
        total = 0.0
        for q in self._every:
            own, (first, last) = facts.own[q], facts.spans[q]
            clips_of = cosines[q, own, :, : facts.clips[own]]
            strong = clips_of[:, first : last + 1].max(-1).mean()
            outside = np.delete(clips_of, range(first, last + 1), axis=1)
            videos = [scores[q, v] for v in range(len(facts.clips)) if not facts.answers(q, v)]
            others = [scores[o, own] for o in self._every if not facts.answers(o, own)]
            total += self._info_nce(strong, videos) + self._info_nce(strong, others)
            if outside.size:
                total += self.weak * self._info_nce(outside.max(-1).mean(), videos)
        return float(total / len(facts.own))

    @property
    def _every(self) -> range:
        return range(len(self.facts.own))

    def _info_nce(self, positive: float, negatives: list[float]) -> float:
        """Equation 7."""
        parts = np.exp(np.array([positive, *negatives]) / self.temperature)
        return float(-np.log(parts[0] / parts.sum()))


@dataclass(frozen=True)
class PremLocalizer:
    """Equations 5 and 9 to 13, the transformers being the identity (they have no equation).

    Arrays: `words` (Q, L, H), `clips` (S, V, T, H), `pooling` (S, H), `gates` (S, H, H), `fuse` (H, S H) and
    `fuse_bias` (H,); for each border a convolution `wide` (B, I, H, K), `wide_bias` (B, I), `narrow` (B, I),
    `narrow_bias` (B,); the classifier's layers `layer_0`, `bias_0` to `layer_2`, `bias_2`.
    """

    facts: Facts
    negatives: list[list[int]]
    gamma: float
    lengths: tuple[int, int]
    moments: int = 5

    def borders(self, arrays: Arrays, query: int, video: int) -> tuple[Floats, Floats]:
        """l_st and l_ed (B, T) of a query in a video, and the fused clips (T, H)."""
        count = self.facts.clips[video]
        vectors = pooled(arrays["words"], arrays["pooling"], self.facts.tokens)[:, query]
        gated = []
        for stream, clips in enumerate(arrays["clips"][:, video, :count]):
            gate = clips @ arrays["gates"][stream].T * vectors[stream]
            gated.append(gate / np.linalg.norm(gate, axis=-1, keepdims=True) * clips)  # equation 9
        fused = np.concatenate(gated, -1) @ arrays["fuse"].T + arrays["fuse_bias"]  # equation 10
        reach = arrays["wide"].shape[3] // 2
        padded = np.pad(fused, ((reach, reach), (0, 0)))
        near = np.stack([padded[at : at + 2 * reach + 1] for at in range(count)])
        inner = np.einsum("tkh,bihk->bti", near, arrays["wide"]) + arrays["wide_bias"][:, None]
        inner = np.maximum(inner, 0)
        return np.einsum("bti,bi->bt", inner, arrays["narrow"]) + arrays["narrow_bias"][:, None], fused

    def loss(self, arrays: Arrays) -> float:
        """Equation 12, a mean over the queries."""
        return float(np.mean([self._of_query(arrays, query) for query in range(len(self.facts.own))]))

    def _of_query(self, arrays: Arrays, query: int) -> float:
        own, span = self.facts.own[query], self.facts.spans[query]
        videos = [own, *self.negatives[query]]
        scored = [self.borders(arrays, query, video) for video in videos]
        total = 0.0
        for border in (0, 1):  # equation 11
            every = np.concatenate([logits[border] for logits, _ in scored])
            total += np.log(np.exp(every).sum()) - scored[0][0][border, span[border]]
        losses = [np.log1p(np.exp(-self._rated(arrays, scored[0][1], s))) for s in self._answers(query)]
        for logits, fused in scored[1:]:
            losses += [np.log1p(np.exp(self._rated(arrays, fused, s))) for s in self._best(logits)]
        return float(total + self.gamma * np.mean(losses))

    def _answers(self, query: int) -> list[tuple[int, int]]:
        """All segments of the own video with an IoU of more than 0.7 with the moment."""
        first, last = self.facts.spans[query]
        truth = set(range(first, last + 1))
        found = []
        for a in range(self.facts.clips[self.facts.own[query]]):
            for b in range(a, self.facts.clips[self.facts.own[query]]):
                segment = set(range(a, b + 1))
                if len(segment & truth) / len(segment | truth) > 0.7:
                    found.append((a, b))
        return found

    def _best(self, logits: Floats) -> list[tuple[int, int]]:
        """The moments of a negative video that score l_st + l_ed highest."""
        least, most = self.lengths
        count = logits.shape[1]
        spans = [(a, b) for a in range(count) for b in range(a, count) if least <= b - a + 1 <= most]
        spans.sort(key=lambda span: -(logits[0, span[0]] + logits[1, span[1]]))
        return spans[: self.moments]

    def _rated(self, arrays: Arrays, fused: Floats, segment: tuple[int, int]) -> float:
        """c(i, j): three linear layers on the maximum over a segment's clips."""
        values: Any = fused[segment[0] : segment[1] + 1].max(0)
        for layer in range(3):
            values = arrays[f"layer_{layer}"] @ values + arrays[f"bias_{layer}"]
            values = np.maximum(values, 0) if layer < 2 else values
        return float(values[0])
