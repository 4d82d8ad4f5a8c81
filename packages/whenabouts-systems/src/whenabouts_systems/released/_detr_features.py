"""Find out which streams a checkpoint of the DETR family reads, and in which order."""

from __future__ import annotations

from pathlib import PurePosixPath

from whenabouts.types import UsageError
from whenabouts_systems.released.settings import Released

PICTURES, MOTION = "vision", "motion"
"""Names of the streams of CLIP (pictures of a corpus) and of SlowFast."""
_CLIP_WIDTHS, _SLOWFAST_WIDTH = (512, 768), 2304
_PAIRS = {clip + _SLOWFAST_WIDTH: clip for clip in _CLIP_WIDTHS}
_WIDTHS = {*_CLIP_WIDTHS, _SLOWFAST_WIDTH, *_PAIRS}


def features_of(released: Released, width: int) -> tuple[dict[str, int], bool]:
    """The streams in rows of `width` values, in order, and whether temporal endpoint features follow.

    They are the caller's, else those of the folders in the option `v_feat_dirs`. Otherwise CLIP is assumed to
    come first, as in lighthouse (the authors' programs begin with SlowFast), and the guess is reported.
    Raises UsageError if the caller's streams or `tef` do not fit the width.
    """
    given = released.overrides.streams
    given_width = sum(given.values())
    if given and released.overrides.tef is None:
        tef = width == given_width + 2
    else:
        tef = released.tef(width not in _WIDTHS and width - 2 in _WIDTHS, str(width))
    values = width - 2 * tef
    if given and given_width != values:
        raise UsageError(
            f"{released.checkpoint.path}: the given streams have {given_width} values together, but its "
            f"features have {values}, {'with' if tef else 'without'} temporal endpoint features (--stream, "
            "--tef, --no-tef)"
        )
    if not given and values not in _WIDTHS and values - 2 in _WIDTHS:
        raise UsageError(
            f"{released.checkpoint.path}: features of {values} values look like {values - 2} with 2 temporal "
            f"endpoint features: give --tef; or name the stream: --stream {PICTURES}={values}"
        )
    return dict(given) or _in_folders(released, values) or _by_width(released, values), tef


def _in_folders(released: Released, width: int) -> dict[str, int]:
    """Streams from the names of the program's folders; empty if names are unknown or do not fit the width."""
    folders = [PurePosixPath(folder).name.lower() for folder in released.texts("v_feat_dirs")]
    names = [MOTION if "slowfast" in folder else PICTURES if "clip" in folder else "" for folder in folders]
    if len(names) == 1 and names[0]:
        return {names[0]: width}
    if sorted(names) != sorted((PICTURES, MOTION)) or width <= _SLOWFAST_WIDTH:
        return {}
    widths = {PICTURES: width - _SLOWFAST_WIDTH, MOTION: _SLOWFAST_WIDTH}
    return {name: widths[name] for name in names}


def _by_width(released: Released, width: int) -> dict[str, int]:
    if width in _PAIRS:
        clip = _PAIRS[width]
        released.guessed.append(
            f"order of features: CLIP ({clip}) before SlowFast ({_SLOWFAST_WIDTH}), as in lighthouse; "
            f"for a checkpoint of the authors' program: --stream {MOTION}={_SLOWFAST_WIDTH} "
            f"--stream {PICTURES}={clip}"
        )
        return {PICTURES: clip, MOTION: _SLOWFAST_WIDTH}
    name = MOTION if width == _SLOWFAST_WIDTH else PICTURES
    if width != _CLIP_WIDTHS[0]:
        released.guessed.append(
            f"features of {width} values: one stream, {name} (--stream NAME=WIDTH, in their order)"
        )
    return {name: width}
