"""Draw the hard negatives of CroCs: a first system scores the training set, each epoch draws by its scores.

The first system's matching score r(q, v) of every query and video is computed once, block by block, and kept
in half precision (two bytes a pair), in a temporary file if it is large. An epoch's draws depend only on
(seed, epoch): not on the batches, and not on whether the training was interrupted.

Shapes: Q queries and V videos of a split; see `models.parts.cross_directional` for equations and readings.
"""

from __future__ import annotations

import dataclasses
import tempfile
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from whenabouts.types import UsageError
from whenabouts_systems.models.inputs import Inputs
from whenabouts_systems.models.parts.cross_directional import draw, draw_logits, golden_means
from whenabouts_systems.models.parts.text_encoder import same_tokenizer
from whenabouts_systems.models.protocol import QueryEncoding, SpanScores, VideoEncoding, joined
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.ranking.encoded_corpus import evaluating
from whenabouts_systems.ranking.localize import repeated
from whenabouts_systems.training.examples import DrawnNegatives, Examples, Indices, seed_of
from whenabouts_systems.training.experiment import NegativeSettings
from whenabouts_systems.training.labels import Pairs, is_in

Scores = NDArray[np.float16]

_BLOCK = 1 << 22
"""The most scores that are processed at a time: 16 MiB of float32."""
_IN_MEMORY = 1 << 28
"""The most bytes of scores that are kept in memory; larger tables go to a temporary file."""
_BATCH_QUERIES, _BATCH_VIDEOS = 512, 32


@dataclass(frozen=True)
class _Epoch:
    """The draws of an epoch: `videos` (Q, N) by query, `queries` (V, M) by video; padded with -1."""

    number: int
    videos: Indices
    queries: Indices


class HardNegatives:
    """Draws hard negatives for a split from the scores of a first system.

    `scores` (Q, V) are r(q, v). `positives` are the query rows (K,) and video rows (K,) of all pairs that are
    never negatives. `true` are those of the right pairs, sorted and distinct: r(q, v+) is the mean of their
    scores, and only their queries are drawn as negatives.
    """

    def __init__(
        self, scores: Scores, positives: Pairs, true: Pairs, settings: NegativeSettings, seed: int
    ) -> None:
        self.settings, self.seed, self.scores = settings, seed, scores
        queries, videos = scores.shape
        self._keys = np.unique(_keys(positives, videos))
        of_queries, of_videos = self._keys // videos, self._keys % videos
        self._queries = np.unique(true[0])
        place = np.full(queries, -1, np.int64)
        place[self._queries] = np.arange(len(self._queries))
        by_video = np.lexsort((of_queries, of_videos))
        # The positives as two sparse matrices, by query and by video: the columns of each row.
        self._columns = of_videos, place[of_queries[by_video]]
        self._starts = (
            np.searchsorted(of_queries, np.arange(queries + 1)),
            np.searchsorted(of_videos[by_video], np.arange(videos + 1)),
        )
        values = torch.from_numpy(scores[true].astype(np.float32))
        self._means = tuple(
            golden_means(values, torch.from_numpy(rows), count, settings.mean)
            for rows, count in zip(true, scores.shape, strict=True)
        )
        self._epoch = _Epoch(-1, np.zeros((0, 0), np.int64), np.zeros((0, 0), np.int64))

    @classmethod
    def open(
        cls,
        first_stage: Trained,
        examples: Examples,
        settings: NegativeSettings,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> HardNegatives:
        """The hard negatives of a split, after a first system has scored it (slow).

        Raises UsageError if the system was trained on other features, and as `matching_scores` does.
        """
        _refuse_other_inputs(first_stage.inputs, examples.inputs)
        scores = matching_scores(first_stage, examples, device)
        true = np.unique(_keys((examples.query, examples.video), scores.shape[1]))
        return cls(
            scores, examples.positive_pairs, (true // scores.shape[1], true % scores.shape[1]), settings, seed
        )

    def drawn(self, query: Indices, own: Indices, videos: Indices, epoch: int) -> DrawnNegatives:
        """The negatives of a batch in an epoch; see `examples.Negatives`."""
        table = self.of_epoch(epoch)
        for_queries, for_videos = table.videos[query], table.queries[videos]
        if self.settings.share == "batch":  # the same for all rows, -1 where a pair is a positive
            chosen = _in_turn(for_queries, self.settings.videos)[None, :].repeat(len(query), 0)
            for_queries = np.where(self._is_positive(query[:, None], chosen), -1, chosen)
            chosen = _in_turn(for_videos, self.settings.queries)[None, :].repeat(len(videos), 0)
            for_videos = np.where(self._is_positive(chosen, videos[:, None]), -1, chosen)
        return DrawnNegatives.of(videos, for_queries, for_videos)

    def of_epoch(self, epoch: int) -> _Epoch:
        """The draws of an epoch, cached until another epoch is asked for."""
        if self._epoch.number != epoch:
            videos = self._draws(epoch, self.settings.videos, by_video=False)
            self._epoch = _Epoch(epoch, videos, self._draws(epoch, self.settings.queries, by_video=True))
        return self._epoch

    def _draws(self, epoch: int, count: int, *, by_video: bool) -> Indices:
        """(Q, count) rows of videos, or (V, count) rows of queries."""
        rows, columns = self.scores.shape[::-1] if by_video else self.scores.shape
        drawn = np.full((rows, count), -1, np.int64)
        if not count:
            return drawn
        size = max(1, _BLOCK // max(1, len(self._queries) if by_video else columns))
        for low in range(0, rows, size):
            high = min(low + size, rows)
            # Each block has its own seed, so that its draws do not depend on earlier blocks.
            generator = torch.Generator().manual_seed(seed_of(self.seed, epoch, int(by_video), low))
            scores, candidates = self._block(low, high, by_video)
            means = self._means[by_video][low:high]
            logits = draw_logits(scores, means, candidates, self.settings.temperature, self.settings.highest)
            drawn[low:high] = draw(logits, count, generator).numpy()
        return np.where(drawn < 0, -1, self._queries[drawn]) if by_video else drawn

    def _block(self, low: int, high: int, by_video: bool) -> tuple[Tensor, Tensor]:
        """Scores and candidates of rows low..high: queries with all videos, or videos with all queries."""
        scores = self.scores[:, low:high][self._queries].T if by_video else self.scores[low:high]
        starts = self._starts[by_video][low : high + 1]
        columns = self._columns[by_video][starts[0] : starts[-1]]
        rows = np.repeat(np.arange(high - low), np.diff(starts))
        candidates = np.ones(scores.shape, bool)
        candidates[rows[columns >= 0], columns[columns >= 0]] = False
        return torch.from_numpy(scores.astype(np.float32, order="C")), torch.from_numpy(candidates)

    def _is_positive(self, query: Indices, video: Indices) -> NDArray[np.bool_]:
        """Whether pairs are positives."""
        return is_in(self._keys, _keys((query, video), self.scores.shape[1]))


def matching_scores(first_stage: Trained, examples: Examples, device: torch.device | str = "cpu") -> Scores:
    """(Q, V) float16 r(q, v): the first system's matching score of the best moment, equation 3.

    Queries without an example score 0. Videos are encoded a few at a time; only the queries' encodings and
    the scores stay in memory. Raises UsageError for a system that finds no moments, or whose scores are not
    logarithms of values from 0 to 1.
    """
    model: Any = first_stage.model
    if not hasattr(model, "score_spans"):
        raise UsageError(
            f"the first stage, {first_stage.system}, finds no moments; hard negatives need a system that does"
        )
    model.to(device)
    rows = np.unique(examples.query)
    videos = len(examples.videos)
    scores = _zeros(len(examples.queries), videos)
    with evaluating(model):
        parts = np.split(rows, range(_BATCH_QUERIES, len(rows), _BATCH_QUERIES))
        queries = joined([model.encode_queries(examples.query_batch(part).to(device)) for part in parts])
        for part in np.split(np.arange(videos), range(_BATCH_VIDEOS, videos, _BATCH_VIDEOS)):
            encoding = model.encode_videos(examples.video_batch(part).to(device))
            columns = [_scores_in(model, queries, encoding, at) for at in range(len(part))]
            scores[np.ix_(rows, part)] = np.stack(columns, 1)
    return scores


def _scores_in(model: Any, queries: QueryEncoding, videos: VideoEncoding, at: int) -> Scores:
    """(Q,) the score of the best moment of one video for every query."""
    video = videos.take(torch.tensor([at], device=videos.mask.device))
    size = max(1, _BLOCK // videos.mask.shape[1] ** 2)
    parts = []
    for low in range(0, len(queries), size):
        rows = torch.arange(low, min(low + size, len(queries)), device=videos.mask.device)
        parts.append(_best(model.score_spans(queries.take(rows), repeated(video, len(rows)))))
    scores = torch.cat(parts).float().exp()
    if scores.max() > 1.001:
        raise UsageError(
            f"the first stage scores a moment {scores.max().item():.4g}; hard negatives need a system whose "
            "scores are logarithms of values from 0 to 1"
        )
    return scores.cpu().numpy().astype(np.float16)


def _best(scores: SpanScores) -> Tensor:
    """(P,) the score of the best span of each pair."""
    if scores.windows is not None:
        return scores.windows[..., 2].amax(1)
    table = scores.start[:, :, None] + scores.end[:, None, :]
    if scores.spans is not None:
        table = table + scores.spans
    real = scores.mask[:, :, None] & scores.mask[:, None, :]
    return table.masked_fill(~real.triu(), -torch.inf).flatten(1).amax(1)


def _zeros(queries: int, videos: int) -> Scores:
    """(Q, V) zeros, in memory or in a temporary file that ends with the process."""
    if 2 * queries * videos <= _IN_MEMORY:
        return np.zeros((queries, videos), np.float16)
    with tempfile.TemporaryFile(prefix="whenabouts-scores-") as file:
        return np.memmap(file, np.float16, "w+", shape=(queries, videos))


def _refuse_other_inputs(first: Inputs, second: Inputs) -> None:
    """Raise UsageError if a first stage was trained on other features, or prepared them differently."""
    refuse_other_reading(first, second)
    for option in dataclasses.fields(second):
        before, now = getattr(first, option.name), getattr(second, option.name)
        if before != now and option.name != "tokenizer":
            raise UsageError(
                f"the first stage has {option.name} = {before!r}, this training {now!r}; use the same "
                "[features], or a first stage that was trained on these"
            )


def refuse_other_reading(first: Inputs, second: Inputs) -> None:
    """Raise UsageError if the tokenizers of two stages differ in content, or their streams in order."""
    if sorted(first.streams) == sorted(second.streams) and list(first.streams) != list(second.streams):
        raise UsageError(
            f"the first stage has its streams in the order {', '.join(first.streams)}, this training "
            f"{', '.join(second.streams)}; use the first stage's order in [features]"
        )
    before, now = first.tokenizer, second.tokenizer
    if before != now and not (before and now and same_tokenizer(before, now)):
        of_features = "none (features of words)"
        raise UsageError(
            f"the first stage has the tokenizer {before or of_features}, this training {now or of_features}, "
            "and their files differ; name the first stage's tokenizer in [features] query"
        )


def load_first_stage(model: torch.nn.Module, first_stage: Trained, name: str) -> None:
    """Copy the weights of a first system into a model, which errors call `name`.

    Weights that the model lacks are skipped if their names begin with a prefix in `model.left_behind`. Raises
    UsageError for the first other weight that is missing or of another shape.
    """
    left = tuple(getattr(model, "left_behind", ()))
    weights, expected = first_stage.model.state_dict(), model.state_dict()
    weights = {key: weight for key, weight in weights.items() if key in expected or not key.startswith(left)}
    for key in sorted({*weights, *expected}):
        if key not in weights or key not in expected:
            place = "the first stage" if key not in weights else "the second stage"
            raise UsageError(
                f"{name}: weight {key!r} is missing in {place}; are their [model] settings the same?"
            )
        if weights[key].shape != expected[key].shape:
            raise UsageError(
                f"{name}: weight {key!r} is of shape {tuple(weights[key].shape)}, the second stage expects "
                f"{tuple(expected[key].shape)}; use the first stage's [model] settings"
            )
    model.load_state_dict(weights)


def _keys(pairs: Pairs, videos: int) -> Indices:
    """(K,) a number for each pair of a query and a video, ordered like the pairs."""
    return pairs[0] * videos + pairs[1]


def _in_turn(drawn: Indices, count: int) -> Indices:
    """Up to `count` distinct values of (N, M), in turn: the first of each row, then the second, and so on."""
    flat = drawn.T.reshape(-1)
    values, first = np.unique(flat, return_index=True)
    order = np.argsort(first[values >= 0])
    return values[values >= 0][order][:count]
