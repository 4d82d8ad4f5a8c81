"""A checkpoint of SQuiDNet becomes a system that scores what its program does: every golden case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.golden_folder import arrays_of, cases, told_inside
from torch import Tensor

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_systems.models.protocol import ClipBatch, QueryBatch
from whenabouts_systems.models.squidnet import Config, Model, released_names
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.released.importing import import_checkpoint
from whenabouts_systems.released.settings import Overrides

CASES = cases("squidnet", "*.npz")
SCORE = "CMP.video_predictor.0.weight"


def _written(folder: Path, parameters: dict[str, Tensor], options: dict[str, Any] | None = None) -> Path:
    """A checkpoint of those parameters, and the options beside it."""
    path = folder / "model.ckpt"
    torch.save({"model": parameters, "epoch": 7}, path)
    if options is not None:
        (folder / "opt.json").write_text(json.dumps(options), encoding="utf-8")
    return path


def _of(arrays: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix("sd."): one for name, one in arrays.items() if name.startswith("sd.")}


@pytest.fixture()
def small() -> dict[str, Tensor]:
    """Parameters of a small model of ours, by the released names."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden": 8, "heads": 2, "max_clips": 9, "max_tokens": 7, "clusters": 2}
    config = Config(streams={"video": 6, "sub": 5}, query_width=5, measure="moment_video", **sizes)
    weights = Model(config).state_dict()
    return {theirs: weights[ours] for ours, theirs in released_names(config).items()}


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
@torch.no_grad()
def test_an_imported_checkpoint_gives_the_golden_logits(case: Path, tmp_path: Path) -> None:
    told, arrays = told_inside(case), arrays_of(case)
    options = {"loss_measure": told["loss_measure"], "max_pred_l": told["infer"]["max_pred_l"]}
    path = _written(tmp_path, _of(arrays), options)
    heads = told["config"]["query_enc_config"]["num_attention_heads"]
    import_checkpoint("squidnet", path, Overrides(heads=heads)).trained.save_pretrained(tmp_path / "out")
    trained = Trained.from_pretrained(tmp_path / "out")
    assert trained.model.config.measure == told["loss_measure"]
    assert trained.decoding.offsets == (0, told["infer"]["max_pred_l"] - 1)
    assert (trained.decoding.top_videos, trained.decoding.nms) == (10, None)
    assert {name: one.normalise for name, one in trained.inputs.streams.items()} == {
        "video": True,
        "sub": False,
    }
    mask = arrays["train.in.vid.feat_mask"].bool()
    given = {
        "video": arrays["train.in.vid.feat"].flatten(0, 1),
        "sub": arrays["train.in.sub.feat"].flatten(0, 1),
    }
    queries = QueryBatch(arrays["train.in.query.feat"], arrays["train.in.query.feat_mask"].bool())
    asked = torch.arange(len(mask)).repeat_interleave(mask.shape[1])
    found = trained.model.pair_logits(
        trained.model.encode_queries(queries).take(asked),
        trained.model.encode_videos(ClipBatch(given, mask.flatten(0, 1))),
    )
    for at, border in enumerate(("start", "end")):
        expected = arrays[f"train.out.{border}_logits"][mask]
        torch.testing.assert_close(found.borders[at].view(mask.shape)[mask], expected, atol=1e-5, rtol=1e-5)


def test_what_nothing_tells_is_said_to_be_guessed(small: dict[str, Tensor], tmp_path: Path) -> None:
    imported = import_checkpoint("squidnet", _written(tmp_path, small))
    assert imported.trained.model.config.measure == "moment_video"
    assert sorted(one.split(":")[0] for one in imported.guessed) == ["heads of attention", "the losses"]


def test_a_score_that_was_not_learned_is_left_out(small: dict[str, Tensor], tmp_path: Path) -> None:
    imported = import_checkpoint("squidnet", _written(tmp_path, small, {"loss_measure": "moment"}))
    model = imported.trained.model
    assert (model.video_score, model.video_weight) == (None, 1.0)


def test_options_and_parameters_of_another_program_are_told(small: dict[str, Tensor], tmp_path: Path) -> None:
    path = _written(tmp_path, small, {"loss_measure": "exclusive"})
    with pytest.raises(FormatError, match=r"loss_measure.*'exclusive'.*'moment_video', 'moment'"):
        import_checkpoint("squidnet", path)
    with pytest.raises(FormatError, match="it is not a checkpoint of this program"):
        import_checkpoint("conquer", path)
    with pytest.raises(UsageError, match=r"SQuiDNet has no temporal endpoint features"):
        import_checkpoint("squidnet", _written(tmp_path, small, {}), Overrides(tef=True))
    with pytest.raises(FormatError, match=r"missing: CMP\.video_predictor\.0\.weight"):
        del small[SCORE]
        import_checkpoint("squidnet", _written(tmp_path, small, {}))
