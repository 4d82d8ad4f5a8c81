"""MS-SL's program: its checkpoints, with what GMMFormer's have alike, and what it computes.

The tensors give all sizes but the number of clips a video is averaged to: the table of the clips' places is
as long as that of the frames, and only its first rows are used. The systems average the rows of videos
themselves and bring them to unit length afterwards; words are brought to unit length when they are read.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.inputs import Inputs
from whenabouts_systems.models.ms_sl import Model
from whenabouts_systems.models.parts.partial_relevance import square_contrast
from whenabouts_systems.models.protocol import Batch
from whenabouts_systems.released._averaging import held_borders
from whenabouts_systems.released.settings import QUERY, STREAMS, Released, Settings

TITLE = "MS-SL, imported from a checkpoint of the authors' program"

_CLIPS, _HEADS = 32, 4
_SHARES = {"clip_scale_w": 0.7, "frame_scale_w": 0.3}  # TVR's
_CLIP_PLACES = "clip_pos_embed.position_embeddings.weight"
_FRAME_PLACES = "frame_pos_embed.position_embeddings.weight"
# Longer than any video, so that nothing is averaged before the systems do it.
_MOST_ROWS = 1024


def settings(released: Released) -> Settings:
    """Settings as the tensors and the program's options have them."""
    return settings_of(released, "MS-SL")


def settings_of(released: Released, program: str) -> Settings:
    """The settings of either program; `program` is its name for people."""
    stream, width = STREAMS[0], released.size("clip_input_proj.net.1.weight", 1)
    clips = min(released.setting("map_size", _CLIPS), released.size(_CLIP_PLACES, 0))
    config = {
        "streams": {stream: width},
        "query_width": released.query_width,
        "hidden": released.hidden,
        "heads": released.heads(released.hidden, _HEADS),
        "frames": released.size(_FRAME_PLACES, 0),
        "clips": clips,
        "max_tokens": released.max_tokens,
        "input_dropout": released.setting("input_drop", 0.1),
        "dropout": released.setting("drop", 0.1),
        "initializer_range": released.setting("initializer_range", 0.02),
        "margin": released.setting("margin", 0.1),
        "pool": released.setting("hard_pool_size", 20),
        "as_released": True,
        **_shares(released),
    }
    released.refuse_encoders(QUERY, stream)
    released.refuse_tef(program)
    inputs = Inputs(
        released.stream(QUERY, released.query_width, True),
        {stream: released.stream(stream, width, False)},
        clip_seconds=released.clip_seconds,
        max_clips=_MOST_ROWS,
        max_tokens=released.max_tokens,
    )
    return Settings(config, inputs, Decoding(), used_rows={_CLIP_PLACES: clips})


def _shares(released: Released) -> dict[str, float]:
    """How much the best clip and the frames count in a score; the data sets differ in it."""
    clip, frames = (released.setting(name, share) for name, share in _SHARES.items())
    if not all(map(released.has_setting, _SHARES)):
        released.guessed.append(
            f"shares of clip and frames: {clip} and {frames} ({' and '.join(_SHARES)} in opt.json)"
        )
    return {"clip_share": clip, "frame_share": frames}


class AsReleased(Model):
    """MS-SL as its program computes it: other answers are negatives, in the frame branch all others.

    The program passes an argument (`cross`) that its own functions refuse, and stops at a batch of one query
    or one video; neither was kept.
    """

    borders = staticmethod(held_borders)

    def _square_contrast(self, scores: Tensor, positives: Tensor) -> Tensor:
        return square_contrast(scores, positives, count_own_twice=True)

    def _positives(self, batch: Batch) -> tuple[Tensor, Tensor]:
        own = batch.video_of
        return torch.zeros_like(batch.positives), torch.eye(len(own), dtype=torch.bool, device=own.device)
