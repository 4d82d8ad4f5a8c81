"""Faces by models with planted weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cv2")
pytest.importorskip("onnx")

from tests.planted_people import (
    BLUE,
    RED,
    SIDE,
    bank_model,
    face_detector,
    face_embedder,
    face_models,
    picture,
)

from whenabouts.video.faces import FaceFinder, FacesUnavailableError


@pytest.fixture(scope="module")
def finder(tmp_path_factory: pytest.TempPathFactory) -> FaceFinder:
    return FaceFinder(face_models(tmp_path_factory.mktemp("models") / "faces"))


def test_faces_are_found_where_they_are_and_told_apart(finder: FaceFinder) -> None:
    nobody, both = finder.faces([picture([]), picture([RED, BLUE])])
    assert not nobody
    left = [face for face in both if (face.box[0] + face.box[2]) / 2 < 0.5]
    right = [face for face in both if (face.box[0] + face.box[2]) / 2 > 0.5]
    assert left and right
    for face in left:
        middle = (face.box[0] + face.box[2]) * 160, (face.box[1] + face.box[3]) * 112
        assert 32 <= middle[0] <= 32 + SIDE and 64 <= middle[1] <= 64 + SIDE
    assert all(0 <= side <= 1 for face in both for side in face.box)
    assert np.linalg.norm(left[0].vector) == pytest.approx(1) and finder.dimension == 16
    assert left[0].vector @ right[0].vector < 0 < left[0].vector @ left[-1].vector


def test_what_is_no_pair_of_models_is_refused_by_name(tmp_path: Path) -> None:
    for folder, why in (("none", "holds 0 ONNX files"), ("file.txt", "holds 0 ONNX files")):
        with pytest.raises(FacesUnavailableError, match=why):
            FaceFinder(tmp_path / folder)
    face_embedder(tmp_path / "a.onnx")
    with pytest.raises(FacesUnavailableError, match="holds 1 ONNX files"):
        FaceFinder(tmp_path)
    face_embedder(tmp_path / "b.onnx", seed=3)
    with pytest.raises(FacesUnavailableError, match="both ONNX files are the same kind, embedder"):
        FaceFinder(tmp_path)
    bank_model(tmp_path / "b.onnx")
    with pytest.raises(FacesUnavailableError, match=r"b\.onnx: takes bands .* a detector like YuNet gives"):
        FaceFinder(tmp_path)
    (tmp_path / "b.onnx").write_bytes(face_detector(tmp_path / "c").read_bytes()[:900])
    with pytest.raises(FacesUnavailableError, match=r"b\.onnx: cannot be opened as an ONNX model"):
        FaceFinder(tmp_path)


def test_a_folder_below_the_home_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert str(face_models(tmp_path / "faces")) == FaceFinder("~/faces").name


def test_other_weights_have_another_fingerprint(tmp_path: Path, finder: FaceFinder) -> None:
    folder = face_models(tmp_path / "faces")
    assert FaceFinder(folder).fingerprint == finder.fingerprint
    face_embedder(folder / "embedder.onnx", seed=9)
    assert FaceFinder(folder).fingerprint != finder.fingerprint
