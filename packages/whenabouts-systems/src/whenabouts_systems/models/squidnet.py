"""SQuiDNet (Yoon et al., ECCV 2022): find moments in a few videos that a biased retriever has listed.

"Selective query-guided debiasing" uses the mistakes of a retriever that relies on co-occurrence.
`parts/pairs.py` has the architecture, but for the small network that compares every clip with every word.

Debiasing in the released program:

- The bias is a list of videos for each query; ours is any run, such as of a trained retriever
  (`[data.retrieved]`).
- Training draws 15 `Batch.negatives` from it, up to the rank of the query's own video + 500, or + 50 if the
  query has usual words (the first verb of one of the first ten nouns of a table,
  `whenabouts_bench.relevance.cooccurrence`). Its first 10 videos are searched for answers.
- Its scores are never used, and no loss knows which queries are usual.
- Start and end are softmaxes over the clips of the own video and the negatives. With `measure`
  "moment_video", the video's own score has a cross-entropy over the same videos. With "moment" there is no
  own score, and the retriever's score counts with the weight `alpha`.

A moment scores log P(start) + log P(end) + the video's own score. The program takes a softmax of this over
the candidates, which subtracts the same number from all moments of a query. `probabilities` "sigmoid" is the
ranked program (TVR-Ranking) on a whole corpus: sigmoids of start, end and own score, so that a moment's score
depends on no other moment or video. A list of videos (VR) is the retriever's; in the program it is ordered by
the video's own score.

We did not have the paper; this is written from the program's outputs. By default nothing depends on padding,
and negatives known to answer are excluded; `released/squidnet.py` follows the program.

The ranked program draws negatives for each row, by the rank of the row's video; ours are drawn for each
query, by the best rank of its videos (`[data.retrieved] draws`). Its evaluation has faults. Its 40 candidates
are drawn at random from the list as if for training, without the row's own video, which therefore can never
be found. Each relevant moment has a row, and the last row of a query overwrites the others
(`validation_draws` reproduces this). We do not reproduce the following: over a whole corpus it stops after 11
queries and names videos in the order of the file, although it shuffled their features; and an evaluation
before the first step leaves dropout off for the rest of the epoch.

Shapes as in `protocol`; S streams, H the width inside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from whenabouts_systems.models.parts.pairs import PairModel, PairSettings, attention_flow, pair_names
from whenabouts_systems.models.protocol import QueryEncoding

_VALUES = {"cpu": 1 << 22}
"""The most values that are compared at a time: as many as fit into a CPU's cache. A GPU needs more."""


@dataclass(frozen=True)
class Config(PairSettings):
    """The settings of SQuiDNet; the defaults are the released ones for TVR, but for `measure`."""

    measure: Literal["moment", "moment_video"] = "moment"
    """Released for TVR: "moment_video", which needs negatives."""
    probabilities: Literal["softmax", "sigmoid"] = "softmax"
    lambda_video: float = 0.005
    """Weight of the videos' cross-entropy, with "moment_video"."""


class ComparedWords(nn.Module):
    """Compares every clip with every word, and gives three vectors for each clip.

    These are the clip, its attended words, and its product with the clips that fit the query.
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
        """(P, T, L): narrow(ReLU(wide([v; q; v * q]))) for each clip v and word q; undefined in padding.

        Clips and words are not concatenated: `wide` is applied to each of the three parts separately.
        """
        of_clip, of_word, of_both = self.wide.weight.chunk(3, dim=1)
        lengths = clip_mask.sum(1)
        # Videos of similar length are processed together, to save padding.
        order = lengths.argsort(stable=True)
        room = _VALUES.get(clips.device.type, 1 << 28)
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
    """The score of a whole video, from the features of the borders."""

    def __init__(self, width: int, hidden: int, inner: int) -> None:
        super().__init__()
        self.wide = nn.Linear(width, hidden, bias=False)
        self.middle = nn.Linear(hidden, inner, bias=False)
        self.narrow = nn.Linear(inner, 1, bias=False)

    def forward(self, clips: Tensor, mask: Tensor, pooled: Tensor) -> Tensor:
        """(P,) logits of videos, from the maximum over the `pooled` (P, T) clips of `clips` (P, T, D)."""
        clips = clips.masked_fill(~pooled[..., None], -torch.inf)
        inner = self.middle(self.wide(clips.amax(1)).relu()).relu()
        logits: Tensor = self.narrow(inner)
        return logits[:, 0]


class Model(PairModel):
    """SQuiDNet with fresh weights: a localizer (see `protocol`)."""

    own_score, other_measures = "moment_video", 'measure = "moment"'

    def __init__(self, config: Config) -> None:
        super().__init__(config, len(config.streams) > 1)
        hidden = config.hidden
        self.comparison = ComparedWords(hidden)
        self.add_heads(3, lambda: VideoScore(4 * hidden, hidden, config.span_hidden))

    @property
    def video_weight(self) -> float:
        """The weight of the retriever's score; 0 if a video has its own score."""
        return self.config.alpha if self.config.measure == "moment" else 0.0

    def compared(self, clips: Tensor, queries: QueryEncoding, mask: Tensor) -> Tensor:
        """(P, T, 3 H): clips compared with the words; see `ComparedWords`."""
        words, word_mask = queries.parts["tokens"], queries.parts["mask"]
        attended = self._attended(mask, word_mask)
        return cast("Tensor", self.comparison(clips, words, mask, word_mask, attended))

    def of_borders(self, logits: Tensor) -> Tensor:
        """Logarithms of the borders' probabilities, by the setting `probabilities`."""
        return functional.logsigmoid(logits) if self._sigmoid else super().of_borders(logits)

    def of_videos(self, logits: Tensor) -> Tensor:
        """Log-sigmoids of the videos' logits with `probabilities` "sigmoid", otherwise the logits."""
        return functional.logsigmoid(logits) if self._sigmoid else logits

    @property
    def _sigmoid(self) -> bool:
        return bool(self.config.probabilities == "sigmoid")


def _longest(lengths: Tensor, padded: Tensor) -> int:
    """The steps of padded sequences (P, T, H) to compare: on a GPU all, to avoid a synchronisation."""
    return padded.shape[1] if padded.is_cuda else max(1, int(lengths.max()))


def released_names(config: Config) -> Mapping[str, str]:
    """Our name of each parameter -> its name in the released program; the first stream is the pictures."""
    streams = dict(zip(config.streams, ("img_linear", "text_linear"), strict=False))
    prefixes = ("MMAencoder.vsMMA.", "MMAencoder.text_enc.", "nvld_query_weight.")
    return pair_names(lambda: Model(config), streams, prefixes, _PLACES)


_PLACES = (
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
