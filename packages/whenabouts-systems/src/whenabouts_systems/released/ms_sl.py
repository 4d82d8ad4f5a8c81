"""Import MS-SL's checkpoints, and reproduce its program's departures from the paper.

All sizes follow from the tensors but the number of clips that a video is averaged to: the table of clips'
places is as long as that of frames, and only its first rows are used. The system itself averages and
normalises videos; words are normalised when they are read. GMMFormer's checkpoints have the same form.
"""

from __future__ import annotations

import torch
from torch import Tensor

from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.inputs import Inputs
from whenabouts_systems.models.ms_sl import Model
from whenabouts_systems.models.parts.branch import BranchSettings
from whenabouts_systems.models.protocol import Batch
from whenabouts_systems.released.settings import OF_LOSSES, QUERY, STREAMS, Released, Settings

TITLE = "MS-SL, imported from a checkpoint of the authors' program"

_PRESET = BranchSettings()
_SHARES = {"clip_share": "clip_scale_w", "frame_share": "frame_scale_w"}
_CLIP_PLACES = "clip_pos_embed.position_embeddings.weight"
_FRAME_PLACES = "frame_pos_embed.position_embeddings.weight"
# Longer than any video, so that only the system averages rows.
_MOST_ROWS = 1024


def settings(released: Released) -> Settings:
    """Settings from the checkpoint's tensors and options."""
    return settings_of(released, "MS-SL", _PRESET)


def settings_of(released: Released, program: str, preset: BranchSettings) -> Settings:
    """The settings for MS-SL or GMMFormer; `program` is the name in messages, `preset` the defaults."""
    hidden, query_width, tokens = released.sizes("hidden_size", "query_input_size", "max_desc_l")
    stream, width = STREAMS[0], released.size("clip_input_proj.net.1.weight", 1)
    clips = min(released.setting("map_size", preset.clips), released.size(_CLIP_PLACES, 0))
    config = {
        "streams": {stream: width},
        "query_width": query_width,
        "hidden": hidden,
        "heads": released.heads(hidden, preset.heads),
        "frames": released.size(_FRAME_PLACES, 0),
        "clips": clips,
        "max_tokens": tokens,
        **released.options(preset, OF_LOSSES),
        "as_released": True,
        **_shares(released),
    }
    released.refuse_encoders(QUERY, stream)
    released.refuse_tef(program)
    inputs = Inputs(
        released.stream(QUERY, query_width, True),
        {stream: released.stream(stream, width, False)},
        clip_seconds=released.clip_seconds(),
        max_clips=_MOST_ROWS,
        max_tokens=tokens,
    )
    return Settings(config, inputs, Decoding(), used_rows={_CLIP_PLACES: clips})


def _shares(released: Released) -> dict[str, float]:
    """Weights of the best clip and of the frames in a score; they depend on the data set."""
    shares = released.options(_PRESET, _SHARES)
    if not all(map(released.has_setting, _SHARES.values())):
        clip, frames = shares.values()
        released.guessed.append(
            f"shares of clip and frames: {clip} and {frames} ({' and '.join(_SHARES.values())} in opt.json)"
        )
    return shares


def held_borders(numbers: Tensor, lengths: Tensor, counts: Tensor) -> Tensor:
    """Borders of segments as `even_borders`, but at most the last row, as MS-SL and GMMFormer compute them.

    So the last row is left out unless its segment has no other. They divide first, which matters for halves.
    """
    return (numbers / counts * lengths).round().minimum(lengths - 1)


class AsReleased(Model):
    """MS-SL as its program computes it: other answers of a query are negatives.

    In the frame branch all other videos are negatives. Not reproduced: the program passes an argument
    (`cross`) that its own functions refuse, and fails for a batch of one query or one video.
    """

    borders = staticmethod(held_borders)
    counts_own_twice = True

    def _positives(self, batch: Batch) -> tuple[Tensor, Tensor]:
        own = batch.video_of
        return torch.zeros_like(batch.positives), torch.eye(len(own), dtype=torch.bool, device=own.device)
