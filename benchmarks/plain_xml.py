"""XML as one would write it down at first: the oracle of its arithmetic and the yardstick of its speed.

Written from the papers' description alone. It shares nothing with the package but the names of parameters, so
that the weights of `whenabouts_systems.models.xml` load. What makes it plain: one row a query and its video,
every tensor padded to one length, attention spelled out as products and a softmax, every layer of PyTorch as
it comes, an optimizer that goes through the parameters one by one.

Shapes: B pairs, T clips, L tokens, D width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

FAR_BELOW = -1e10


@dataclass(frozen=True)
class Pairs:
    """B queries, each with its video: tokens (B, L, E), stream -> clips (B, T, F), masks, true spans (B, 2).

    `video` (B,) tells which pairs have the same video.
    """

    tokens: Tensor
    token_mask: Tensor
    clips: Mapping[str, Tensor]
    clip_mask: Tensor
    spans: Tensor
    video: Tensor

    @property
    def same_video(self) -> Tensor:
        """(B, B): whether query i is true for the video of row j."""
        return self.video[:, None] == self.video[None, :]


class Input(nn.Module):
    """LayerNorm, dropout, linear layer, ReLU."""

    def __init__(self, features: int, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(features, width)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, F) to (B, T, D)."""
        projected: Tensor = torch.relu(self.linear(self.dropout(self.norm(x))))
        return projected


class Positions(nn.Module):
    """A vector for each place is added; LayerNorm, dropout."""

    def __init__(self, places: int, width: int, dropout: float) -> None:
        super().__init__()
        self.table = nn.Embedding(places, width)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) to the same shape."""
        places = torch.arange(x.shape[1]).expand(len(x), -1)
        placed: Tensor = self.dropout(self.norm(x + self.table(places)))
        return placed


class Attention(nn.Module):
    """softmax(Q K^T / sqrt(d)) V with several heads."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        self.heads = heads

    def forward(self, x: Tensor, others: Tensor, mask: Tensor) -> Tensor:
        """What each of x (B, T, D) finds among the others (B, T, D) that are real."""
        queries, keys = self._heads(self.query(x)), self._heads(self.key(others))
        values = self._heads(self.value(others))
        scores = queries @ keys.transpose(2, 3) / queries.shape[-1] ** 0.5
        scores = scores.masked_fill(~mask[:, None, None, :], FAR_BELOW)
        found = self.dropout(torch.softmax(scores, dim=-1)) @ values
        joined: Tensor = found.transpose(1, 2).reshape(x.shape)
        return joined

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], self.heads, -1).transpose(1, 2)


class Encoder(nn.Module):
    """Self-attention, output layer, residual LayerNorm."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(width, heads, dropout)
        self.output = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(B, T, D) to the same shape."""
        encoded: Tensor = self.norm(self.dropout(self.output(self.attention(x, x, mask))) + x)
        return encoded


class Cross(nn.Module):
    """Attention to the other stream, residual LayerNorm."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(width, heads, dropout)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, others: Tensor, mask: Tensor) -> Tensor:
        """(B, T, D) to the same shape."""
        encoded: Tensor = self.norm(self.attention(x, others, mask) + x)
        return encoded


class Pooling(nn.Module):
    """For each stream a weighted mean of the words."""

    def __init__(self, width: int, streams: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, streams, bias=False)

    def forward(self, words: Tensor, mask: Tensor) -> list[Tensor]:
        """(B, L, D) to a (B, D) for each stream."""
        weights = self.linear(words).masked_fill(~mask[:, :, None], FAR_BELOW).softmax(dim=1)
        return [(weights[:, :, [at]] * words).sum(dim=1) for at in range(weights.shape[2])]


class Borders(nn.Module):
    """A convolution over the similarity of query and clips for the start, one for the end."""

    def __init__(self, kernel: int) -> None:
        super().__init__()
        self.start = nn.Conv1d(1, 1, kernel, padding=kernel // 2, bias=False)
        self.end = nn.Conv1d(1, 1, kernel, padding=kernel // 2, bias=False)

    def forward(self, similarity: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T) to logits of start and end."""
        similarity = similarity.masked_fill(~mask, 0.0).unsqueeze(1)
        start = self.start(similarity).squeeze(1).masked_fill(~mask, FAR_BELOW)
        end = self.end(similarity).squeeze(1).masked_fill(~mask, FAR_BELOW)
        return start, end


class Stream(nn.Module):
    """The layers of one stream of a video."""

    def __init__(self, features: int, width: int, heads: int, dropout: float, crossed: bool) -> None:
        super().__init__()
        self.projection = Input(features, width, dropout)
        self.encoders = nn.ModuleList(Encoder(width, heads, dropout) for _ in range(2 if crossed else 3))
        self.cross = Cross(width, heads, dropout) if crossed else None
        self.query = nn.Linear(width, width)


class PlainXML(nn.Module):
    """XML with a merged predictor, and cross-attention where there are two streams."""

    def __init__(
        self,
        streams: Mapping[str, int],
        query_width: int,
        hidden: int,
        heads: int,
        places: tuple[int, int] = (100, 30),
        *,
        dropout: float = 0.1,
        margin: float = 0.1,
        lambda_spans: float = 0.01,
    ) -> None:
        super().__init__()
        clips, tokens = places
        self.query_projection = Input(query_width, hidden, dropout)
        self.query_positions = Positions(tokens, hidden, dropout)
        self.query_encoder = Encoder(hidden, heads, dropout)
        self.clip_positions = Positions(clips, hidden, dropout)
        crossed = len(streams) == 2
        self.streams = nn.ModuleDict(
            {name: Stream(features, hidden, heads, dropout, crossed) for name, features in streams.items()}
        )
        self.pooling = Pooling(hidden, len(streams))
        self.predictor = "merged" if crossed else next(iter(streams))
        self.borders = nn.ModuleDict({self.predictor: Borders(5)})
        self.margin, self.lambda_spans = margin, lambda_spans

    def scores(self, pairs: Pairs) -> tuple[Tensor, Tensor, Tensor]:
        """(B, B) cosines of every query with every row's video; (B, T) logits of start and of end."""
        words = self.query_positions(self.query_projection(pairs.tokens))
        words = self.query_encoder(words, pairs.token_mask)
        vectors = self.pooling(words, pairs.token_mask)
        first = {}
        for name, stream in self.streams.items():
            clips = self.clip_positions(stream.projection(pairs.clips[name]))  # type: ignore[operator]
            first[name] = stream.encoders[0](clips, pairs.clip_mask)  # type: ignore[index, operator]
        cosines, similarities = [], []
        for (name, stream), vector in zip(self.streams.items(), vectors, strict=True):
            cosines.append(best_cosine(vector, first[name], pairs.clip_mask))
            clips = first[name]
            if stream.cross is not None:
                (other,) = (one for one in first if one != name)
                clips = stream.cross(clips, first[other], pairs.clip_mask)  # type: ignore[operator]
            for encoder in list(stream.encoders)[1:]:  # type: ignore[arg-type]
                clips = encoder(clips, pairs.clip_mask)
            similarities.append((stream.query(vector).unsqueeze(1) * clips).sum(dim=2))  # type: ignore[operator]
        similarity = sum(similarities[1:], similarities[0]) / len(similarities)
        start, end = self.borders[self.predictor](similarity, pairs.clip_mask)
        return sum(cosines[1:], cosines[0]) / len(cosines), start, end

    def loss(self, pairs: Pairs, pool: int | None = None) -> dict[str, Tensor]:
        """The hinges against a negative video and a negative query, and the spans' negative likelihood."""
        cosines, start, end = self.scores(pairs)
        against_video, against_query = hinges(cosines, pairs.same_video, self.margin, pool)
        spans = span_loss(start, end, pairs.spans)
        return {
            "negative_videos": against_video.mean(),
            "negative_queries": against_query.mean(),
            "spans": self.lambda_spans * spans.mean(),
        }


def best_cosine(vectors: Tensor, clips: Tensor, mask: Tensor) -> Tensor:
    """(B, B): the cosine of every query (B, D) with the best real clip (B, T, D) of every row."""
    vectors = nn.functional.normalize(vectors, dim=-1)
    return best_product(vectors, nn.functional.normalize(clips, dim=-1), mask)


def best_product(vectors: Tensor, clips: Tensor, mask: Tensor) -> Tensor:
    """(B, B): the same with dot products."""
    every = torch.einsum("qd,vtd->qvt", vectors, clips)
    return every.masked_fill(~mask.unsqueeze(0), FAR_BELOW).max(dim=2).values


def hinges(scores: Tensor, same: Tensor, margin: float, pool: int | None) -> tuple[Tensor, Tensor]:
    """(B,) twice: each query's own video against another one, each video's own query against another one."""
    own = scores.diagonal()
    other_video = a_negative(scores, same, pool)
    other_query = a_negative(scores.T, same.T, pool)
    return torch.relu(margin + other_video - own), torch.relu(margin + other_query - own)


def a_negative(scores: Tensor, known: Tensor, pool: int | None) -> Tensor:
    """(B,): of each row one of the `pool` highest that are not known to be true; of all where None."""
    order = scores.detach().masked_fill(known, -torch.inf).sort(dim=1, descending=True).indices
    count = (~known).sum(dim=1)
    if pool is not None:
        count = count.clamp(max=pool)
    drawn = (torch.rand(len(scores)) * count).long()
    chosen = order.gather(1, drawn.unsqueeze(1))
    return scores.gather(1, chosen).squeeze(1)


def span_loss(start: Tensor, end: Tensor, spans: Tensor) -> Tensor:
    """(B,): cross-entropy of the start plus that of the end."""
    cross_entropy = nn.functional.cross_entropy
    return cross_entropy(start, spans[:, 0], reduction="none") + cross_entropy(
        end, spans[:, 1], reduction="none"
    )


class PlainBertAdam(torch.optim.Optimizer):
    """Adam without bias correction and with decoupled weight decay, parameter by parameter.

    Each gradient is cut to length 1 by itself; a decay of 0.01 for all parameters of more than one dimension.
    """

    def __init__(self, parameters: Iterable[Tensor], rate: float = 1e-4) -> None:
        super().__init__(parameters, {"lr": rate})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step with the gradients that are there."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["mean"] = torch.zeros_like(parameter)
                    state["square"] = torch.zeros_like(parameter)
                nn.utils.clip_grad_norm_(parameter, 1.0)
                state["mean"].mul_(0.9).add_(parameter.grad, alpha=0.1)
                state["square"].mul_(0.999).addcmul_(parameter.grad, parameter.grad, value=0.001)
                update = state["mean"] / (state["square"].sqrt() + 1e-6)
                if parameter.dim() > 1:
                    update += 0.01 * parameter
                parameter.add_(-group["lr"] * update)
