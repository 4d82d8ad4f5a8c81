"""How cost grows (`benchmarks/scale.py`), and the page of what a billion clips cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks import pooling, scale, scale_costs, scale_pictures

from whenabouts.index import lookup, memory, upkeep

PAGE = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "scale.md"


def test_the_tables_of_the_page_are_those_of_the_results() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert scale_costs.filled(page, scale_costs.Prices()) == page, "run benchmarks.scale_costs --write"
    with pytest.raises(ValueError, match="the page names"):
        scale_costs.filled(page.replace("table: laws", "table: law"), scale_costs.Prices())


def test_other_prices_change_the_price_and_nothing_measured() -> None:
    dear = scale_costs.Prices(core_hour=0.08)
    assert scale_costs.billion_table(dear) != scale_costs.billion_table(scale_costs.Prices())
    assert scale_costs.measured_table(dear) == scale_costs.measured_table(scale_costs.Prices())


@pytest.mark.slow
def test_the_law_of_growth_is_found_with_an_interval_that_holds_it() -> None:
    rng = np.random.default_rng(0)
    sizes = [10_000 * 2**n for n in range(8)]
    law = scale.growth(sizes, [3.0 * size**1.3 * np.exp(0.05 * rng.standard_normal()) for size in sizes])
    low, high = law["interval"]
    assert low < 1.3 < high and high - low < 0.2
    assert scale_costs.at(law, 10_000_000) == pytest.approx(3.0 * 10_000_000**1.3, rel=0.2)
    assert scale.growth(sizes[:2], [1.0, 2.0])["interval"] is None


def test_the_best_clips_are_the_same_whether_found_at_once_or_size_by_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale, "BLOCK", 8)
    monkeypatch.setattr(scale, "K", 5)
    rows, count = 3 * 8 * scale.CLIPS, 4
    for folder, steps in (("once", [rows]), ("steps", [rows // 3, rows])):
        (tmp_path / folder).mkdir()
        for step in steps:
            scale.truth(tmp_path / folder, step, count)
    once, steps_found = (np.load(tmp_path / name / "truth.npz")["best"] for name in ("once", "steps"))
    assert np.array_equal(np.sort(once), np.sort(steps_found))
    vectors = np.concatenate([scale.vectors_of(block).reshape(-1, scale.DIMENSION) for block in range(3)])
    exact = np.argsort(-(scale.queries(count) @ vectors.T), axis=1)[:, :5]
    assert np.mean([len(set(a) & set(b)) / 5 for a, b in zip(exact, once[0], strict=True)]) >= 0.9
    kept = np.repeat(np.concatenate([scale.kept(block, 0.5) for block in range(3)]), scale.CLIPS)
    assert kept[once[1]].all() and not kept[once[0]].all()


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    whole = list(scale.run(tmp_path, [10_000, 20_000], 10))
    assert [row["clips"] for row in whole] == [10_000, 20_000]
    assert all(row["search"]["nearest_100%_of_videos"]["recall_at_10"] == 1.0 for row in whole)
    (tmp_path / "20000.json").unlink()
    again = list(scale.run(tmp_path, [10_000, 20_000], 10))
    assert again[0] == whole[0]
    assert again[1]["build"]["seconds"] >= whole[1]["build"]["seconds"]
    assert again[1]["disk"]["mb"] == pytest.approx(whole[1]["disk"]["mb"], rel=0.1)


@pytest.mark.slow
def test_sentences_score_with_pictures_as_those_of_clip_do_and_lie_outside_their_cone() -> None:
    clips, others = scale_pictures.vectors_of(0), scale_pictures.vectors_of(1)
    assert (clips[::50] @ others[::50].T).mean() == pytest.approx(0.5, abs=0.03)
    for kind in ("gap", "topics"):
        cosines = scale_pictures.queries(kind, 50) @ clips.T
        assert cosines.mean() == pytest.approx(0.2, abs=0.03)
        assert 0.28 < cosines.max(axis=1).mean() < 0.36
    assert (scale_pictures.queries("examples", 50) @ clips.T).max(axis=1).min() > 0.7
    unrelated = scale_pictures.unrelated("gap")
    assert np.array_equal(unrelated, scale_pictures.unrelated("gap"))
    assert np.linalg.norm(unrelated, axis=1) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.slow
def test_a_measured_effort_finds_more_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "INDEX_ROWS", 5_000)
    monkeypatch.setattr(memory, "INDEX_ROWS", 5_000)
    monkeypatch.setattr(upkeep, "PARTITION_ROWS", 100)
    monkeypatch.setattr(lookup, "LEAST_PROBES", 1)
    rows, count = scale.BLOCK * scale.CLIPS, 30
    assert scale_pictures.build(tmp_path, rows)["from_clips"] == 0
    scale_pictures.truth(tmp_path, rows, count)
    assert scale_pictures.measure_effort(tmp_path, "gap")["recall"] >= 0.95
    constant, measured = (
        scale_pictures.search(tmp_path, rows, count, "gap", which)["recall_at_20"] for which in (False, True)
    )
    assert constant < 0.9 < measured


def test_recall_counts_equal_scores_as_one_another() -> None:
    exact = np.linspace(0.4, 0.2, scale.K, dtype=np.float32)[None]
    hits = lookup.no_hits()
    none = scale_pictures.recall([hits], exact)
    assert none == {"recall_at_1": 0.0, "recall_at_20": 0.0, "recall_at_200": 0.0}
    score = np.append(exact[0, 1:], np.float32(0.1))
    missed = scale_pictures.recall([replace(hits, score=score)], exact)
    assert missed == {"recall_at_1": 0.0, "recall_at_20": 0.95, "recall_at_200": 0.995}


def test_frames_are_pooled_as_the_names_say() -> None:
    frames = np.array([1.0, 3.0, 2.0, 2.0])
    scores = {name: way(frames) for name, way in pooling.WAYS.items()}
    assert scores["mean x seconds ^ 0.3"] == pytest.approx(2.0 * 4**0.3)
    assert (scores["mean x seconds ^ 0.0"], scores["best 1"], scores["best half"]) == (2.0, 3.0, 2.5)
    assert scores["best 3"] == pytest.approx(7 / 3)
    assert scores["correlated 0.5"] == pytest.approx(2.0 / np.sqrt(0.5 + 0.5 / 4))
    assert pooling.correlated(0.5, -frames) == pooling.lasting(0.3, -frames) == -2.0
    assert pooling.rank(np.array([False, True, True]), [3.0, 1.0, 2.0]) == 1.0
    assert pooling.rank(np.zeros(3, np.bool_), [3.0, 1.0, 2.0]) == float("inf")
