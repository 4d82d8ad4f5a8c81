"""Which arrays of golden cases are compared, which are given, and which no test reads, and why.

A part's arrays are those of its `*.npz`. Names are regular expressions; the first group that fits counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

_PACKING = "how the program packs sentences: ours is compared by what comes out of it"
_PLACES = "places and types of tokens: ours count them by themselves"
_TWICE = "told a second time beside it"
_LOSSES = "compared by the losses that read it"

NOT_COMPARED: Mapping[str, Mapping[str, str]] = {
    "hero": {r"in\.\w+(pos_ids|gather_index)": _PACKING},
    "hero_full": {
        r"\w+\.in\.(\w*pos_ids|f_(gather_index|sub_input_attn_masks|v_masks|v_feats|attn_masks))": _PACKING,
        r"mlm\.in\.(position_ids|v_feat|attn_masks|gather_index)": _PACKING,
        r"\w+\.out\.f_pooled": "the program makes it and reads it nowhere",
        r"fom\.in\.(reordered_frame_idx|binary_targets)": "no loss of the program uses it",
        r"infer\.batch\d+\..*": "queries are read from their tokens",
    },
    "squidnet": {r"train\.in\.\w+\.feat_(pos|token)_id": _PLACES, r"train\.in\.is_positive": _TWICE},
    "conquer": {r"(train|eval)\.in\.\w+\.feat_(pos|token)_id": _PLACES},
    "detr": {
        r"(eval|train)\.(video_mask|global_rep_tokens)": _TWICE,
        r"train\.src_vid": "clips as the encoder of moments leaves them in two calls, joined",
        r"train\.nmoment2txt_similarity": "ours makes no such product: no loss reads it",
        r"(eval|train)\.src_(vid|txt)_cls_ed": _LOSSES,
        r"step\.(.*\.)?(token_type_embeddings|gru_extractor)\.call\d+": "a part of one of our layers",
        r"step\..*(t2v|v2t)_encoder(\.layers\.\d+)?\.call\d+": "words beside clips, as a layer leaves them",
        r"step\.transformer(\.decoder)?\.call0": "of EaTR: its slots stacked before the layers",
        r"step\..*\.call[1-9]": "made of wrong words and read by nothing but what test_detr_golden.py names",
    },
    "crocs": {
        r".*\.(v2q|q2v)_weight": "compared by the losses that they weigh",
        r"bce\.(scaler_flat|loss)": "the program makes it and calls it nowhere",
        r"v2q_two_positive_sentences_.*|note": "said in words",
        r"v2q\.in\.moments\.[1-9]\d*": "of other videos: their sentences are negatives anyway",
        r"seed|s_te": _TWICE,
    },
    "inference": {r"in/corpus_mask": _TWICE},
    "mvmr_build": {r"seed": _TWICE},
    "mvmr_eval": {r"seed|result": _TWICE},
    "metrics": {r"KS|TS": _TWICE},
}
"""By part (the six DETR systems are one): name -> reason."""

_TAKEN = r"(query|corpus_(video|sub))_(feat|mask)"
_EMSCORES = r"(fig|cog|full_)\w+"

COMPARED: Mapping[str, str] = {
    "hero": r"(sd|in|out|head|infer|loss)\..*",
    "hero_full": r"(sd|raw|(tvr|vsm|mlm|mfm|fom)\.(in|out|loss|grad)|optim|adamw|infer)\..*",
    "squidnet": r"(sd|raw|train\.(in|step|out|loss|grad)|optim|infer|ranked)\..*",
    "conquer": r"sd\..*|(train|eval)\.(in|out)\..*|hero_ranklist_msgpack\..*|train\.out\.loss",
    "detr": r"(sd|raw|in|target|step|eval|train|loss|post|predictor\d+|optim)\..*",
    "xml": r"(param|in|out|grad_total|grad_st_ed|rand)/.*",
    "reloclnet": r"(param|in|out_official|out_tvrr|grad_official|grad_tvrr|rand)/.*",
    "ms_sl": r"(sd|raw|pre|batch|out|loss)\..*",
    "gmmformer": r"(sd|batch|gauss|out|loss)\..*",
    "crocs": r"config|threshold|mask2d|(q2v\.|v2q\.)?(in|loss_\w+)\..*|[qv]2[qv]\.loss_\w+|loss_(vid|sent)"
    r"|\w+\.(simcse_matrix|filtered_mask|loss_\w+|grad_.*)|plain_mmn\.loss_\w+|bce\.(scores2d|plain_loss)"
    r"|similar_pairs_\w+|query_query_(keep_mask|sim)|video_of_query|golden_mask|negative_candidate_mask_eq1|r_query_video|rbar_\w+"
    r"|p_\w+_given_\w+\..*|pre_topk(_mask)?",
    "batching": r"(raw|xml|tvrr_train|uniform_sampling|l2norm)/.*",
    "inference": rf"(raw|param)/.*|in/{_TAKEN}|\w+/(q2c_cosine|(st|ed)_(prob|logits)|all_(video|sub)_feat)"
    r"|\w+/ctx/((video|sub)_feat[12]|(video|sub)_mask)|score_map|top_(values|index_vmn)|L\d+_min\d+_max\d+",
    "optim": r"(A|b)0|grad_[Ab]|[Ab]_after|lr_used",
    "mvmr_build": rf"config|annotations|sentence_(video|similarity)|query_video_similarity_max|token_\w+"
    rf"|frame_counts|frames_(raw|pooled)|all_pairs\.(no)?idf\.{_EMSCORES}|golden\.(idf_true\.)?{_EMSCORES}"
    rf"|sampled_negative\.(pairs_sentence_video|{_EMSCORES})|em_(pos|neg)_threshold"
    r"|(pos|neg)_(candidate|kept|emscore)_?\w*"
    r"|released_run\.final_(positive_(sentence|video)|pool_video)",
    "mvmr_eval": r"scores_u16|hits_per_query|recall_keys|nms_survivors_per_video"
    r"|merged_top\d+\.(video_index|moment|score)|config|mask2d|info_json|duration|in\..*|sample_indices|removed|query_order|(iou|contrastive)_scores\.\d+"
    r"|(confidence|moments)\.\d+",
    "metrics": r"query_id|per_query_\w+|desc_id|VCMR|SVMR|VR",
}
"""By part: what the tests read, but for the above."""


_WHOLE_PARTS = (
    *("hero", "hero_full", "squidnet", "conquer", "xml", "reloclnet", "ms_sl", "gmmformer"),
    *("moment_detr", "qd_detr", "cg_detr", "tr_detr", "eatr", "uvcom"),
)
_FILES: Mapping[str, str] = {
    **dict.fromkeys(_WHOLE_PARTS, r".*\.(npz|json)"),
    "crocs": r"(false_neg_loss|hard_negative_loss|loss_modified|sampling_probabilities).*\.npz",
    "batching": r"(xml_batches|xml_raw|tvrr_batches|tvrr_raw).*\.npz|(xml_labels|tvrr_batches).*\.json",
    "inference": r".*\.(npz|json)",
    "metrics": r"tvr.*_(gt\.jsonl|submission\.json|metrics\.json|per_query\.npz|edge_cases.*\.json)"
    r"|ndcg_iou.*\.(json|npz)|(nms_pairs|nms_multi_video|iou_pairs).*\.json",
    "mmn": r"(model_|data_utils|nms_and_recall).*\.npz",
    "mvmr_build": r".*\.npz",
    "mvmr_eval": r".*_subset\.(json|npz)|feature_level_.*\.npz|released_log_facts\.json",
    "mvmr_stats": r".*\.json",
    "optim": r"bertadam.*\.(json|npz)",
}
"""By part: the files that tests read (a log's facts are read by people)."""


def unknown_files(folder: Path) -> list[str]:
    """The files of parts that no test reads, and the parts that none knows."""
    parts = [part for part in folder.iterdir() if part.is_dir() and not part.name.startswith(".")]
    unknown = [part.name for part in parts if part.name not in _FILES]
    unknown += [
        f"{part.name}/{file.name}"
        for part in parts
        for file in part.glob("[!.]*")
        if part.name in _FILES and not re.fullmatch(_FILES[part.name], file.name)
    ]
    return sorted(unknown)


def unknown_arrays(part: str, names: Iterable[str]) -> list[str]:
    """The arrays of a case of that part that no test reads and nothing here names."""
    left = "|".join(f"(?:{name})" for name in NOT_COMPARED.get(part, {}))
    known = re.compile(f"meta_json|{COMPARED[part]}" + (f"|{left}" if left else ""))
    return sorted(name for name in names if not known.fullmatch(name))
