"""Settings of shipped experiments against what the papers print, copied here with the place in the paper.

What a paper leaves open is not compared. "paper 00N" is a paper of the README's list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from whenabouts_systems.models import config_of
from whenabouts_systems.training.examples import spans_in_clips
from whenabouts_systems.training.experiment import FOLDER, load_experiment, shipped

Settings = Mapping[str, Any]

# Paper 000, appendix A; lambda_tl in section 5.1, the 100 videos below equation 4. The paper prints "Adam"
# and follows XML's program, whose Adam is BertAdam.
XML: Settings = {
    "model.hidden": 256,
    "features.max_tokens": 30,
    "features.tef": True,
    "training.optimizer": "bertadam",
    "training.learning_rate": 1e-4,
    "training.batch_size": 128,
    "training.epochs": 100,
    "training.patience": None,
    "model.first_pool": 1,
    "model.pool_from_epoch": 20,
    "model.pool": 20,
    "model.margin": 0.1,
    "model.alpha": 20.0,
    "model.lambda_tl": 0.01,
    "decoding.top_videos": 100,
}
CHARADES: Settings = {
    "features.clip_seconds": 3.0,
    "features.max_clips": 20,
    "decoding.min_clips": 1,
    "decoding.max_clips": 8,
}
DIDEMO: Settings = {
    "features.clip_seconds": 2.5,
    "features.max_clips": 12,
    "decoding.min_clips": 2,
    "decoding.max_clips": 4,
}
# Paper 000, section 5.1 (first and second stage): lambdas are one or zero.
NO_PAIRS: Settings = {
    f"model.{name}": 0.0 for name in ("lambda_rel_neg_vr", "lambda_pos_rel_vr", "lambda_nll_2")
}
NO_SEGMENTS: Settings = {
    f"model.{name}": 0.0 for name in ("lambda_vcmr", "lambda_rel_neg_vcmr", "lambda_pos_rel_vcmr")
}
LONG: Settings = {"training.epochs": 200}
PR: Settings = {**dict.fromkeys(NO_PAIRS, 1.0), **LONG}
SL: Settings = {"model.lambda_vcmr": 1.0, **LONG}
BOTH: Settings = {**PR, **dict.fromkeys(NO_SEGMENTS, 1.0)}
ONE: Settings = {"model.confidence_is_one": True}
ROWS: Mapping[str, Settings] = {
    "xml": {"data.pairs": ""},
    "xml_pr": PR,
    "xml_pr_c1": {**PR, **ONE},
    "xml_sl": {**SL, "data.pairs": ""},
    "xml_sl_pr": BOTH,
    "xml_sl_pr_c1": {**BOTH, **ONE},
}

# Paper 003 (PREM), section 4.2; t below equation 7, lambda below 8, gamma below 12; the classifier in 3.4.
PREM: Settings = {
    "features.clip_seconds": 1.5,
    "model.hidden": 384,
    "model.feedforward": 1536,
    "model.heads": 4,
    "model.layers": 1,
    "model.temperature": 0.01,
    "training.optimizer": "adamw",
    "training.learning_rate": 1e-4,
    "training.weight_decay": 0.01,
}
PREM_RETRIEVER: Settings = {
    **PREM,
    "model.lambda_weak": 0.5,
    "model.pooling": "modality-specific",
    "training.epochs": 100,
    "training.batch_size": 256,
}
PREM_LOCALIZER: Settings = {
    **PREM,
    "model.fusion_layers": 2,
    "model.gamma": 0.8,
    "model.positive_iou": 0.7,
    "model.negative_moments": 5,
    "data.retrieved.depth": 100,
    "training.epochs": 15,
    "training.batch_size": 32,
    "decoding.top_videos": 10,
    "decoding.nms": 0.7,
}
# Paper 002, section 6.2 and appendix "Hyperparameter Settings".
MMN: Settings = {
    "model.joint": 256,
    "model.temperature_moments": 0.1,
    "model.temperature_sentences": 0.1,
    "training.optimizer": "adamw",
}
MMN_CHARADES: Settings = {**MMN, "model.margin": 0.4, "model.lambda_contrast": 0.05}
# The program's settings for Charades-STA where CroCs and MMN differ; its batch of 8 is that of tests.
CROCS_FIRST: Settings = {"training.epochs": 50, "training.batch_size": 48, "model.contrast_epochs": 14}
CROCS: Settings = {
    **MMN_CHARADES,
    "data.positives": "similar",
    "data.pairs": "charades_pairs_simcse_0.9.safetensors",
}
# Paper 002, appendix on CET: k = 10, d = 512, AdamW, 1e-3.
CET: Settings = {
    "model.hidden": 512,
    "model.label_power": 10.0,
    "training.optimizer": "adamw",
    "training.learning_rate": 1e-3,
}
# Paper 004, C.2, for XML, ReLoCLNet and CONQUER with the top 40; C.1 for the weight and the positive pairs.
RANKED: Settings = {
    "data.train": "train_top40",
    "data.weights": "similarity",
    "training.learning_rate": 1e-4,
    "training.epochs": 100,
    "training.evaluate_every": 0.5,
    "training.patience": 10,
    "decoding.nms": None,
}
# HERO's released config/train-didemo_video_only-4gpu.json: 5,000 steps of 4 x 32 of 33,005 queries; hard
# negatives from step 2,000 on.
HERO: Settings = {
    "features.clip_seconds": 1.5,
    "features.max_clips": 20,
    "features.max_tokens": 60,
    "model.margin": 0.1,
    "model.weight_negative_videos": 10.0,
    "model.weight_negative_queries": 10.0,
    "model.lambda_tl": 0.01,
    "model.drop_spans": 0.8,
    "model.alpha": 20.0,
    "model.pool": 80,
    "model.hard_weight": 10.0,
    "model.pool_from_epoch": 2_000 * 128 // 33_005 + 1,
    "training.epochs": 5_000 * 128 // 33_005,
    "training.batch_size": 128,
    "training.learning_rate": 7e-5,
    "training.betas": (0.9, 0.98),
    "training.weight_decay": 0.01,
    "training.warmup": 0.1,
    "decoding.top_videos": 100,
    "decoding.nms": None,
}
# HERO's released config/train-tvr-8gpu.json: 5,000 steps of 2 x 8 x 32 of 87,175 queries; and
# config/pretrain-tv-16gpu.json: 100,000 steps.
HERO_TVR: Settings = {
    **HERO,
    "features.max_clips": 100,
    "model.weight_negative_videos": 8.0,
    "model.weight_negative_queries": 8.0,
    "model.pool": 20,
    "model.pool_from_epoch": 2_000 * 512 // 87_175 + 1,
    "training.epochs": 5_000 * 512 // 87_175,
    "training.batch_size": 256,
    "training.learning_rate": 1e-4,
}
HERO_PRETRAINING: Settings = {
    **HERO_TVR,
    "model.pretraining": {"mlm": 2.0, "mfm": 2.0, "fom": 1.0, "vsm": 2.0},
    "model.pool_from_epoch": 20,
    "training.epochs": 100,
    "training.batch_size": 32,
    "training.learning_rate": 3e-5,
}
# CONQUER's released config/config.py and scripts/train_sharednorm_general.sh; its readme has the suppression.
CONQUER: Settings = {
    "features.max_tokens": 30,
    "model.measure": "general",
    "model.lambda_tl": 0.01,
    "data.retrieved.videos": 3,
    "data.retrieved.beyond_own": 1000,
    "data.retrieved.own_within": 100,
    "training.epochs": 50,
    "training.batch_size": 16,
    "training.learning_rate": 1e-4,
    "training.weight_decay": 0.01,
    "training.max_norm": 0.0,
    "training.patience": 3,
    "decoding.top_videos": 10,
    "decoding.nms": 0.7,
}

PUBLISHED: Mapping[str, Settings] = {
    **{
        f"charades_sta/{row}": {**XML, **CHARADES, **NO_PAIRS, **NO_SEGMENTS, **more}
        for row, more in ROWS.items()
    },
    **{f"didemo/{row}": {**XML, **DIDEMO, **NO_PAIRS, **NO_SEGMENTS, **more} for row, more in ROWS.items()},
    "tvr/prem_retriever": PREM_RETRIEVER,
    "didemo/prem_retriever": PREM_RETRIEVER,
    "tvr/prem_localizer": {
        **PREM_LOCALIZER,
        "data.retrieved.videos": 4,
        "decoding.min_clips": 1,
        "decoding.max_clips": 24,
    },
    "didemo/prem_localizer": {
        **PREM_LOCALIZER,
        "data.retrieved.videos": 2,
        "decoding.min_clips": 3,
        "decoding.max_clips": 7,
    },
    "charades_sta/mmn": {**MMN_CHARADES, "training.learning_rate": 1e-4},
    "activitynet/mmn": {
        **MMN,
        "model.margin": 0.3,
        "model.lambda_contrast": 0.1,
        "training.learning_rate": 8e-4,
    },
    "tacos/mmn": {
        **MMN,
        "model.margin": 0.1,
        "model.lambda_contrast": 0.1,  # of the programs of MMN and CroCs; paper 002 prints 0.05
        "training.learning_rate": 1.5e-3,
    },
    "charades_sta/crocs_first": {**CROCS, **CROCS_FIRST, "training.learning_rate": 1e-4},
    "charades_sta/crocs": {
        **CROCS,
        "data.negatives.videos": 50,
        "data.negatives.queries": 100,
        "training.learning_rate": 1e-5,
    },
    "charades_sta/cet": CET,
    # Paper 001, appendix C.2.
    "charades_sta/bet": {**CET, "model.scale": 10.0},
    "activitynet/cet": CET,
    "tacos/cet": CET,
    "tvr_ranking/xml": {**RANKED, "model.video_loss": "contrast"},
    "tvr_ranking/reloclnet": RANKED,
    "tvr_ranking/conquer": {**RANKED, "model.measure": "disjoint"},
    "tvr/conquer": CONQUER,
    "didemo/conquer": CONQUER,
    "tvr/hero": HERO_TVR,
    "tvr/hero_pretraining": HERO_PRETRAINING,
    "didemo/hero": HERO,
}


def _value(name: str, setting: str) -> Any:
    """A setting of a shipped experiment; the default of its system where the file is silent."""
    experiment = load_experiment(FOLDER / f"{name}.toml")
    table, _, rest = setting.partition(".")
    if table == "model":
        default = getattr(config_of(experiment.system, {}), rest)
        return experiment.model.get(rest, default)
    value: Any = asdict(getattr(experiment, table))
    for key in rest.split("."):
        value = value[key]
    return value


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_a_shipped_experiment_has_the_settings_that_its_paper_prints(name: str) -> None:
    found = {setting: _value(name, setting) for setting in PUBLISHED[name]}
    assert found == dict(PUBLISHED[name])


@pytest.mark.parametrize("name", [name for name in shipped() if "/hero" in name])
def test_heros_program_learns_inclusive_ends(name: str) -> None:
    """Its end is min(max(ceil(end / clip) - 1, start + 1), n - 1); the least of two clips is left out."""
    released = load_experiment(FOLDER / f"{name}.toml", ["as_released=true"])
    assert (released.data.labels, released.data.positives) == ("inclusive", "own")
    assert (released.decoding.ends, released.training.optimizer) == ("as-released", "adamw-as-released")
    spans = spans_in_clips([3.2, 4.5, 28.6], [7.6, 6.0, 30.0], 1.5, 20, released.data.labels)
    assert spans.tolist() == [[2, 5], [3, 3], [19, 19]]


@pytest.mark.parametrize("name", ["tvr/conquer", "didemo/conquer", "tvr_ranking/conquer"])
def test_conquers_program_has_no_warm_up(name: str) -> None:
    released = load_experiment(FOLDER / f"{name}.toml", ["as_released=true"]).training
    assert (released.warmup, released.max_norm, released.optimizer) == (0.0, 0.0, "adamw-as-released")


def test_the_pairs_are_those_of_the_tables_detector_and_threshold() -> None:
    """Table 5 of paper 000: np-vp, 0.7; table 6: vp, 0.5."""
    for dataset, told in (("charades_sta", "np-vp_0.7"), ("didemo", "vp_0.5")):
        for row in ("xml_pr", "xml_pr_c1", "xml_sl_pr", "xml_sl_pr_c1"):
            assert _value(f"{dataset}/{row}", "data.pairs").endswith(f"_pairs_{told}.safetensors")
        detector, threshold = told.split("_")
        text = (FOLDER / dataset / "xml_pr.toml").read_text()
        assert f"--detector {detector} --threshold {threshold}" in text


def test_every_experiment_of_the_papers_own_systems_is_compared() -> None:
    ours = {name for name in shipped() if Path(name).name.startswith(("xml_pr", "xml_sl", "prem_", "crocs"))}
    others = {
        "tvr/prem_after_hero",  # stages; the second has another first stage than the paper's
        "tvr/prem_localizer_after_hero",
        "charades_sta/crocs_stages",  # the two stages that are compared
        "didemo/xml_slowfast",  # features of paper 003 for a system of paper 000
    }
    smaller = (
        "simulated",
        "titled_transcripts/",
        "activitynet_two_annotators/",
    )  # their files say what is ours
    assert {name for name in ours - others if not name.startswith(smaller)} <= set(PUBLISHED)
