"""Import checkpoints of SQuiDNet, and reproduce its program's departures.

TVR-Ranking's program has the same parameters. All sizes follow from the tensors, the losses ("moment_video"
or "moment") from the options; both have a video score, but it counts only with "moment_video". A search also
needs a list of videos: the program's (`…/bmr_prd_val_tvr`) has the same format as HERO's.
"""

from __future__ import annotations

from dataclasses import replace

from whenabouts_systems.models.squidnet import Model
from whenabouts_systems.released._pairs import PaddedPairs, settings_of, sizes_of
from whenabouts_systems.released.settings import Released, Settings

TITLE = "SQuiDNet, imported from a checkpoint of the authors' program"

_VIDEOS, _QUERY = "MMAencoder.vsMMA.", "MMAencoder.text_enc."
_PROJECTIONS = {"video": "img_linear", "sub": "text_linear"}
_CONVOLVED = "CMP.start_moment_prediction.moment_predictor.0.weight"
_VIDEO_SCORE = frozenset(f"CMP.video_predictor.{at}.weight" for at in (0, 2, 4))


def settings(released: Released) -> Settings:
    """Settings from the checkpoint's tensors and options."""
    config = {
        **sizes_of(released, _VIDEOS, _QUERY, _CONVOLVED),
        "streams": {
            stream: released.size(f"{_VIDEOS}{name}.net.1.weight", 1) for stream, name in _PROJECTIONS.items()
        },
        "clusters": released.size("nvld_query_weight.text_pooling.clusters", 1),
        "measure": _measure(released),
        "lambda_video": released.setting("lw_vid", 0.005),
    }
    unused = _VIDEO_SCORE if config["measure"] == "moment" else frozenset()
    return replace(settings_of(released, config, "SQuiDNet", nms=-1.0), unused=unused)


def _measure(released: Released) -> str:
    """The losses that the options name; by default "moment_video", as in the program's script."""
    if not released.has_setting("loss_measure"):
        released.guessed.append("the losses: moment_video (loss_measure in opt.json)")
    released.refuse_others("loss_measure", "moment_video", "moment")
    return released.setting("loss_measure", "moment_video")


class AsReleased(PaddedPairs, Model):
    """SQuiDNet as its program computes it (`PaddedPairs`)."""
