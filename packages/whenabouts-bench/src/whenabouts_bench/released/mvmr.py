"""MVMR pool files as the released evaluation reads them; protocol mvmr-as-released names this module."""

from __future__ import annotations

from pathlib import Path

from whenabouts_bench import formats
from whenabouts_bench.formats import mvmr
from whenabouts_bench.formats.annotations import Annotations


class AsReleased(mvmr.PoolFile):
    """Positives of other videos keep their numbers, so frames of TACoS files are taken for seconds.

    Only the query's own moment is cut at the end of its video.
    """

    cut = False

    def own(self, video_id: str, times: tuple[float, float]) -> tuple[float, float]:
        start, end = super().own(video_id, times)
        seconds = self.videos[video_id].seconds
        return start, end if seconds is None else min(end, seconds)

    def other(self, video_id: str, other: str, times: tuple[float, float]) -> tuple[float, float]:
        """The times of a positive of another video, unchanged."""
        return times


def read_annotations(path: str | Path, format: str | None = None) -> Annotations:
    """As `formats.read_annotations`, with the released reader for pool files."""
    module, file = formats.reader_for(path, format)
    return AsReleased(file).annotations() if module is mvmr else formats.read_annotations(path, format)
