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
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from whenabouts_systems.models.parts.attention_flow import attention_flow
from whenabouts_systems.models.parts.pairs import PairLogits, PairModel, PairSettings, pair_names
from whenabouts_systems.models.protocol import QueryEncoding

__all__ = ["Config", "Model", "PairLogits", "released_names"]

_VALUES = {"cpu": 1 << 22}
"""Values that are compared at once: what stays in a processor's cache; a GPU wants more."""
_VALUES_ELSEWHERE = 1 << 28


@dataclass(frozen=True)
class Config(PairSettings):
    """The settings of SQuiDNet; the defaults are the released ones for TVR."""

    measure: Literal["moment", "moment_video"] = "moment"
    probabilities: Literal["softmax", "sigmoid"] = "softmax"
    lambda_video: float = 0.005
    """Weight of the videos' cross-entropy, with "moment_video"."""


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

    def forward(self, clips: Tensor, mask: Tensor, pooled: Tensor) -> Tensor:
        """(P,) from clips (P, T, D), of which the maximum of those that are `pooled` (P, T) is taken."""
        clips = clips.masked_fill(~pooled[..., None], -torch.inf)
        inner = self.middle(self.wide(clips.amax(1)).relu()).relu()
        logits: Tensor = self.narrow(inner)
        return logits[:, 0]


class Model(PairModel):
    """SQuiDNet with fresh weights: a localizer (see `protocol`)."""

    system, own_score, other_measures = "squidnet", "moment_video", 'measure = "moment"'

    def __init__(self, config: Config) -> None:
        super().__init__(config, len(config.streams) > 1)
        hidden = config.hidden
        self.comparison = ComparedWords(hidden)
        self.add_heads(3, lambda: VideoScore(4 * hidden, hidden, config.span_hidden))

    @property
    def video_weight(self) -> float:
        """How often the retriever's score counts: not at all where a video has a score of its own."""
        return self.config.alpha if self.config.measure == "moment" else 0.0

    def compared(self, clips: Tensor, queries: QueryEncoding, mask: Tensor) -> Tensor:
        """See `ComparedWords`."""
        words, word_mask = queries.parts["tokens"], queries.parts["mask"]
        attended = self._attended(mask, word_mask)
        return cast("Tensor", self.comparison(clips, words, mask, word_mask, attended))

    def of_borders(self, logits: Tensor) -> Tensor:
        """Logarithms of the `probabilities` of the settings."""
        return functional.logsigmoid(logits) if self._sigmoid else super().of_borders(logits)

    def of_videos(self, logits: Tensor) -> Tensor:
        """The same of videos."""
        return functional.logsigmoid(logits) if self._sigmoid else logits

    @property
    def _sigmoid(self) -> bool:
        return bool(self.config.probabilities == "sigmoid")


def _longest(lengths: Tensor, padded: Tensor) -> int:
    """How many steps of some padded sequences (P, T, H) are compared; on a GPU all, without waiting."""
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
