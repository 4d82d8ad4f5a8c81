"""What made some features, and that two kinds are never mixed up."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.features.conftest import write_hdf5

from whenabouts.types import WhenaboutsError
from whenabouts_systems.features import FeatureMismatch, Fingerprint, open_features, require_same
from whenabouts_systems.features.fingerprint import FIELDS, setting

WHOLE = Fingerprint(
    encoder="clip-vit-b32",
    weights_sha256="0" * 64,
    frame_rate=3.0,
    clip_seconds=1.5,
    normalisation="l2",
    dtype="float16",
    width=512,
    version="1.0",
)
OTHER: dict[str, Any] = {
    "encoder": "resnet152",
    "weights_sha256": "1" * 64,
    "frame_rate": 1.0,
    "clip_seconds": 2.0,
    "normalisation": "none",
    "dtype": "float32",
    "width": 2048,
    "version": "1.1",
}


def test_equal_ones_are_the_same_and_leave_nothing_open() -> None:
    assert require_same(WHOLE, dataclasses.replace(WHOLE, content="f" * 64, extra={"note": "x"})) == ()


@pytest.mark.parametrize("name", FIELDS)
def test_each_field_counts_and_both_sides_are_named(name: str) -> None:
    changed = dataclasses.replace(WHOLE, **{name: OTHER[name]})
    with pytest.raises(FeatureMismatch) as error:
        require_same(WHOLE, changed, ("the model m.ckpt", "video.h5"))
    line = str(error.value)
    mine, theirs = (
        f"{value:g}" if isinstance(value, float) else str(value)
        for value in (getattr(WHOLE, name), OTHER[name])
    )
    assert f"{name.replace('_', ' ')}: {mine} in the model m.ckpt, {theirs} in video.h5" in line
    assert line.count(" in video.h5") == 1, "only what differs is told"


@pytest.mark.parametrize("name", FIELDS)
def test_what_is_unknown_is_named_and_is_an_error_only_where_asked(name: str) -> None:
    missing: dict[str, Any] = {name: None}
    partly = dataclasses.replace(WHOLE, **missing)
    assert partly.unknown == (name,)
    assert require_same(WHOLE, partly) == require_same(partly, WHOLE) == (name,)
    assert require_same(partly, partly, strict=True) == (name,)
    with pytest.raises(FeatureMismatch, match="unknown in the second"):
        require_same(WHOLE, partly, strict=True)


@given(st.lists(st.sampled_from(FIELDS), unique=True), st.lists(st.sampled_from(FIELDS), unique=True))
def test_it_does_not_matter_which_comes_first(changed: list[str], unknown: list[str]) -> None:
    other = dataclasses.replace(WHOLE, **({n: OTHER[n] for n in changed} | dict.fromkeys(unknown)))
    outcomes = []
    for pair in ((WHOLE, other), (other, WHOLE)):
        try:
            outcomes.append(require_same(*pair))
        except FeatureMismatch:
            outcomes.append(("mismatch",))
    assert outcomes[0] == outcomes[1]
    assert (outcomes[0] == ("mismatch",)) == bool(set(changed) - set(unknown))


def test_people_are_told_what_is_unknown() -> None:
    lines = "\n".join(Fingerprint(encoder="x", clip_seconds=1.5).lines())
    assert "encoder         x" in lines and "clip seconds    1.5" in lines
    for name in ("weights sha256", "frame rate", "normalisation", "version"):
        assert f"{name:16}unknown" in lines


def test_a_fact_with_a_long_name_stands_apart_from_its_value() -> None:
    lines = Fingerprint().with_facts({"frames_of_each_clip": 8, "model": "x"}, "f.h5").lines()
    assert {"frames_of_each_clip 8", "model           x"} <= set(lines)


def test_a_files_attributes_are_its_fingerprint_and_others_are_kept(tmp_path: Path) -> None:
    path = write_hdf5(
        tmp_path / "f.h5",
        {"a": np.ones((2, 3), np.float16)},
        encoder=b"i3d",
        frame_rate=np.float32(25),
        simulated=True,
        dtype="a lie",
        width=99,
        list=[1, 2, 3],
    )
    with open_features(path) as source:
        told = source.fingerprint
    assert (told.encoder, told.frame_rate, told.dtype, told.width) == ("i3d", 25.0, "float16", 3)
    assert dict(told.extra) == {"simulated": True}
    assert told.clip_seconds is None and told.content is None


def test_settings_of_the_command_line() -> None:
    assert setting("clip_seconds=1.5") == ("clip_seconds", 1.5)
    assert setting("normalisation = unit rows ") == ("normalisation", "unit rows")
    assert setting("note=a=b") == ("note", "a=b")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("clip_seconds", "is not a setting; give KEY=VALUE with one of encoder"),
        ("=3", "is not a setting"),
        ("two words=3", "is not a setting"),
        ("encoder=", "is not a setting"),
        ("frame_rate=often", "frame_rate: is not a number: 'often'; accepted: a finite number above 0"),
        ("frame_rate=nan", "accepted: a finite number above 0"),
        ("width=12", "width is measured and cannot be set"),
        ("content=0", "content is measured"),
    ],
)
def test_settings_that_make_no_sense(text: str, told: str) -> None:
    with pytest.raises(WhenaboutsError, match=told):
        setting(text)
