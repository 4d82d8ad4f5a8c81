"""Import CONQUER's checkpoints, and reproduce its program's departures from the paper.

All sizes, the streams, and whether the model scores videos (measure "exclusive") follow from the tensors. The
measures "general" and "disjoint" have the same parameters; without an option "general" is assumed, which
counts a retriever's score once (`alpha`). For a retriever's list such as HERO's, give the logarithms of its
scores.
"""

from __future__ import annotations

from whenabouts.intake.files import FormatError
from whenabouts_systems.models.conquer import Model
from whenabouts_systems.released._pairs import PaddedPairs, settings_of, sizes_of
from whenabouts_systems.released.settings import Released, Settings

TITLE = "CONQUER, imported from a checkpoint of the authors' program"

_VIDEO, _QUERY = "encoder.videoEncoder.", "encoder.queryEncoder."
_PROJECTIONS = (
    ("video", f"{_VIDEO}img_linear.net.1.weight"),
    ("video", f"{_VIDEO}linear.net.1.weight"),
    ("sub", f"{_VIDEO}text_linear.net.1.weight"),
)
_CONVOLVED = "moment_localization_head.begin_score_modeling.clip_score_predictor.0.weight"


def settings(released: Released) -> Settings:
    """Settings from the checkpoint's tensors and options."""
    clusters = "query_weight.text_pooling.clusters"
    weighs = released.has(clusters)
    config = {
        **sizes_of(released, _VIDEO, _QUERY, _CONVOLVED),
        "streams": released.widths(*_PROJECTIONS),
        "clusters": released.size(clusters, 1) if weighs else 32,
        "weigh_streams": weighs,
        "measure": _measure(released),
        "lambda_video": released.setting("lw_video_ce", 0.05),
    }
    return settings_of(released, config, "CONQUER", nms=0.7)


def _measure(released: Released) -> str:
    """The measure; "general" if tensors and options leave it open."""
    has_video_score = released.has("video_scoring_head.video_score_predictor.0.weight")
    measure = released.setting("similarity_measure", "exclusive" if has_video_score else "")
    if not measure:
        released.guessed.append('the measure: general ("disjoint" has the same weights: see config.json)')
        measure = "general"
    fitting = ("exclusive",) if has_video_score else ("general", "disjoint")
    if measure not in fitting:
        raise FormatError(
            released.checkpoint.path,
            f"has {'a' if has_video_score else 'no'} video score of its own, but the settings say",
            field="similarity_measure",
            value=measure,
            accepted=" or ".join(fitting),
        )
    return measure


class AsReleased(PaddedPairs, Model):
    """CONQUER as its program computes it (`PaddedPairs`)."""
