"""Settings of shipped experiments against what papers print and released programs state, with the source.

What a source leaves open, and what an experiment changes on purpose, is not compared. "paper 00N" is a paper
of the README's list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import pytest

from whenabouts_systems.models import config_of
from whenabouts_systems.training.examples import spans_in_clips
from whenabouts_systems.training.experiment import FOLDER, has_stages, load_experiment, shipped

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
# L^v and L^q count alike (below 8); gates, fusion and Shared-Norm (9 to 11) are missing only in table 6.
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
    "model.strong": True,
    "model.weight_negative_videos": 1.0,
    "model.weight_negative_queries": 1.0,
    "training.epochs": 100,
    "training.batch_size": 256,
}
PREM_LOCALIZER: Settings = {
    **PREM,
    "model.gates": True,
    "model.order": "focus-then-fuse",
    "model.fusion": "linear",
    "model.fusion_layers": 2,
    "model.shared_norm": True,
    "model.gamma": 0.8,
    "model.positive_iou": 0.7,
    "model.negative_moments": 5,
    "data.retrieved.depth": 100,
    "training.epochs": 15,
    "training.batch_size": 32,
    "decoding.top_videos": 10,
    "decoding.nms": 0.7,
}
# Of answers, and of the predicted moments that are negatives of the classifier.
LENGTHS = tuple(
    {"decoding.min_clips": least, "decoding.max_clips": most}
    | {"model.min_moment_clips": least, "model.max_moment_clips": most}
    for least, most in ((1, 24), (3, 7))
)
# Paper 002, section 6.2 and appendix "Hyperparameter Settings".
MMN: Settings = {
    "model.joint": 256,
    "model.temperature_moments": 0.1,
    "model.temperature_sentences": 0.1,
    "training.optimizer": "adamw",
}
MMN_CHARADES: Settings = {**MMN, "model.margin": 0.4, "model.lambda_contrast": 0.05}
# MMN's released configs/pool_charades_16x16_k5l8.yaml, pool_activitynet_64x64_k9l4.yaml and
# pool_tacos_128x128_k5l8.yaml, whose network paper 002 has as well.
_MMN_PROGRAM: Mapping[str, tuple[Any, Any, Any]] = {
    "features.max_clips": (32, 256, 256),
    "features.clips_per_cell": (2, 4, 2),
    "model.pooling_counts": ((15,), (15, 8, 8), (15, 8, 8, 8)),
    "model.map_kernel": (5, 9, 5),
    "model.map_layers": (8, 4, 8),
    "model.lowest_iou": (0.5, 0.5, 0.3),
    "model.highest_iou": (1.0, 1.0, 0.7),
    "model.positives": (1, 1, 3),
    "model.contrast_epochs": (7, 6, 100),
    "model.score_power": (0.5, 0.5, 0.3),
    "training.epochs": (18, 18, 250),
    "training.batch_size": (48, 48, 4),
    "training.milestones": ((8, 13), (7, 15), (130, 190)),
    "training.frozen": ({"text.bert": 4}, {"text.bert": 4}, {"text.bert": 40}),
    "decoding.nms": (0.5, 0.5, 0.4),
}
MMN_OF_CHARADES, MMN_OF_ACTIVITYNET, MMN_OF_TACOS = (
    {name: values[at] for name, values in _MMN_PROGRAM.items()} for at in range(3)
)
# The program's settings for Charades-STA where CroCs and MMN differ; its batch of 8 is that of tests.
CROCS_FIRST: Settings = {"training.epochs": 50, "training.batch_size": 48, "model.contrast_epochs": 14}
CROCS: Settings = {
    **MMN_CHARADES,
    "data.positives": "similar",
    "data.pairs": "charades_pairs_simcse_0.9.safetensors",
}
# Equations 2 and 3: the mean of a query's, or a video's, own true pairs; no temperature, and all videos.
DRAWN: Settings = {
    "data.negatives.share": "query",
    "data.negatives.mean": "own",
    "data.negatives.temperature": 1.0,
    "data.negatives.highest": None,
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
    "data.positives": "judged",
    "training.learning_rate": 1e-4,
    "training.epochs": 100,
    "training.evaluate_every": 0.5,
    "training.metric": "nDCG@20,IoU=0.5",
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
# XML's, ReLoCLNet's and MS-SL's programs train alike.
BERT_ADAM: Settings = {
    "training.optimizer": "bertadam",
    "training.schedule": "linear",
    "training.warmup": 0.01,
    "training.weight_decay": 0.01,
    "training.max_norm": 1.0,
    "training.batch_size": 128,
    "training.epochs": 100,
    "training.evaluate_every": 1.0,
    "training.patience": 10,
    "training.seed": 2018,
}

# XML's released config.py and scripts/train.sh (baselines/crossmodal_moment_localization), and ReLoCLNet's
# (method_tvr), where they agree. Their BertAdam clips each tensor's gradient to 1.
LATE_FUSION: Settings = {
    **BERT_ADAM,
    "features.max_tokens": 30,
    "model.input_dropout": 0.1,
    "model.dropout": 0.1,
    "model.span_kernel": 5,
    "model.initializer_range": 0.02,
    "model.ranking": "hinge",
    "model.margin": 0.1,
    "model.weight_negative_videos": 1.0,
    "model.weight_negative_queries": 1.0,
    "model.first_pool": None,
    "model.pool": 20,
    "model.pool_from_epoch": 20,
    "training.learning_rate": 1e-4,
    "training.metric": "VCMR R@1,IoU=0.5 + VCMR R@1,IoU=0.7",
    "decoding.top_videos": 100,
    "decoding.nms": None,
    "decoding.spans_before_nms": 200,
}
# The same files; XML's readme trains without temporal endpoint features, ReLoCLNet's with them.
XML_RELEASED: Settings = {
    **LATE_FUSION,
    "features.clip_seconds": 1.5,
    "features.max_clips": 100,
    "features.normalise": ("sub",),
    "features.tef": False,
    "model.hidden": 256,
    "model.heads": 4,
    "model.encoder": "transformer",
    "model.merge": True,
    "model.cross_attention": True,
    "model.modular": True,
    "model.span_predictor": "conv",
    "model.lambda_tl": 0.01,
    "model.spans_from_epoch": 0,
    "model.alpha": 20.0,
    "decoding.max_clips": 16,
}
RELOCLNET: Settings = {
    **LATE_FUSION,
    "model.hidden": 384,
    "model.heads": 8,
    "model.weight_spans": 0.01,
    "model.weight_frame_contrast": 0.03,
    "model.weight_video_contrast": 0.03,
    "model.alpha": 30.0,
}
RELOCLNET_TVR: Settings = {
    **RELOCLNET,
    "features.clip_seconds": 1.5,
    "features.max_clips": 128,
    "features.normalise": ("sub",),
    "features.tef": True,
    "decoding.max_clips": 16,
}
# MS-SL's released method/config.py and the weights in method/model.py; do_<data set>.sh below.
MS_SL: Settings = {
    **BERT_ADAM,
    "features.max_tokens": 30,
    "data.batch_of": "videos",
    "model.hidden": 384,
    "model.heads": 4,
    "model.frames": 128,
    "model.clips": 32,
    "model.input_dropout": 0.1,
    "model.dropout": 0.1,
    "model.initializer_range": 0.02,
    "model.clip_share": 0.7,
    "model.frame_share": 0.3,
    "model.margin": 0.2,
    "model.weight_clip_contrast": 0.02,
    "model.weight_frame_contrast": 0.04,
    "model.pool": 20,
    "model.pool_from_epoch": 20,
    "training.learning_rate": 2.5e-4,
    "training.metric": "VR R@1 + VR R@5 + VR R@10 + VR R@100",
}
# GMMFormer's released src/Configs/act.py, and the blocks of src/Models/gmmformer; what cha.py and tvr.py have
# otherwise stands below.
GMMFORMER: Settings = {
    **MS_SL,
    "model.blocks": 2,
    "model.windows": (0.5, 1.0, 5.0),
    "model.input_dropout": 0.2,
    "model.dropout": 0.2,
    "model.weight_diversity": 0.015,
    "model.diversity_margin": 0.2,
    "model.diversity_scale": 32.0,
    "training.seed": 9527,
}
# SQuiDNet's released config/config.py, config/model_config.json and scripts/train.sh; loader.py has the
# ranges of negatives and what is normalised.
SQUIDNET: Settings = {
    "features.max_clips": 100,
    "features.max_tokens": 30,
    "features.clip_seconds": 1.5,
    "features.normalise_query": False,
    "model.measure": "moment_video",
    "model.hidden": 768,
    "model.feedforward": None,  # 4 x 768
    "model.heads": 12,
    "model.layers": 1,
    "model.clusters": 32,
    "model.span_hidden": 128,
    "model.span_kernel": 5,
    "model.dropout": 0.1,
    "model.initializer_range": 0.02,
    "model.lambda_tl": 0.01,
    "model.lambda_video": 0.005,
    "data.retrieved.videos": 15,
    "data.retrieved.beyond_own": 500,
    "data.retrieved.beyond_own_usual": 50,
    "data.retrieved.own_within": 100,
    "training.optimizer": "adamw",
    "training.learning_rate": 1e-4,
    "training.schedule": "constant",
    "training.warmup": 0.01,  # which the program ignores
    "training.weight_decay": 0.01,
    "training.max_norm": 0.0,
    "training.batch_size": 16,
    "training.epochs": 20,
    "training.evaluate_every": 1.0,
    "training.metric": "VCMR R@1,IoU=0.5 + VCMR R@1,IoU=0.7",
    "training.patience": 3,
    "training.seed": 2018,
    "decoding.top_videos": 10,
    "decoding.nms": None,
    "decoding.spans_before_nms": 200,
    "decoding.spans_per_query": 100,
}
SQUIDNET_TVR: Settings = {
    **SQUIDNET,
    "features.normalise": ("video",),
    "decoding.min_clips": 1,
    "decoding.max_clips": 24,
}
# The ranked program's config/config.py, top20_run.slurm and train_infere_bmr.py; how long it trains is ours.
SQUIDNET_RANKED: Settings = {
    **{name: value for name, value in SQUIDNET_TVR.items() if name != "training.patience"},
    "data.train": "train_top20",
    "training.learning_rate": 1e-5,
    "training.batch_size": 8,
    "training.metric": "nDCG@20,IoU=0.5",
    "training.seed": 2024,
    "decoding.top_videos": 40,
    "decoding.spans_per_query": 40,
}
# G2L's released configs/charades.yaml, g2l/config/defaults.py and train_net.py, as far as they are MMN's.
G2L: Settings = {
    **MMN_CHARADES,
    "features.max_clips": 32,
    "features.clips_per_cell": 2,
    "model.hidden": 512,
    "model.pooling_counts": (15,),
    "model.map": "pool",
    "model.map_kernel": 5,
    "model.map_layers": 8,
    "model.lowest_iou": 0.5,
    "model.highest_iou": 1.0,
    "model.positives": 1,
    "model.negative_iou": 0.5,
    "model.same_iou": 0.5,
    "model.contrast_epochs": 7,
    "model.later_contrast": 0.01,
    "model.score_power": 0.5,
    "training.learning_rate": 1e-4,
    "training.schedule": "constant",
    "training.milestones": (8, 13),
    "training.rates": {"text.bert": 0.1},
    "training.frozen": {"text.bert": 4},
    "training.betas": (0.9, 0.99),
    "training.weight_decay": 1e-5,
    "training.max_norm": 5.0,
    "training.batch_size": 48,
    "training.epochs": 18,
    "training.evaluate_every": 1.0,
    "training.seed": 25285,
    "decoding.nms": 0.5,
}
# lighthouse's configs/base.yml and configs/qvhighlight/clip_<system>_qvhighlight.yml. But for the seed they
# are those of Moment-DETR's run_on_video/moment_detr_ckpt/opt.json and QD-DETR's video_onlyclip_opt.json.
# These programs evaluate every 5 epochs.
DETR: Settings = {
    "data.batch_of": "windows",
    "features.clip_seconds": 2.0,
    "features.long_videos": "cut",
    "features.max_clips": 75,
    "features.max_tokens": 32,
    "features.normalise": True,
    "features.normalise_query": True,
    "model.tef": True,
    "model.hidden": 256,
    "model.heads": 8,
    "model.feedforward": 1024,
    "model.projections": 2,
    "model.encoder_layers": 2,
    "model.decoder_layers": 2,
    "model.windows": 10,
    "model.longest_clips": 75,
    "model.input_dropout": 0.5,
    "model.dropout": 0.1,
    "model.weight_span": 10.0,
    "model.weight_giou": 1.0,
    "model.weight_label": 4.0,
    "model.weight_background": 0.1,
    "model.weight_saliency": 1.0,
    "model.cost_span": 10.0,
    "model.cost_giou": 1.0,
    "model.cost_label": 4.0,
    "model.each_layer": True,
    "model.saliency_margin": 0.2,
    "training.optimizer": "adamw",
    "training.learning_rate": 1e-4,
    "training.schedule": "constant",
    "training.milestones": (),  # epoch 400 of 200
    "training.warmup": 0.0,
    "training.weight_decay": 1e-4,
    "training.max_norm": 0.1,
    "training.batch_size": 32,
    "training.epochs": 200,
    "training.evaluate_every": 5.0,
    "training.metric": "SVMR mAP",
    "training.seed": 2023,
    "decoding.nms": None,
}
# QD-DETR's released qd_detr/model.py.
CONTRASTED: Settings = {**DETR, "model.temperature": 0.5}

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
        **LENGTHS[0],
    },
    "didemo/prem_localizer": {
        **PREM_LOCALIZER,
        "data.retrieved.videos": 2,
        **LENGTHS[1],
    },
    "charades_sta/mmn": {**MMN_CHARADES, **MMN_OF_CHARADES, "training.learning_rate": 1e-4},
    "activitynet/mmn": {
        **MMN,
        **MMN_OF_ACTIVITYNET,
        "model.margin": 0.3,
        "model.lambda_contrast": 0.1,
        "training.learning_rate": 8e-4,
    },
    "tacos/mmn": {
        **MMN,
        **MMN_OF_TACOS,
        "model.margin": 0.1,
        "model.lambda_contrast": 0.1,  # of the programs of MMN and CroCs; paper 002 prints 0.05
        "training.learning_rate": 1.5e-3,
    },
    "charades_sta/crocs_first": {
        **CROCS,
        **CROCS_FIRST,
        "model.stage": "first",
        "training.learning_rate": 1e-4,
    },
    "charades_sta/crocs": {
        **CROCS,
        **DRAWN,
        "model.stage": "second",
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
    # Not a system of the paper; its pseudo training set, weights and measure are.
    "tvr/conquer": CONQUER,
    "didemo/conquer": CONQUER,
    "tvr/hero": HERO_TVR,
    "tvr/hero_head": {
        setting: HERO_TVR[setting]
        for setting in (
            "model.margin",
            "model.weight_negative_videos",
            "model.weight_negative_queries",
            "model.lambda_tl",
            "model.alpha",
            "training.learning_rate",
            "training.weight_decay",
            "training.warmup",
            "decoding.top_videos",
        )
    },
    # Paper 003 (PREM), table 1; it fine-tunes HERO to find videos, so no spans are learnt.
    "tvr/hero_relevant_content": {
        **{
            name: value
            for name, value in HERO_TVR.items()
            if name not in ("model.lambda_tl", "model.drop_spans")
        },
        "model.temperature": 0.01,
        "model.lambda_weak": 0.5,
    },
    "tvr/hero_pretraining": HERO_PRETRAINING,
    "didemo/hero": HERO,
    "tvr/xml": XML_RELEASED,
    "tvr/reloclnet": RELOCLNET_TVR,
    # Features and spans of paper 000, and of prem_localizer.toml.
    "charades_sta/reloclnet": {**RELOCLNET, **CHARADES, "features.tef": True},
    "didemo/reloclnet": {
        **RELOCLNET,
        "features.clip_seconds": 1.5,
        "features.tef": False,
        "decoding.min_clips": 3,
        "decoding.max_clips": 7,
    },
    "charades_sta/ms_sl": {**MS_SL, "model.clip_share": 0.5, "model.frame_share": 0.5},
    "activitynet/ms_sl": MS_SL,
    "tvr/ms_sl": {**MS_SL, "model.margin": 0.1},
    "charades_sta/gmmformer": {
        **GMMFORMER,
        "model.input_dropout": 0.15,
        "model.dropout": 0.15,
        "model.weight_frame_contrast": 0.02,
        "model.weight_diversity": 0.005,
        "model.diversity_margin": 0.15,
        "model.pool_from_epoch": 100,
    },
    "activitynet/gmmformer": GMMFORMER,
    "tvr/gmmformer": {
        **GMMFORMER,
        "model.margin": 0.1,
        "model.weight_clip_contrast": 0.05,
        "model.weight_diversity": 0.001,
        "model.diversity_margin": 0.15,
        "model.pool_from_epoch": 30,
        "training.learning_rate": 3e-4,
    },
    "tvr/squidnet": SQUIDNET_TVR,
    "didemo/squidnet": {
        **SQUIDNET,
        "decoding.min_clips": 3,
        "decoding.max_clips": 7,
    },  # prem_localizer.toml's
    "tvr_ranking/squidnet": {
        **SQUIDNET_RANKED,
        **{
            name: RANKED[name]
            for name in ("data.weights", "data.positives", "training.metric", "decoding.nms")
        },
    },
    "charades_sta/g2l": G2L,
    "qvhighlights/moment_detr": DETR,
    "qvhighlights/qd_detr": {**CONTRASTED, "model.text_layers": 2},
    # CG-DETR's released config.py and CLIP_ckpt/qvhighlights_onlyCLIP/opt.json, but for prompts_taken.
    "qvhighlights/cg_detr": {
        **CONTRASTED,
        "model.encoder_layers": 3,
        "model.decoder_layers": 3,
        "model.text_layers": 2,
        "model.dummies": 45,
        "model.dummy_layers": 2,
        "model.sentence_layers": 1,
        "model.moment_layers": 1,
        "model.prompts": 10,
        "model.prompts_taken": 2,
        "model.weight_attention": 1.0,
        "model.weight_align": 1.0,
        "model.weight_distill": 1.0,
    },
    # EaTR's released config.py and eatr_ckpt/opt.json: three layers, a drop at epoch 150, seed 429.
    "qvhighlights/eatr": {**DETR, "model.weight_event": 3.0, "training.evaluate_every": 1.0},
    # TR-DETR's released tr_detr/scripts/train.sh (seed 2017), tr_detr/model.py and tr_detr/loss_fun.
    "qvhighlights/tr_detr": {
        **CONTRASTED,
        "model.text_layers": 2,
        "model.focal_share": 0.25,
        "model.focal_power": 2.0,
        "model.align_temperature": 0.07,
        "model.weight_clip_text": 0.5,
        "model.weight_video_text": 0.3,
    },
    # UVCOM's released scripts/train_QV_scratch.sh, which has lighthouse's seed, and uvcom/config.py.
    "qvhighlights/uvcom": {
        **CONTRASTED,
        "model.encoder_layers": 3,
        "model.decoder_layers": 3,
        "model.windows": 30,
        "model.text_centres": 5,
        "model.video_centres": 30,
        "model.rounds": 5,
        "model.weight_similarity": 1.0,
        "model.unlike_from_epoch": 80,
        "training.milestones": (100,),
        "training.milestone_factor": 0.1,
    },
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


@pytest.mark.parametrize("name", [name for name in shipped() if "/conquer" in name or "/squidnet" in name])
def test_the_programs_of_conquer_and_squidnet_have_no_warm_up(name: str) -> None:
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


# XML and ReLoCLNet: min_pred_l = 2 and max_pred_l = 16 in their released config.py.
@pytest.mark.parametrize(
    ("name", "lengths"), [("tvr/xml", ("as-released", 2, 16)), ("tvr/reloclnet", ("exclusive", 2, 15))]
)
def test_programs_answer_no_span_of_one_clip(name: str, lengths: tuple[str, int, int]) -> None:
    released = load_experiment(FOLDER / f"{name}.toml", ["as_released=true"]).decoding
    assert (released.ends, released.min_clips, released.max_clips) == lengths


@pytest.mark.parametrize("name", [name for name in shipped() if name.startswith("qvhighlights/")])
def test_detr_programs_train_all_epochs(name: str) -> None:
    """max_es_cnt = 200 evaluations; no program has more in its 200 epochs."""
    training = load_experiment(FOLDER / f"{name}.toml").training
    assert training.patience is not None
    assert training.patience >= training.epochs / training.evaluate_every


def test_squidnets_ranked_program_trains_until_it_is_ended() -> None:
    """--eval_folds 2 in top20_run.slurm; train_infere_bmr.py never stops early."""
    released = load_experiment(FOLDER / "tvr_ranking/squidnet.toml", ["as_released=true"]).training
    assert (released.evaluate_every, released.patience) == (0.5, None)


@pytest.mark.parametrize("row", list(ROWS))
def test_rows_on_two_annotators_have_the_terms_of_their_names(row: str) -> None:
    terms = {**NO_PAIRS, **NO_SEGMENTS, "model.confidence_is_one": False, **ROWS[row]}
    terms = {name: value for name, value in terms.items() if name.startswith("model.")}
    assert {name: _value(f"activitynet_two_annotators/{row}", name) for name in terms} == terms


def test_crocs_on_two_annotators_spares_similar_videos_and_draws_in_its_second_stage() -> None:
    for name, stage in (("crocs_first", "first"), ("crocs", "second")):
        place = f"activitynet_two_annotators/{name}"
        assert _value(place, "data.positives") == "similar"
        assert (_value(place, "model.stage"), _value(place, "data.negatives.mean")) == (stage, "own")


def test_the_best_is_not_chosen_on_what_is_tested_where_there_is_a_validation_split() -> None:
    """TVR and QVHighlights keep the labels of their test split; Charades-STA has no validation split."""
    for name, path in shipped().items():
        folder = name.partition("/")[0]
        if has_stages(path) or folder in ("tvr", "qvhighlights", "charades_sta", "simulated_charades"):
            continue
        data = load_experiment(path).data
        assert len({data.train, data.validation, data.test}) == 3, name


def test_every_shipped_experiment_is_compared() -> None:
    others = {
        "tvr/prem_localizer_after_hero",  # another first stage than the paper's
        "didemo/xml_slowfast",  # features of paper 003 for a system of paper 000
    }
    smaller = (
        "simulated",
        "titled_transcripts/",
        "activitynet_two_annotators/",
    )  # their files say what is ours
    alone = {
        name for name, file in shipped().items() if not has_stages(file) and not name.startswith(smaller)
    }
    assert alone - set(PUBLISHED) == others
