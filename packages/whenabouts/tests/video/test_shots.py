from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from whenabouts.video.frames import Frame, sample_frames
from whenabouts.video.shots.built_in import CellFinder

GENERATOR = np.random.default_rng(3)


def scene(seed: int) -> NDArray[np.float64]:
    """A picture of coarse coloured patches."""
    return np.random.default_rng(seed).uniform(0, 255, (9, 16, 3)).repeat(8, axis=0).repeat(8, axis=1)


def borders(pictures: list[NDArray[np.float64]], rate: int = 10, repeated: int = 1) -> list[float]:
    finder = CellFinder()
    for number, picture in enumerate(pictures):
        noisy = np.clip(picture + GENERATOR.normal(0, 3, picture.shape), 0, 255).astype(np.uint8)
        for again in range(repeated):
            finder.add(Frame(Fraction(number * repeated + again, rate), noisy))
    return finder.borders()


def of_file(path: Path, rate: float) -> list[float]:
    finder = CellFinder()
    for frame in sample_frames(path, rate, size=112):
        finder.add(frame)
    return finder.borders()


@pytest.mark.parametrize("rate", [8, 12, 25])
def test_the_cuts_of_a_city_film_are_found(real_video: Path, rate: float) -> None:
    """At eight frames a second but for the one at 3.2 s, where the film shows five pictures a second."""
    found = of_file(real_video / "bikes_vfr_vp9.webm", rate)
    assert found == pytest.approx([1.2, *[3.2] * (rate > 8), 5.6, 7.5, 9.8], abs=0.11)


@pytest.mark.parametrize("step", [32, 48])
def test_what_moves_in_a_film_that_repeats_its_pictures_is_no_cut(step: int) -> None:
    """Five pictures a second, each in five frames: something large passes twice, then comes another scene."""
    passing = []
    for left in [*range(-96, 128, step)] * 2:
        passing.append(scene(1))
        passing[-1][:, max(left, 0) : max(left + 96, 0)] = 20
    assert borders([*passing, *[scene(2)] * 6], rate=25, repeated=5) == [len(passing) / 5]


@pytest.mark.parametrize("rate", [4, 8, 25])
def test_a_cross_fade_and_a_cut_are_found(samples: Path, rate: float) -> None:
    fade, cut = of_file(samples / "nasa_13013.mp4", rate)
    assert 5.2 <= fade <= 5.8
    assert cut == pytest.approx(8.1, abs=1 / rate)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("flower.webm", 10),
        ("frog.webm", 4),
        ("bottle-detection.mp4", 2),
        ("bottle-detection.mp4", 10),
        ("car-detection.mp4", 4),
        ("car-detection.mp4", 10),
        ("friday.mp4", 10),
    ],
)
def test_one_shot_has_no_borders(samples: Path, name: str, rate: float) -> None:
    assert of_file(samples / name, rate) == []


@pytest.mark.slow
def test_a_camera_that_swings_does_not_cut(samples: Path) -> None:
    assert of_file(samples / "man_green_wall.mp4", 10) == []


def test_a_cut_is_at_the_first_frame_of_the_new_shot() -> None:
    assert borders([scene(1)] * 17 + [scene(2)] * 20 + [scene(3)] * 9) == [1.7, 3.7]


def test_a_fade_is_at_its_middle() -> None:
    fade = [scene(1) * (1 - share) + scene(2) * share for share in np.linspace(0, 1, 9)]
    (border,) = borders([scene(1)] * 20 + fade + [scene(2)] * 20)
    assert border == pytest.approx(2.4, abs=0.11)


@pytest.mark.parametrize("frames", [3, 5, 13])
def test_a_fade_through_black_is_one_border_at_the_first_picture(frames: int) -> None:
    out = [scene(1) * share for share in np.linspace(1, 0, frames)]
    found = borders(
        [scene(1)] * 20 + out + [picture * 0 for picture in out[:2]] + out[::-1] + [scene(1)] * 20, 12
    )
    assert found == pytest.approx([(20 + frames + 4) / 12], abs=0.4)


def test_a_cut_from_black_is_one_border() -> None:
    out = [scene(1) * share for share in np.linspace(1, 0, 12)]
    assert borders([scene(1)] * 20 + out + [scene(2)] * 20, 12) == pytest.approx([32 / 12])


def test_a_video_that_comes_from_black_or_ends_in_it_has_no_border() -> None:
    out = [scene(1) * share for share in np.linspace(1, 0, 12)]
    assert borders([scene(1) * 0] * 12 + out[::-1] + [scene(1)] * 20, 12) == []
    assert borders([scene(1)] * 20 + out + [scene(1) * 0] * 12, 12) == []


def test_what_changes_evenly_for_longer_than_a_fade_is_no_border() -> None:
    slow = [scene(1) * (1 - share) + (255 - scene(1)) * share for share in np.linspace(0, 1, 24)]
    assert borders([scene(1)] * 20 + slow + [255 - scene(1)] * 20) == []


def test_light_that_changes_is_no_border() -> None:
    assert (
        borders([scene(1) * 0.5 + light for light in [0] * 20 + [*range(0, 120, 10)] + [120] * 20], 12) == []
    )


def test_more_frames_than_are_needed_change_nothing() -> None:
    def repeated(times: int) -> list[float]:
        return borders([scene(number) for number in (1, 2, 3) for _ in range(12 * times)], 12 * times)

    assert repeated(5) == repeated(1) == [1.0, 2.0]


@pytest.mark.parametrize("length", [1, 2])
def test_a_flash_is_no_cut(length: int) -> None:
    flash = np.full_like(scene(1), 250)
    assert borders([scene(1)] * 20 + [flash] * length + [scene(1)] * 20) == []


def test_stillness_noise_and_one_frame_have_no_borders() -> None:
    assert borders([scene(1)] * 40) == borders([scene(1)]) == borders([]) == []


def test_frames_may_be_added_after_asking() -> None:
    finder = CellFinder()
    for number in range(30):
        finder.add(Frame(Fraction(number, 10), scene(number // 10).astype(np.uint8)))
        finder.borders()
    assert finder.borders() == [1.0, 2.0]


@pytest.mark.parametrize("shape", [(1, 1), (3, 400), (5, 7), (1080, 1920)])
def test_pictures_of_any_size_are_taken(shape: tuple[int, int]) -> None:
    finder = CellFinder()
    for number in range(20):
        finder.add(Frame(Fraction(number, 10), np.full((*shape, 3), 240 * (number >= 10), np.uint8)))
    assert finder.borders() == [1.0]


def test_a_cut_is_found_while_the_camera_moves_fast() -> None:
    """The cells change by nearly as much between all frames; the colours change at the cut alone."""

    def pan(seed: int, low: float, high: float) -> list[NDArray[np.float64]]:
        patches = (
            np.random.default_rng(seed).uniform(low, high, (9, 80, 3)).repeat(8, axis=0).repeat(8, axis=1)
        )
        return [patches[:, 8 * step : 8 * step + 128] for step in range(24)]

    assert borders(pan(1, 0, 200) + pan(2, 30, 255), 12) == [2.0]
