"""Each fact of a golden case is read, known to be irrelevant, or reported."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.golden_arrays import COMPARED, unknown_arrays, unknown_files
from tests.golden_folder import Settings, cases, golden_folder, only_gelu
from tests.models.detr_cases import SYSTEMS


def test_a_setting_that_nothing_reads_is_named() -> None:
    told = Settings({"heads": 3, "drop": 0.1, "odd": 1, "new": 2})
    assert told["heads"] == 3 and told.get("odd", 0) == 1
    with pytest.raises(AssertionError, match="the case tells new, which nothing here reads"):
        told.refuse_unread("drop")
    told.refuse_unread("drop", "new")


def test_what_a_case_leaves_out_is_as_released_or_named() -> None:
    told = Settings({"heads": 3}, {"heads": 8, "margin": 0.1})
    assert (told["heads"], told["margin"]) == (3, 0.1)
    told.refuse_unread()
    with pytest.raises(AssertionError, match="the case tells no width, of which no released default"):
        told["width"]


def test_parts_of_bert_that_our_layers_do_not_have_are_named() -> None:
    only_gelu({"hidden_act": "gelu", "num_attention_heads": 2})
    with pytest.raises(AssertionError, match="hidden_act relu is not implemented"):
        only_gelu({"hidden_act": "relu"})
    with pytest.raises(AssertionError, match="the case tells position_embedding_type"):
        only_gelu({"position_embedding_type": "relative_key"})


@pytest.mark.parametrize("part", sorted(COMPARED))
def test_every_array_is_read_or_named(part: str) -> None:
    """An unknown array of a case is reported, because it is not compared."""
    unknown = {}
    for folder in SYSTEMS if part == "detr" else (part,):
        for path in cases(folder, "*.npz"):
            with np.load(path) as stored:
                if found := unknown_arrays(part, stored.files):
                    unknown[path.name] = found
    if unknown:
        pytest.skip(f"no test compares {unknown}")


def test_every_file_is_read_or_named() -> None:
    if unknown := unknown_files(golden_folder()):
        pytest.skip(f"no test reads {', '.join(unknown)}")


def test_a_file_that_nothing_reads_is_told(tmp_path: Path) -> None:
    for name in ("crocs/loss_modified_b.npz", "crocs/gates_a.npz", "hero/hero_b.npz", "new_part/a.npz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert unknown_files(tmp_path) == ["crocs/gates_a.npz", "new_part"]


def test_an_array_that_nothing_knows_is_told() -> None:
    assert unknown_arrays("xml", ["in/query_feat", "extra/gates", "meta_json"]) == ["extra/gates"]
    assert unknown_arrays("squidnet", ["train.in.vid.feat_pos_id", "train.gates.a"]) == ["train.gates.a"]
