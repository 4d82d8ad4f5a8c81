"""What MS-SL's and GMMFormer's checkpoints tell alike: both programs were made of the same one.

The tensors say all sizes but how many clips a video is averaged to: the table of the clips' places is as long
as that of the frames, and only its first rows are used. Rows of videos are averaged first and then brought to
unit length, which the systems do themselves; words are brought to unit length.
"""

from __future__ import annotations

from typing import Any

from whenabouts.models.decoding import Decoding
from whenabouts.models.inputs import Inputs, StreamInput
from whenabouts.models.released.settings import QUERY, STREAMS, Released, Settings

_CLIPS, _HEADS = 32, 4
_SHARES = {"clip_scale_w": 0.7, "frame_scale_w": 0.3}  # TVR's
_CLIP_PLACES = "clip_pos_embed.position_embeddings.weight"
_FRAME_PLACES = "frame_pos_embed.position_embeddings.weight"
# Longer than any video, so that nothing is averaged before the systems do it.
_MOST_ROWS = 1024


def settings_of(released: Released, name: str) -> Settings:
    """The settings of both; `name` is what people call the program."""
    clips = min(released.told("map_size", _CLIPS), released.size(_CLIP_PLACES, 0))
    config = {
        "streams": {STREAMS[0]: released.size("clip_input_proj.net.1.weight", 1)},
        "query_width": released.query_width,
        "hidden": released.hidden,
        "heads": released.heads(_HEADS),
        "frames": released.size(_FRAME_PLACES, 0),
        "clips": clips,
        "max_tokens": released.max_tokens,
        "input_dropout": released.told("input_drop", 0.1),
        "dropout": released.told("drop", 0.1),
        "initializer_range": released.told("initializer_range", 0.02),
        "margin": released.told("margin", 0.1),
        "pool": released.told("hard_pool_size", 20),
        "as_released": True,
        **_shares(released),
    }
    inputs = _inputs(released, config, name)
    return Settings(config, inputs, Decoding(), used_rows={_CLIP_PLACES: clips})


def _shares(released: Released) -> dict[str, float]:
    """How much the best clip and the frames count; the data sets differ in it."""
    clip, frames = (released.told(name, share) for name, share in _SHARES.items())
    if not all(map(released.tells, _SHARES)):
        released.guessed.append(
            f"shares of clip and frames: {clip} and {frames} ({' and '.join(_SHARES)} in opt.json)"
        )
    return {"clip_share": clip, "frame_share": frames}


def _inputs(released: Released, config: dict[str, Any], name: str) -> Inputs:
    asked = released.asked
    released.refuse_encoders(QUERY, *config["streams"])
    released.refuse_tef(name)
    return Inputs(
        StreamInput(config["query_width"], True, asked.encoders.get(QUERY, "")),
        {
            stream: StreamInput(width, False, asked.encoders.get(stream, ""))
            for stream, width in config["streams"].items()
        },
        clip_seconds=asked.clip_seconds or released.told("clip_length", 1.5),
        max_clips=_MOST_ROWS,
        max_tokens=config["max_tokens"],
    )
