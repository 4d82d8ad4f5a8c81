"""SQuiDNet (Yoon et al., ECCV 2022): moments in a few videos that a biased retriever has listed.

"Selective query-guided debiasing": a retriever that goes by what usually comes together is used for what it
gets wrong. Clips of the streams (what is seen, what is said) go through one layer of BERT together, the words
of the query through another; the query says how much each stream counts (NetVLAD, a softmax over the
streams). A small network compares every clip with every word; from what comes of it start, end and the
video's own score are read, and the end sees the start's features. Every pair of a query and a video is
computed for itself; clips are kept, and there are no keys to search by.

What the debiasing is, in the released program: the bias is a list of videos for each query (ours is any run,
such as that of a trained retriever; see `[data.retrieved]`). Training draws 15 `Batch.negatives` from it, up
to the rank of the query's own video + 500, or + 50 where the query says what is usually said (the first verb
of one of the ten first nouns of a table, `research.relevance.cooccurrence`). Answering looks into its first
10 videos. Its scores count nowhere, and no loss knows which queries are usual. Start and end are softmaxes
over the clips of the own video and the negatives together; the video's own score has a cross-entropy over the
same videos (`measure` "moment_video"), or there is none ("moment": then the retriever's counts, `alpha`
times).

A moment scores log P(start) + log P(end) + the video's own score. The program takes a softmax of that over
the candidates, which takes the same number off every moment of a query. `probabilities` "sigmoid" is the
ranked program's (TVR-Ranking) where it looks through a whole corpus: sigmoids of start, end and own score, so
that a moment's score depends on no other moment or video. A list of videos (VR) is the retriever's; the
program's is in the order of the video's own score.

Readings and differences. The paper was not at hand: this is written from what the program computes. By
default nothing depends on padding, and a negative that is known to answer is left out; in the program it is
otherwise (`released/squidnet.py`).

The ranked program draws negatives for each row, by the rank of the row's video; ours are for each query, by
the best rank of its videos (`[data.retrieved] draws`). These are faults of its evaluation: its 40 candidates
are drawn at random from the list as if for training, without the row's own video, so that this can never be
found; there is a row for each relevant moment, and the last row of a query overwrites the others
(`validation_draws` validates so). Not here at all: over the whole corpus it stops after 11 queries, and names
videos in the order of the file whose features it shuffled; an evaluation before the first step leaves dropout
off for the rest of the epoch.

Shapes as in `protocol`; S streams, H the width inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from whenabouts_systems.models.parts.attention_flow import attention_flow
from whenabouts_systems.models.parts.borders import MASKED, BorderScore, log_probabilities
from whenabouts_systems.models.parts.layers import initialise
from whenabouts_systems.models.parts.pairs import PairLogits, PairModel, projected
from whenabouts_systems.models.parts.renaming import OF_BERT, renamed_by_place
from whenabouts_systems.models.parts.stream_weights import weighed
from whenabouts_systems.models.protocol import (
    QueryEncoding,
    SpanScores,
    VideoEncoding,
)
from whenabouts_systems.models.settings import (
    NotNegative,
    ProgramSetting,
    Share,
    Size,
    UpToTwoStreams,
    check_settings,
)

__all__ = ["Config", "Model", "PairLogits", "released_names"]

_VALUES = {"cpu": 1 << 22}
"""Values that are compared at once: what stays in a processor's cache; a GPU wants more."""
_VALUES_ELSEWHERE = 1 << 28


@dataclass(frozen=True)
class Config(ProgramSetting):
    """The settings of SQuiDNet; the defaults are the released ones for TVR."""

    streams: UpToTwoStreams = field(default_factory=lambda: {"video": 4352, "sub": 768})
    """Name and width of one stream or of two: what is seen, then what is said."""
    query_width: Size = 768
    hidden: Size = 768
    heads: Size = 12
    feedforward: Size | None = None
    """Width inside the feed-forward parts; None: four times `hidden`, as in BERT."""
    layers: Size = 1
    """Layers of each of the encoders."""
    clusters: Size = 32
    """Centres of the pooling of words."""
    span_hidden: Size = 128
    """Width between the two convolutions, and before the last layer of the video's own score."""
    span_kernel: Size = 5
    max_clips: Size = 100
    max_tokens: Size = 30
    input_dropout: Share = 0.1
    dropout: Share = 0.1
    initializer_range: NotNegative = 0.02
    measure: Literal["moment", "moment_video"] = "moment"
    probabilities: Literal["softmax", "sigmoid"] = "softmax"
    alpha: NotNegative = 1.0
    """How often the retriever's score counts in a moment's score, with "moment"."""
    lambda_tl: float = 0.01
    lambda_video: float = 0.005
    """Weight of the videos' cross-entropy, with "moment_video"."""

    def __post_init__(self) -> None:
        """UsageError where a setting makes no model."""
        check_settings(self, "squidnet")

    @property
    def inner(self) -> int:
        """The width inside the feed-forward parts."""
        return 4 * self.hidden if self.feedforward is None else self.feedforward


class ComparedWords(nn.Module):
    """Clips and words that are compared pair by pair; three vectors for each clip.

    These are the clip itself, the words that suit it, and its product with the clips that suit the query.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.wide = nn.Linear(3 * width, width, bias=False)
        self.narrow = nn.Linear(width, 1, bias=False)

    def forward(
        self, clips: Tensor, words: Tensor, clip_mask: Tensor, word_mask: Tensor, attended: Tensor
    ) -> Tensor:
        """(P, T, 3 H) from clips (P, T, H) and words (P, L, H); see `attention_flow`."""
        table = self.similarity(clips, words, clip_mask, word_mask)
        of_words, of_clips = attention_flow(table, clips, words, clip_mask, attended)
        return torch.cat([clips, of_words, clips * of_clips], dim=2)

    def similarity(self, clips: Tensor, words: Tensor, clip_mask: Tensor, word_mask: Tensor) -> Tensor:
        """(P, T, L): narrow(ReLU(wide([v; q; v * q]))) of each clip v and word q; anything in the padding.

        Clips and words are never laid side by side: `wide` is applied to each of the three by itself.
        """
        of_clip, of_word, of_both = self.wide.weight.chunk(3, dim=1)
        lengths = clip_mask.sum(1)
        # Videos of similar length together, so that little padding is compared.
        order = lengths.argsort(stable=True)
        room = _VALUES.get(clips.device.type, _VALUES_ELSEWHERE)
        size = max(1, room // (words.shape[1] * clips[0].numel()))
        tables = []
        for rows in torch.split(order, size):
            steps, tokens = _longest(lengths[rows], clips), _longest(word_mask[rows].sum(1), words)
            some, their_words = clips[rows, :steps], words[rows, :tokens]
            inner = functional.linear(some[:, :, None] * their_words[:, None], of_both)
            inner += functional.linear(some, of_clip)[:, :, None]
            inner += functional.linear(their_words, of_word)[:, None]
            rest = (0, words.shape[1] - tokens, 0, clips.shape[1] - steps)
            tables.append(functional.pad(self.narrow(inner.relu_())[..., 0], rest))
        return torch.cat(tables)[order.argsort()]


class VideoScore(nn.Module):
    """How well a whole video answers, from the features that borders are read from."""

    def __init__(self, width: int, hidden: int, inner: int) -> None:
        super().__init__()
        self.wide = nn.Linear(width, hidden, bias=False)
        self.middle = nn.Linear(hidden, inner, bias=False)
        self.narrow = nn.Linear(inner, 1, bias=False)

    def forward(self, clips: Tensor, mask: Tensor) -> Tensor:
        """(P,) from clips (P, T, D), of which the maximum is taken."""
        clips = clips.masked_fill(~mask[..., None], -torch.inf)
        pooled = self.middle(self.wide(clips.amax(1)).relu()).relu()
        logits: Tensor = self.narrow(pooled)
        return logits[:, 0]


class Model(PairModel):
    """SQuiDNet with fresh weights: a localizer (see `protocol`)."""

    system, own_score, other_measures = "squidnet", "moment_video", 'measure = "moment"'

    def __init__(self, config: Config) -> None:
        super().__init__(config, len(config.streams) > 1)
        hidden = config.hidden
        self.comparison = ComparedWords(hidden)
        self.context = projected(3 * hidden, config)
        self.start_features = projected(4 * hidden, config)
        self.end_features = projected(2 * hidden, config)
        self.start, self.end = (BorderScore(hidden, config.span_hidden, config.span_kernel) for _ in range(2))
        self.video_score = (
            VideoScore(4 * hidden, hidden, config.span_hidden) if config.measure == "moment_video" else None
        )
        initialise(self, config.initializer_range)

    @property
    def video_weight(self) -> float:
        """How often the retriever's score counts: not at all where a video has a score of its own."""
        return self.config.alpha if self.config.measure == "moment" else 0.0

    def score_spans(self, queries: QueryEncoding, videos: VideoEncoding) -> SpanScores:
        """Scores of start and end of P pairs, a few pairs at a time; see above."""
        parts = self._parts_of(queries, videos)
        borders = torch.cat([part.borders for part in parts], dim=1).float()
        own = [part.video for part in parts if part.video is not None]
        sigmoid = self.config.probabilities == "sigmoid"
        start, end = functional.logsigmoid(borders) if sigmoid else log_probabilities(borders)
        if own:
            score = torch.cat(own).float()
            start = start + (functional.logsigmoid(score) if sigmoid else score)[:, None]
        return SpanScores(start, end, videos.mask)

    def pair_logits(self, queries: QueryEncoding, videos: VideoEncoding) -> PairLogits:
        """The logits of P pairs: row p of `queries` with row p of `videos`."""
        mask = videos.mask
        clips = torch.stack([videos.parts[f"clips/{name}"] for name in self.config.streams])
        clips = weighed(clips, queries.parts.get("stream_weights"))
        word_mask = queries.parts["mask"]
        aware = self.comparison(
            clips, queries.parts["tokens"], mask, word_mask, self._attended(mask, word_mask)
        )
        context = self.context(aware, mask)
        both = torch.cat([aware, context], dim=2)
        start = self.start_features(both, mask)
        # The end is read from the start's features too: a moment does not end before it starts.
        end = self.end_features(torch.cat([context, start], dim=2), mask)
        logits = torch.stack([self.start(start), self.end(end)])
        video = None if self.video_score is None else self.video_score(both, self._pooled(mask))
        return PairLogits(logits.masked_fill(~mask, MASKED), video)


def _longest(lengths: Tensor, padded: Tensor) -> int:
    """How many steps of some padded sequences (P, T, H) are compared; on a GPU all, without waiting."""
    return padded.shape[1] if padded.is_cuda else max(1, int(lengths.max()))


def released_names(config: Config) -> Mapping[str, str]:
    """Our name of each parameter -> its name in the released program; the first stream is the pictures."""
    projections = tuple(
        (f"video_encoder.projections.{stream}.", f"MMAencoder.vsMMA.{kind}.")
        for stream, kind in zip(config.streams, ("img_linear", "text_linear"), strict=False)
    )
    return renamed_by_place(lambda: Model(config), (*projections, *_PLACES), OF_BERT)


_PLACES = (
    ("video_encoder.positions.", "MMAencoder.vsMMA.transformer.embeddings."),
    ("video_encoder.encoder.", "MMAencoder.vsMMA.transformer.encoder."),
    ("query_projection.", "MMAencoder.text_enc.linear."),
    ("query_positions.", "MMAencoder.text_enc.transformer.embeddings."),
    ("query_encoder.", "MMAencoder.text_enc.transformer.encoder."),
    ("stream_weights.clusters.assignment", "nvld_query_weight.text_pooling.clusters"),
    ("stream_weights.clusters.centres", "nvld_query_weight.text_pooling.clusters2"),
    ("stream_weights.clusters.norm.", "nvld_query_weight.text_pooling.LayerNorm."),
    ("stream_weights.linear.", "nvld_query_weight.fc_lyr."),
    ("comparison.wide.", "VQMMA.sim_weight.0."),
    ("comparison.narrow.", "VQMMA.sim_weight.2."),
    ("context.", "JS_emb."),
    ("start_features.", "CMP.start_JSemb."),
    ("end_features.", "CMP.conditional_end_JSemb."),
    ("start.wide.", "CMP.start_moment_prediction.moment_predictor.0."),
    ("start.narrow.", "CMP.start_moment_prediction.moment_predictor.2."),
    ("end.wide.", "CMP.end_moment_prediction.moment_predictor.0."),
    ("end.narrow.", "CMP.end_moment_prediction.moment_predictor.2."),
    ("video_score.wide.", "CMP.video_predictor.0."),
    ("video_score.middle.", "CMP.video_predictor.2."),
    ("video_score.narrow.", "CMP.video_predictor.4."),
)
