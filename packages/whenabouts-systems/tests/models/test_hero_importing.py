"""A checkpoint of HERO's program becomes a system that scores what the program does: every golden case."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.models.hero_cases import CASES, Golden, opened

from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_systems.models.protocol import ClipBatch
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.released.importing import import_checkpoint
from whenabouts_systems.released.settings import Overrides

OPTIONS = (
    "margin",
    "ranking_loss_type",
    "lw_neg_ctx",
    "lw_neg_q",
    "lw_st_ed",
    "max_clip_len",
    "sub_ctx_len",
    "vfeat_interval",
)
OF_INFERENCE = ("min_pred_l", "max_pred_l", "max_vcmr_video", "q2c_alpha")


@pytest.fixture(params=CASES, ids=lambda path: path.stem)
def case(request: pytest.FixtureRequest) -> Golden:
    return opened(request.param)


def _written(case: Golden, folder: Path) -> Path:
    """A checkpoint as the program writes it, parameters alone, and its options beside it."""
    path = folder / "model_step_5.pt"
    torch.save({n.removeprefix("sd."): one for n, one in case.arrays.items() if n.startswith("sd.")}, path)
    told: dict[str, Any] = case.told
    options = {name: told[name] for name in OPTIONS} | {name: told["infer"][name] for name in OF_INFERENCE}
    (folder / "opt.json").write_text(json.dumps(options), encoding="utf-8")
    return path


def _overrides(case: Golden, **more: Any) -> Overrides:
    return Overrides(heads=case.model.config.heads, encoders={"query": "numbers"}, **more)


@torch.no_grad()
def test_an_imported_checkpoint_gives_the_golden_scores(case: Golden, tmp_path: Path) -> None:
    if len({part["num_attention_heads"] for part in case.told["config"].values()}) > 1:
        pytest.skip("no checkpoint tells that its parts have different numbers of heads")
    path = _written(case, tmp_path)
    import_checkpoint("hero", path, _overrides(case)).trained.save_pretrained(tmp_path / "out")
    trained = Trained.from_pretrained(tmp_path / "out")
    config, told = trained.model.config, case.told
    assert trained.inputs.tokenizer == "numbers" and trained.inputs.reads_sentences
    times = (told["max_clip_len"], told["vfeat_interval"])
    assert (trained.inputs.max_clips, trained.inputs.clip_seconds) == times
    assert (config.alpha, config.ranking) == (told["infer"]["q2c_alpha"], told["ranking_loss_type"])
    assert config.context_sentences == told["sub_ctx_len"]
    assert trained.decoding.top_videos == told["infer"]["max_vcmr_video"]
    # The stored batch has the sentences before in front of each already.
    tokens = {"query_token": told["tokens"]["cls"], "sentence_token": told["tokens"]["sep"]}
    model = type(trained.model)(replace(config, context_sentences=0, **tokens)).eval()
    model.load_state_dict(trained.model.state_dict())
    batch = case.batch("vsm")
    videos = replace(batch.videos, streams={"video": batch.videos.streams["frames"]})
    scores = model.score_videos(model.encode_queries(batch.queries), model.encode_videos(videos))
    case.near("vsm.out.video_scores", scores, atol=1e-5)


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    if not CASES:
        pytest.skip("no golden case")
    case = opened(CASES[0])
    path = _written(case, tmp_path)
    heads = case.model.config.hidden - 1
    with pytest.raises(UsageError, match=f"{heads} heads do not divide the width"):
        import_checkpoint("hero", path, Overrides(heads=heads))
    with pytest.raises(UsageError, match="HERO has no temporal endpoint features"):
        import_checkpoint("hero", path, _overrides(case, tef=True))
    stored = torch.load(path, weights_only=True)
    del stored["v_encoder.c_encoder.embeddings.LayerNorm.bias"]
    torch.save({**stored, "surplus": torch.zeros(1)}, path)
    with pytest.raises(FormatError, match=r"missing: v_encoder.c_encoder.embeddings.LayerNorm.bias; left"):
        import_checkpoint("hero", path, _overrides(case))
    torch.save({"query_input_proj.net.1.weight": torch.zeros(2, 2)}, path)
    with pytest.raises(FormatError, match=r"lacks parameter 'v_encoder\.f_encoder\.embeddings\.word"):
        import_checkpoint("hero", path, _overrides(case))


@torch.no_grad()
def test_videos_without_sentences_of_the_folder_are_refused(case: Golden, tmp_path: Path) -> None:
    imported = import_checkpoint("hero", _written(case, tmp_path), _overrides(case)).trained
    width = imported.inputs.streams["video"].width
    with pytest.raises(UsageError, match="hero reads sentences"):
        imported.model.encode_videos(
            ClipBatch({"video": torch.zeros(1, 3, width)}, torch.ones(1, 3, dtype=torch.bool))
        )
