"""Checkpoints of MS-SL's and GMMFormer's programs become systems that score what the programs do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.golden_folder import arrays_of, cases, golden_folder, told_inside
from torch import Tensor

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_systems.models.protocol import ClipBatch, QueryBatch
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.released.importing import import_checkpoint
from whenabouts_systems.released.settings import Overrides

MS_SL, GMMFORMER = cases("ms_sl", "*.npz"), cases("gmmformer", "*.npz")


HEADS = 4
"""Of which nothing in a checkpoint tells: the released number is guessed."""
WINDOWS = ["none", 0.5, 1.0, 5.0]
"""Of GMMFormer: they stand in its code."""


def _first(found: list[Path]) -> Path:
    for path in found:
        told = told_inside(path)
        if told["config"]["hidden_size"] % HEADS == 0 and told.get("gaussian_widths", WINDOWS) == WINDOWS:
            return path
    pytest.skip(f"{golden_folder()} has no such cases of a width that {HEADS} heads divide")


def _told(case: Path) -> dict[str, Any]:
    return told_inside(case)


def _written(folder: Path, case: Path, config: dict[str, Any] | None = None, **options: Any) -> Path:
    """A checkpoint as the programs write it: weights, settings and the epoch; options beside it."""
    weights = {name.removeprefix("sd."): one for name, one in arrays_of(case).items() if "sd." in name[:3]}
    path = folder / "model.ckpt"
    torch.save({"model": weights, "model_cfg": config or {}, "epoch": 9}, path)
    if options:
        (folder / "opt.json").write_text(json.dumps(options), encoding="utf-8")
    return path


def _imported(program: str, path: Path, folder: Path) -> Trained:
    import_checkpoint(program, path).trained.save_pretrained(folder)
    return Trained.from_pretrained(folder)


def _queries(arrays: dict[str, Tensor]) -> QueryBatch:
    return QueryBatch(arrays["batch.text_feat"], arrays["batch.text_mask"].bool())


@pytest.mark.parametrize("case", MS_SL, ids=lambda path: path.stem)
@torch.no_grad()
def test_an_imported_ms_sl_scores_raw_frames_as_released(case: Path, tmp_path: Path) -> None:
    told, arrays = _told(case), arrays_of(case)
    shares = (told["clip_scale_w"], told["frame_scale_w"])
    path = _written(
        tmp_path, case, told["config"], clip_scale_w=shares[0], frame_scale_w=shares[1], clip_length=1.5
    )
    trained = _imported("ms_sl", path, tmp_path / "out")
    frames = [arrays[f"raw.frames.{number}"].numpy() for number in told["batch_video_order"]]
    model = trained.model
    videos = model.encode_videos(trained.inputs.clips([{"video": one} for one in frames]))
    found = model.score_videos(model.encode_queries(_queries(arrays)), videos)
    expected = arrays[f"out.infer.score_sum_{shares[0]}_{shares[1]}"]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert trained.about["epoch"] == 9


@pytest.mark.parametrize("case", MS_SL, ids=lambda path: path.stem)
@torch.no_grad()
def test_words_are_made_ready_as_released(case: Path, tmp_path: Path) -> None:
    told, arrays = _told(case), arrays_of(case)
    inputs = import_checkpoint("ms_sl", _written(tmp_path, case, told["config"])).trained.inputs
    raw = [
        arrays[f"raw.caption.{video}.{at}"].numpy()
        for video in told["batch_video_order"]
        for at in range(told["captions_per_video"][video])
    ]
    made, wanted = inputs.queries(raw), _queries(arrays)
    assert torch.equal(made.mask, wanted.mask)
    torch.testing.assert_close(
        made.tokens * made.mask[..., None], wanted.tokens * wanted.mask[..., None], atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("case", GMMFORMER, ids=lambda path: path.stem)
@torch.no_grad()
def test_an_imported_gmmformer_scores_as_released(case: Path, tmp_path: Path) -> None:
    told, arrays = _told(case), arrays_of(case)
    if told["gaussian_widths"] != WINDOWS:
        pytest.skip("windows that no checkpoint of the program has")
    clips = arrays["batch.clip_video_features"].shape[1]
    path = _written(tmp_path, case, {**told["config"], "map_size": clips})
    model = _imported("gmmformer", path, tmp_path / "out").model
    frames, mask = arrays["batch.frame_video_features"], arrays["batch.videos_mask"].bool()
    seen = model._seen(arrays["batch.clip_video_features"], frames, mask)
    torch.testing.assert_close(seen.clips, arrays["out.encoded_clip"], atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(seen.whole, arrays["out.encoded_frame"], atol=1e-4, rtol=1e-5)
    words = model._sentences(_queries(arrays)).vectors[:, 0]
    torch.testing.assert_close(words, arrays["out.video_query"], atol=1e-4, rtol=1e-5)
    assert model.score_videos(
        model.encode_queries(_queries(arrays)), model.encode_videos(ClipBatch({"video": frames}, mask))
    ).shape == (len(words), len(frames))


def test_a_file_of_gmmformers_keys_is_imported(tmp_path: Path) -> None:
    """Its program saves the parameters as "state_dict" and the settings as "config"."""
    case = _first(GMMFORMER)
    path = _written(tmp_path, case)
    settings = {**_told(case)["config"], "clip_scale_w": 0.6, "frame_scale_w": 0.4, "loss_factor": [0.1, 0.2]}
    weights = torch.load(path)["model"]
    saved = {"config": settings, "epoch": 3, "model_val": [1.5, 2.0], "state_dict": weights, "optimizer": {}}
    torch.save(saved, path)
    imported = import_checkpoint("gmmformer", path)
    config = imported.trained.model.config
    assert (config.clip_share, config.frame_share, imported.guessed) == (0.6, 0.4, ())
    assert imported.trained.about["epoch"] == 3


@pytest.mark.parametrize(("program", "found"), [("ms_sl", MS_SL), ("gmmformer", GMMFORMER)])
def test_what_nothing_tells_is_said_to_be_guessed(program: str, found: list[Path], tmp_path: Path) -> None:
    imported = import_checkpoint(program, _written(tmp_path, _first(found)))
    assert sorted(one.split(":")[0] for one in imported.guessed) == [
        "heads of attention",
        "shares of clip and frames",
    ]
    config = imported.trained.model.config
    assert config.as_released
    assert config.dropout == config.input_dropout == {"ms_sl": 0.1, "gmmformer": 0.2}[program]


def test_what_the_programs_have_not_is_refused(tmp_path: Path) -> None:
    path = _written(tmp_path, _first(MS_SL))
    with pytest.raises(UsageError, match=r"encoder of 'sub': unknown; accepted: query, video"):
        import_checkpoint("ms_sl", path, Overrides(encoders={"sub": "some"}))
    with pytest.raises(UsageError, match=r"GMMFormer has no temporal endpoint features"):
        import_checkpoint("gmmformer", _written(tmp_path, _first(GMMFORMER)), Overrides(tef=True))


def test_the_other_programs_checkpoint_is_told_by_its_parameters(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"does not fit: missing: .*attn0"):
        import_checkpoint("gmmformer", _written(tmp_path, _first(MS_SL)))


def test_a_map_of_no_clips_is_told(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=r"model\.ckpt.*clips"):
        import_checkpoint("ms_sl", _written(tmp_path, _first(MS_SL), {"map_size": 0}))
