"""Read settings from checkpoints of CONQUER and SQuiDNet, and reproduce both programs' shared departures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from whenabouts_systems.models.inputs import Inputs
from whenabouts_systems.models.parts.packing import compute_padding
from whenabouts_systems.models.parts.pairs import PairModel
from whenabouts_systems.models.parts.shared_norm import CandidateVideos, candidates_of
from whenabouts_systems.models.protocol import Batch, ClipBatch, QueryBatch, QueryEncoding, VideoEncoding
from whenabouts_systems.released.settings import QUERY, STREAMS, Released, Settings


def sizes_of(released: Released, videos: str, query: str, convolved: str) -> dict[str, Any]:
    """The settings that are found under the same names in both programs.

    `videos` and `query` are the prefixes of the encoders, `convolved` names a border's first convolution.
    """
    hidden = released.size(f"{query}linear.net.1.weight", 0)
    inner = f"{query}transformer.encoder.layer.{{}}.intermediate.dense.weight"
    places = "transformer.embeddings.position_embeddings.weight"
    return {
        "query_width": released.size(f"{query}linear.net.1.weight", 1),
        "hidden": hidden,
        "heads": released.heads(hidden),
        "feedforward": released.size(inner.format(0), 0),
        "layers": released.count(inner),
        "span_hidden": released.size(convolved, 0),
        "span_kernel": released.size(convolved, 2),
        "max_clips": released.size(videos + places, 0),
        "max_tokens": released.size(query + places, 0),
        "lambda_tl": released.setting("lw_st_ed", 0.01),
        "as_released": True,
    }


def settings_of(released: Released, config: Mapping[str, Any], program: str, nms: float) -> Settings:
    """All settings, with inputs and decoding as in `program`; only features of pictures are normalised."""
    widths = config["streams"]
    released.refuse_encoders(QUERY, *widths)
    released.refuse_tef(program)
    inputs = Inputs(
        released.stream(QUERY, config["query_width"], False),
        {name: released.stream(name, width, name == STREAMS[0]) for name, width in widths.items()},
        clip_seconds=released.clip_seconds(),
        max_clips=config["max_clips"],
        max_tokens=config["max_tokens"],
        long_videos="cut",
    )
    decoding = released.decoding("as-released", (0, 24), videos=10, nms=nms)
    return Settings(config, inputs, decoding, "inclusive")


class PaddedPairs(PairModel):
    """Pads videos to `max_clips` and queries to `max_tokens`; pooling includes the padding.

    Padded clips attend to all words equally. Videos that are known to answer a query may be its negatives.
    """

    def __init__(self, config: Any) -> None:
        super().__init__(config)  # type: ignore[call-arg]  # the system's, which is next in the order
        compute_padding(self)

    def encode_queries(self, queries: QueryBatch) -> QueryEncoding:
        return super().encode_queries(
            QueryBatch(*_padded(queries.tokens, queries.mask, self.config.max_tokens))
        )

    def encode_videos(self, videos: ClipBatch) -> VideoEncoding:
        mask, clips = videos.mask, self.config.max_clips
        streams = {name: _padded(rows, mask, clips)[0] for name, rows in videos.streams.items()}
        return super().encode_videos(ClipBatch(streams, pad(mask, (0, max(0, clips - mask.shape[1])))))

    def _pooled(self, mask: Tensor) -> Tensor:
        return torch.ones_like(mask)

    def _attended(self, clip_mask: Tensor, word_mask: Tensor) -> Tensor:
        return clip_mask[:, :, None] & word_mask[:, None]

    def _candidates(self, batch: Batch) -> CandidateVideos:
        return candidates_of(batch, positives_too=True)


def _padded(rows: Tensor, mask: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Rows (B, T, D) and mask (B, T) padded with zeros; values in earlier padding become zeros too."""
    more = max(0, length - mask.shape[1])
    return pad(rows.masked_fill(~mask[..., None], 0), (0, 0, 0, more)), pad(mask, (0, more))
