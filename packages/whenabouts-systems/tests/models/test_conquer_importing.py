"""A checkpoint of CONQUER's program becomes a system that scores what the program does: every golden case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.golden_folder import cases
from torch import Tensor

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_systems.models.protocol import ClipBatch, QueryBatch
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.released.importing import import_checkpoint
from whenabouts_systems.released.settings import Overrides

CASES = cases("conquer", "*.npz")


def _opened(case: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    with np.load(case) as stored:
        told = json.loads(str(stored["meta_json"]))
        return told, {name: torch.from_numpy(stored[name]) for name in stored.files if name != "meta_json"}


def _heads(told: dict[str, Any]) -> int:
    heads: int = told["model_config"]["bert_config"]["num_attention_heads"]
    return heads


def _written(folder: Path, arrays: dict[str, Tensor], options: dict[str, Any] | None = None) -> Path:
    """A checkpoint with the case's parameters, and the options beside it."""
    path = folder / "model.ckpt"
    parameters = {name.removeprefix("sd."): one for name, one in arrays.items() if name.startswith("sd.")}
    torch.save({"model": parameters, "epoch": 7}, path)
    if options is not None:
        (folder / "opt.json").write_text(json.dumps(options), encoding="utf-8")
    return path


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
@torch.no_grad()
def test_an_imported_checkpoint_gives_the_golden_logits(case: Path, tmp_path: Path) -> None:
    told, arrays = _opened(case)
    lengths = {name: told[name] for name in ("min_pred_l", "max_pred_l")}
    path = _written(tmp_path, arrays, {"similarity_measure": told["measure"], **lengths})
    import_checkpoint("conquer", path, Overrides(heads=_heads(told))).trained.save_pretrained(
        tmp_path / "out"
    )
    trained = Trained.from_pretrained(tmp_path / "out")
    assert trained.model.config.measure == told["measure"]
    assert trained.decoding.offsets == (told["min_pred_l"], told["max_pred_l"] - 1)
    assert not trained.inputs.query.normalise
    assert {name: one.normalise for name, one in trained.inputs.streams.items()} == {
        name: name == "video" for name in trained.inputs.streams
    }
    names = {"video": "visual", "sub": "sub"}
    given = {name: arrays[f"eval.in.{names[name]}.feat"].flatten(0, 1) for name in trained.inputs.streams}
    mask = arrays[f"eval.in.{names[next(iter(given))]}.feat_mask"].bool()
    queries = trained.model.encode_queries(
        QueryBatch(arrays["eval.in.query.feat"], arrays["eval.in.query.feat_mask"].bool())
    )
    asked = queries.take(torch.arange(len(mask)).repeat_interleave(mask.shape[1]))
    videos = trained.model.encode_videos(ClipBatch(given, mask.flatten(0, 1)))
    found = trained.model.pair_logits(asked, videos).borders.view(2, *mask.shape)
    for at, border in enumerate(("begin", "end")):
        expected = arrays[f"eval.out.{border}_score"]
        torch.testing.assert_close(found[at][mask], expected[mask], atol=2e-5, rtol=1e-5)


def _first() -> dict[str, Tensor]:
    return _opened(CASES[0])[1]


def _first_heads() -> int:
    return _heads(_opened(CASES[0])[0])


def _without_own_score(arrays: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: one for name, one in arrays.items() if "video_scoring_head" not in name}


def test_what_nothing_tells_is_said_to_be_guessed(tmp_path: Path) -> None:
    path = _written(tmp_path, _without_own_score(_first()))
    imported = import_checkpoint("conquer", path)
    assert imported.trained.model.config.measure == "general"
    assert sorted(one.split(":")[0] for one in imported.guessed) == ["heads of attention", "the measure"]


def test_a_measure_that_the_options_of_the_program_name_is_not_guessed(tmp_path: Path) -> None:
    """By the name that its `opt.json` has."""
    path = _written(tmp_path, _without_own_score(_first()), {"similarity_measure": "disjoint"})
    imported = import_checkpoint("conquer", path, Overrides(heads=_first_heads()))
    assert (imported.trained.model.config.measure, imported.guessed) == ("disjoint", ())


def test_a_measure_that_the_weights_cannot_have_is_told(tmp_path: Path) -> None:
    path = _written(tmp_path, _without_own_score(_first()), {"similarity_measure": "exclusive"})
    with pytest.raises(FormatError, match=r"model\.ckpt.* no video score of its own.*'exclusive'"):
        import_checkpoint("conquer", path)


def test_heads_that_do_not_divide_the_width_are_told(tmp_path: Path) -> None:
    width = _opened(CASES[0])[0]["hidden_dim"]
    told = rf"model\.ckpt: {width - 1} heads do not divide the width {width}; give --heads"
    with pytest.raises(UsageError, match=told):
        import_checkpoint("conquer", _written(tmp_path, _first()), Overrides(heads=width - 1))


def test_an_encoder_of_no_stream_and_endpoint_features_are_refused(tmp_path: Path) -> None:
    path = _written(tmp_path, _first())
    with pytest.raises(UsageError, match=r"encoder of 'sound': unknown; accepted: query, video"):
        import_checkpoint("conquer", path, Overrides(heads=_first_heads(), encoders={"sound": "some"}))
    with pytest.raises(UsageError, match=r"CONQUER has no temporal endpoint features"):
        import_checkpoint("conquer", path, Overrides(heads=_first_heads(), tef=True))


def test_a_parameter_that_is_missing_is_named(tmp_path: Path) -> None:
    arrays = _first()
    del arrays["sd.encoder.queryEncoder.linear.LayerNorm.bias"]
    with pytest.raises(FormatError, match=r"missing: encoder\.queryEncoder\.linear\.LayerNorm\.bias"):
        import_checkpoint("conquer", _written(tmp_path, arrays), Overrides(heads=_first_heads()))


def test_a_file_of_another_program_is_told(tmp_path: Path) -> None:
    path = _written(tmp_path, {"sd.query_encoder.weight": torch.ones(2, 2)})
    with pytest.raises(FormatError, match="it is not a checkpoint of this program"):
        import_checkpoint("conquer", path)
