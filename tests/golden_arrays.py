"""Which arrays of golden cases are compared, which are given, and which no test reads, and why.

A part's arrays are those of its `*.npz`. Names are regular expressions; the first group that fits counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

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
        r"(eval|train)\.(video_mask|src_vid|global_rep_tokens)": _TWICE,
        r"train\.nmoment2txt_similarity": "ours makes no such product: no loss reads it",
        r"(eval|train)\.(src_(vid|txt)_cls_ed|pred_event_spans)": _LOSSES,
        r"step\.(.*\.)?(token_type_embeddings|gru_extractor)\.call\d+": "a part of one of our layers",
        r"step\..*(t2v|v2t)_encoder(\.layers\.\d+)?\.call\d+": "words beside clips, as a layer leaves them",
        r"step\.(transformer|CIM)(\.decoder)?\.call\d+": "all layers stacked",
        r"step\.(class|span)_embed\.call\d+": "all layers stacked",
        r"step\..*\.call[1-9]": "made of wrong words and read by nothing but what test_detr_golden.py names",
    },
}
"""By part (the six DETR systems are one): name -> reason."""

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
}
"""By part: what the tests read, but for the above."""


def unknown_arrays(part: str, names: Iterable[str]) -> list[str]:
    """Those of a case of that part that no test reads and nothing here names."""
    left = "|".join(f"(?:{name})" for name in NOT_COMPARED.get(part, {}))
    known = re.compile(f"meta_json|{COMPARED[part]}" + (f"|{left}" if left else ""))
    return sorted(name for name in names if not known.fullmatch(name))
