"""Fixtures of the export tests: small films at difficult frame rates, and moments of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from whenabouts.export.moments import FileMoment

FILM, NTSC = Fraction(24000, 1001), Fraction(30000, 1001)


@dataclass(frozen=True)
class Film:
    """A film and when its frames are shown, in seconds."""

    path: Path
    times: tuple[Fraction, ...]
    end: Fraction

    def inside(self, start: float, end: float) -> list[int]:
        """The frames with times in [start, end), computed one by one, with borders in milliseconds."""
        low, high = (Fraction(round(at * 1000), 1000) - Fraction(1, 2000) for at in (start, end))
        return [number for number, time in enumerate(self.times) if low <= time < high]


MakeFilm = Callable[..., Film]


@pytest.fixture(scope="session")
def make_film() -> MakeFilm:
    """Make a film with a frame at each of some ticks, and with silent sound if `sound`."""

    def make(
        path: Path, ticks: Sequence[int], base: Fraction, *, sound: bool = False, timecode: str = ""
    ) -> Film:
        with av.open(str(path), "w") as container:
            stream: Any = container.add_stream(
                "libx264", rate=round(1 / base) if base > Fraction(1, 200) else 25
            )
            stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
            stream.codec_context.time_base = base
            if timecode:
                stream.metadata["timecode"] = timecode
            noise: Any = container.add_stream("aac", rate=48000, layout="stereo") if sound else None
            for number, tick in enumerate(ticks):
                grey = np.full((48, 64, 3), number % 200 + 20, np.uint8)
                frame = av.VideoFrame.from_ndarray(grey, format="rgb24")
                frame.pts, frame.time_base = tick, base
                container.mux(stream.encode(frame))
            if noise is not None:
                block = av.AudioFrame.from_ndarray(
                    np.zeros((2, 4800), np.float32), format="fltp", layout="stereo"
                )
                block.sample_rate, block.pts, block.time_base = 48000, 0, Fraction(1, 48000)
                container.mux(noise.encode(block))
                container.mux(noise.encode(None))
            container.mux(stream.encode(None))
        times = tuple((tick - ticks[0]) * base for tick in ticks)
        return Film(path, times, times[-1] + (ticks[-1] - ticks[-2]) * base)

    return make


@pytest.fixture(scope="session")
def films(tmp_path_factory: pytest.TempPathFactory, make_film: MakeFilm) -> dict[str, Film]:
    """Films of about six seconds at 23.976, 25, 29.97 and at a varying rate."""
    folder = tmp_path_factory.mktemp("films")
    steps = np.random.default_rng(5).choice([40, 40, 40, 80, 120], 120)
    return {
        "23.976": make_film(folder / "film.mp4", range(150), 1 / FILM),
        "25": make_film(folder / "pal.mp4", range(150), Fraction(1, 25), sound=True),
        "29.97": make_film(folder / "ntsc.mp4", range(180), 1 / NTSC),
        "varying": make_film(folder / "phone.mkv", [0, *np.cumsum(steps).tolist()], Fraction(1, 1000)),
    }


@pytest.fixture(scope="session")
def make() -> Callable[..., FileMoment]:
    """Make a moment of a file, with all fields of a search result."""

    def make_moment(path: Path, start: float, end: float, **facts: Any) -> FileMoment:
        scored: dict[str, Any] = {
            "text": "Hello there.",
            "query": "somebody greets",
            "score": 1.25,
            "confidence": 0.97,
        }
        named: dict[str, Any] = {"rank": 1, "video_id": "film-00ff00ff", "path": str(path), "name": path.name}
        return FileMoment(start=start, end=end, **(named | scored | facts))

    return make_moment
