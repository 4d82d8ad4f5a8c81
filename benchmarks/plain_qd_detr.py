"""QD-DETR as one would write it down at first, and as its program computes: the yardstick of its speed.

Written from what is known of the program alone. It shares nothing with the package but the names of the
parameters, which it is given. What makes it plain: all is padded, PyTorch's attention hands over its weights
though nobody reads them, the pass with wrong words goes through the decoder too, whose windows are thrown
away, every decoder layer is matched and judged by itself, costs and overlaps are computed for all pairs of
a batch before those of a query are picked, ratings are contrasted one after the other, and dropout is
PyTorch's.

Shapes: Q queries with a video each, T clips, L words, N windows, W true windows of the batch, D width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from benchmarks.plain_layers import PlainLayers
from scipy.optimize import linear_sum_assignment
from torch import Tensor
from torch.nn import functional

Weights = Mapping[str, Tensor]
Found = tuple[Tensor, Tensor]
COSTS = {"span": 10.0, "giou": 1.0, "label": 4.0}
BACKGROUND, MARGIN, TEMPERATURE, RATINGS = 0.1, 0.2, 0.5, 12


@dataclass(frozen=True)
class Asked:
    """A batch: `rows` (Q, T, F) of clips and `words` (Q, L, E) with their masks, and what is true.

    `windows` (centre, width) of each query, `ratings` (Q, T), and clips (Q, 2) of which one should rate
    `higher` and one `lower`.
    """

    rows: Tensor
    mask: Tensor
    words: Tensor
    word_mask: Tensor
    windows: Sequence[Tensor]
    ratings: Tensor
    higher: Tensor
    lower: Tensor


class PlainQDDetr(PlainLayers):
    """The losses of a batch, from weights by their names."""

    def __init__(self, weights: Weights, heads: int, dropouts: tuple[float, float], layers: int = 2) -> None:
        super().__init__(weights, dropouts[1])
        self.heads, self.layers, self.input_dropout = heads, layers, dropouts[0]

    def losses(self, asked: Asked) -> dict[str, Tensor]:
        """All terms, weights applied; those of layers before the last carry their number."""
        clips = self._projected("clip_projection", asked.rows)
        words = self._projected("word_projection", asked.words)
        places = _places(asked.mask, clips.shape[2])
        layers, saliency = self._pass(clips, places, asked.mask, words, asked.word_mask)
        wrong = torch.cat([words[1:], words[:1]]), torch.cat([asked.word_mask[1:], asked.word_mask[:1]])
        _, others = self._pass(clips, places, asked.mask, *wrong)
        terms = self._of_windows(layers[-1], asked.windows)
        terms["saliency"] = _saliency_loss(saliency, others, asked)
        for number, layer in enumerate(layers[:-1]):
            judged = self._of_windows(layer, asked.windows)
            terms |= {f"{name}_{number}": term for name, term in judged.items()}
        return terms

    def _pass(
        self, clips: Tensor, places: Tensor, mask: Tensor, words: Tensor, word_mask: Tensor
    ) -> tuple[list[Found], Tensor]:
        """The windows of each layer, and the saliency (Q, T)."""
        for number in range(self.layers):
            name = f"text_to_video.{number}"
            mixed = self._attended(f"{name}.attention", clips + places, words, words, word_mask)
            clips = clips + self._dropped(mixed)
            widened = self._widened(name, self._norm(f"{name}.attention_norm", clips))
            clips = self._norm(f"{name}.feedforward_norm", clips + self._dropped(widened))
        count = len(clips)
        rows = torch.cat([self.weights["whole"].expand(count, 1, -1), clips], 1)
        where = torch.cat([self.weights["whole_place"].expand(count, 1, -1), places], 1)
        seen = torch.cat([mask.new_ones(count, 1), mask], 1)
        for number in range(self.layers):
            name = f"encoder.{number}"
            mixed = self._attended(f"{name}.attention", rows + where, rows + where, rows, seen)
            rows = self._norm(f"{name}.attention_norm", rows + self._dropped(mixed))
            widened = self._dropped(self._widened(name, rows))
            rows = self._norm(f"{name}.feedforward_norm", rows + widened)
        whole, memory = rows[:, 0], rows[:, 1:]
        products = (self._linear("salient_clip", memory) * self._linear("salient_whole", whole)[:, None]).sum(
            2
        )
        return self._windows(memory, places, mask), products / math.sqrt(memory.shape[2])

    def _windows(self, memory: Tensor, places: Tensor, mask: Tensor) -> list[Found]:
        """Logits and spans (Q, N, 2) of each decoder layer."""
        begun = self.weights["decoder.anchors.weight"].sigmoid()[None].repeat(len(memory), 1, 1)
        windows = memory.new_zeros(*begun.shape[:2], memory.shape[2])
        anchors, found = begun, []
        for number in range(self.layers):
            turned = torch.cat([_sines(anchors[..., at], memory.shape[2] // 2) for at in (0, 1)], 2)
            where = self._perceptron("decoder.anchor_places", turned)
            if number:
                turned = turned * self._perceptron("decoder.scale", windows)
            wide = self._perceptron("decoder.width_of", windows).sigmoid()
            turned = turned * (wide / anchors[..., 1:])
            windows = self._decoded(number, windows, where, turned, (memory, places, mask))
            outcome = self._norm("decoder.norm", windows)
            spans = (self._perceptron("span", outcome) + _logit(begun)).sigmoid()
            found.append((self._linear("classes", outcome), spans))
            begun = (self._perceptron("decoder.mend", windows) + _logit(anchors)).sigmoid()
            anchors = begun.detach()
        return found

    def _decoded(
        self,
        number: int,
        windows: Tensor,
        where: Tensor,
        turned: Tensor,
        seen: tuple[Tensor, Tensor, Tensor],
    ) -> Tensor:
        name, (memory, places, mask) = f"decoder.layers.{number}", seen
        own = f"{name}.attention"
        queries = self._linear(f"{own}.content_query", windows) + self._linear(f"{own}.place_query", where)
        keys = self._linear(f"{own}.content_key", windows) + self._linear(f"{own}.place_key", where)
        mixed = self._mixed(own, self._headed(queries), self._headed(keys), windows)
        windows = self._norm(f"{name}.attention_norm", windows + self._dropped(mixed))
        own = f"{name}.memory_attention"
        queries, keys = (
            self._linear(f"{own}.content_{side}", rows)
            for side, rows in (("query", windows), ("key", memory))
        )
        place_keys = self._linear(f"{own}.place_key", places)
        if not number:
            queries, keys = queries + self._linear(f"{own}.place_query", where), keys + place_keys
        queries = torch.cat(
            [self._headed(queries), self._headed(self._linear(f"{own}.sine_query", turned))], 3
        )
        keys = torch.cat([self._headed(keys), self._headed(place_keys)], 3)
        mixed = self._mixed(own, queries, keys, memory, mask)
        windows = self._norm(f"{name}.memory_norm", windows + self._dropped(mixed))
        widened = self._dropped(self._widened(name, windows))
        return self._norm(f"{name}.feedforward_norm", windows + widened)

    def _mixed(
        self, name: str, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Attention of queries and keys in heads, spelled out."""
        scores = queries / math.sqrt(queries.shape[3]) @ keys.transpose(2, 3)
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None], -torch.inf)
        shares = self._dropped((scores - scores.amax(3, keepdim=True)).softmax(3))
        mixed = shares @ self._headed(self._linear(f"{name}.value", values))
        return self._linear(f"{name}.output", mixed.transpose(1, 2).flatten(2))

    def _attended(self, name: str, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """PyTorch's attention as it is by default: it computes the mean of the heads' weights as well."""
        queries, keys, values = (rows.transpose(0, 1) for rows in (queries, keys, values))
        mixed, _ = functional.multi_head_attention_forward(
            queries,
            keys,
            values,
            queries.shape[2],
            self.heads,
            self.weights[f"{name}.in_proj_weight"],
            self.weights[f"{name}.in_proj_bias"],
            None,
            None,
            False,
            self.dropout,
            self.weights[f"{name}.out_proj.weight"],
            self.weights[f"{name}.out_proj.bias"],
            key_padding_mask=~mask,
        )
        return mixed.transpose(0, 1)

    def _of_windows(self, found: Found, windows: Sequence[Tensor]) -> dict[str, Tensor]:
        """What the windows of one layer lack."""
        logits, spans = found
        true = torch.cat(list(windows))
        with torch.no_grad():
            own = logits.flatten(0, 1).softmax(1)
            cost = COSTS["span"] * torch.cdist(spans.flatten(0, 1), true, p=1)
            cost = cost - COSTS["giou"] * _all_giou(spans.flatten(0, 1), true)
            cost = cost - COSTS["label"] * own[:, torch.zeros(len(true), dtype=torch.int64)]
        table = torch.split(cost.view(*logits.shape[:2], -1), [len(one) for one in windows], 2)
        chosen = [linear_sum_assignment(some[at]) for at, some in enumerate(table)]
        query = torch.cat([torch.full((len(rows),), at) for at, (rows, _) in enumerate(chosen)])
        rows = torch.cat([torch.as_tensor(one) for one, _ in chosen])
        targets = torch.cat([windows[at][torch.as_tensor(one)] for at, (_, one) in enumerate(chosen)])
        assigned = spans[query, rows]
        classes = torch.ones(logits.shape[:2], dtype=torch.int64)
        classes[query, rows] = 0
        weight = torch.tensor([1.0, BACKGROUND])
        label = functional.cross_entropy(logits.transpose(1, 2), classes, weight, reduction="none").mean()
        return {
            "span": COSTS["span"] * functional.l1_loss(assigned, targets),
            "giou": COSTS["giou"] * (1 - _all_giou(assigned, targets).diag()).mean(),
            "label": COSTS["label"] * label,
        }

    def _projected(self, name: str, rows: Tensor) -> Tensor:
        for at in (0, 4):
            rows = functional.dropout(self._norm(f"{name}.{at}", rows), self.input_dropout)
            rows = self._linear(f"{name}.{at + 2}", rows)
            if not at:
                rows = rows.relu()
        return rows

    def _widened(self, name: str, rows: Tensor) -> Tensor:
        wide = self._linear(f"{name}.feedforward.wide", rows)
        wide = functional.prelu(wide, self.weights[f"{name}.feedforward.activation.weight"])
        return self._linear(f"{name}.feedforward.narrow", self._dropped(wide))

    def _perceptron(self, name: str, rows: Tensor) -> Tensor:
        at = 0
        while f"{name}.{at + 2}.weight" in self.weights:
            rows, at = self._linear(f"{name}.{at}", rows).relu(), at + 2
        return self._linear(f"{name}.{at}", rows)

    def _headed(self, rows: Tensor) -> Tensor:
        return rows.unflatten(2, (self.heads, -1)).transpose(1, 2)  # type: ignore[no-untyped-call,no-any-return]


def _saliency_loss(scores: Tensor, others: Tensor, asked: Asked) -> Tensor:
    """The hinge, the contrast of ratings, one after the other, and what wrong words' saliency lacks."""
    low = -(torch.log(1 - others.sigmoid()) * asked.mask).sum(1).mean()
    query, hinge = torch.arange(len(scores)), scores.new_zeros(())
    for high, lower in zip(asked.higher.T, asked.lower.T, strict=True):
        hinge = hinge + (MARGIN + scores[query, lower] - scores[query, high]).clamp(min=0).sum()
    hinge = 2 * hinge / asked.higher.numel()
    both, mask = torch.cat([scores, others], 1), torch.cat([asked.mask] * 2, 1).to(scores.dtype)
    ratings = torch.cat([asked.ratings, torch.zeros_like(asked.ratings)], 1)
    contrast = scores.new_zeros(())
    for rating in range(1, RATINGS):
        positive = (ratings >= rating).to(scores.dtype)
        logits = (mask * both + (1 - mask) * -1e3) / TEMPERATURE
        logits = logits - logits.amax(1, keepdim=True)
        log_shares = logits - torch.log(logits.exp().sum(1, keepdim=True) + 1e-6)
        mean = (positive * log_shares * mask).sum(1) / (positive.sum(1) + 1e-6)
        contrast = contrast - mean.mean()
    return hinge + contrast / RATINGS + low


def _all_giou(first: Tensor, second: Tensor) -> Tensor:
    """(A, B): the generalised IoU of every window (A, 2) with every other (B, 2), centre and width."""
    first, second = (torch.stack([w[:, 0] - w[:, 1] / 2, w[:, 0] + w[:, 1] / 2], 1) for w in (first, second))
    shared = torch.minimum(first[:, None, 1], second[:, 1]) - torch.maximum(first[:, None, 0], second[:, 0])
    shared = shared.clamp(min=0)
    union = (first[:, 1] - first[:, 0])[:, None] + (second[:, 1] - second[:, 0]) - shared
    around = torch.maximum(first[:, None, 1], second[:, 1]) - torch.minimum(first[:, None, 0], second[:, 0])
    around = around.clamp(min=0)
    return shared / union - (around - union) / around


def _places(mask: Tensor, width: int) -> Tensor:
    """(Q, T, D) sines of each clip's place, from 0 to a full turn."""
    place = mask.to(torch.float32).cumsum(1)
    return _sines(place / (place[:, -1:] + 1e-6), width)


def _sines(shares: Tensor, width: int) -> Tensor:
    """(…, width) of shares (…) of a full turn: sines at even, cosines at odd places."""
    slow = 10_000.0 ** (2 * torch.div(torch.arange(width), 2, rounding_mode="floor") / width)
    turned = shares[..., None] * 2 * math.pi / slow
    return torch.stack([turned[..., 0::2].sin(), turned[..., 1::2].cos()], -1).flatten(-2)


def _logit(shares: Tensor) -> Tensor:
    """The inverse of the sigmoid, kept off both ends."""
    shares = shares.clamp(0, 1)
    return torch.log(shares.clamp(min=1e-3) / (1 - shares).clamp(min=1e-3))
