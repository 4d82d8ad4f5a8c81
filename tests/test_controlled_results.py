"""The page of results with controls and its logs contain the numbers of the stored outcomes."""

from __future__ import annotations

import csv
import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("whenabouts_systems", reason="benchmarks of research")

from benchmarks import page_tables
from benchmarks.studies import load_studies
from benchmarks.study_outcomes import Outcomes, differences, opened, tables
from benchmarks.two_annotators import RESULT

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "controlled-results.md").read_text(encoding="utf-8")
NUMBER = r"[+-]?\d+\.\d"
SHOWN = rf"([+-]\d+\.\d)(?: points)?\**(?: \(|; )({NUMBER}) to ({NUMBER})(?:; p ([<=]) (0\.\d+))?"
POOLS, CORPUS, GIVEN, FIRST = "R@1,IoU=0.3", "R@1,IoU=0.5", "SVMR R@1,IoU=0.5", "VR R@1"
MEAN = r"(\d+\.\d) ?± ?(\d+\.\d)\b"
LOGS = {
    "crocs_controls": ("crocs-controls",),
    "table_2": ("table-2", "table-3", "table-3-corpus", "table-2-activitynet"),
    "relevant_pairs": (
        *("relevant-pairs", "relevant-pairs-grid", "relevant-pairs-long", "relevant-pairs-elsewhere"),
        "simulated-didemo",
    ),
    "two_stages": (
        *("two-stages", "table-6", "two-stages-rates", "two-stages-rates-parts"),
        "two-stages-rates-queries",
    ),
    "hero": ("hero", "relevant-content", "two-stages"),
    "ranked": ("ranked", "ranked-new"),
    "published_difficulty": (
        "published-difficulty",
        "published-difficulty-didemo",
        "published-difficulty-prem",
        "published-difficulty-tvr",
        "published-difficulty-terms",
        "published-difficulty-terms-charades",
        "prem-retriever",
    ),
}
"""Log below `benchmarks/results` -> the outcomes that it reports."""
SOURCES = (
    ("crocs-controls", "crocs - mmn_more", POOLS),
    ("crocs-controls", "crocs_first - crocs_filter", POOLS),
    ("crocs-controls", "crocs_filter - mmn", POOLS),
    ("crocs-controls", "crocs - crocs_uniform", POOLS),
    ("crocs-controls", "crocs - crocs_first_more", POOLS),
    ("table-3", "mmn_5 - mmn", CORPUS),
    ("table-3", "crocs_5 - crocs", CORPUS),
    ("table-2", "crocs - mmn_more", CORPUS),
    ("relevant-pairs", "xml_pr_30 - xml_30", CORPUS),
    ("relevant-pairs-grid", "xml_sl_logits - xml", "R@10,IoU=0.5"),
    ("simulated-didemo", "xml_pr_16 - xml_16", GIVEN),
    ("simulated-didemo", "xml_pr_16 - xml_16", "SVMR R@1,IoU=0.7"),
    ("two-stages-rates", "prem_dropped_more - conquer_dropped", GIVEN),
    ("two-stages", "prem_prem - conquer_prem", GIVEN),
    ("two-stages", "prem_prem - prem_xml", CORPUS),
    ("two-stages-rates-parts", "prem - prem_no_gates_1", GIVEN),
    ("two-stages-rates-parts", "prem - prem_no_shared_norm_3", GIVEN),
    ("two-stages-rates-parts", "prem - prem_no_adversary", GIVEN),
    ("two-stages-rates-queries", "prem_queries_1 - conquer_queries_1", CORPUS),
    ("two-stages-rates-queries", "prem_queries_1 - conquer_queries_1", GIVEN),
    ("hero", "hero_more_star - hero_more", FIRST),
    ("hero", "hero_star - hero", FIRST),
    ("hero", "hero_head_more_star - hero_head_more", FIRST),
    ("relevant-content", "reloclnet_star - reloclnet", FIRST),
    ("relevant-content", "xml_star - xml", FIRST),
    ("ranked", "conquer_20 - conquer_01", "nDCG@40,IoU=0.5"),
    ("ranked-new", "xml_20 - xml_01", "nDCG@20,IoU=0.3"),
    ("ranked-new", "reloclnet_40 - reloclnet_20", "nDCG@20,IoU=0.3"),
)
"""Outcomes, pair and metric of the differences that have an interval, in the order of the page."""


@cache
def outcomes_of(name: str) -> Outcomes:
    return opened(ROOT / "benchmarks" / "results" / f"{name.replace('-', '_')}.csv.xz")


@cache
def computed(name: str) -> dict[tuple[str, str], list[float]]:
    """(Pair, metric) -> the difference, the ends of its interval, and p."""
    study = load_studies()[name.removesuffix("-new")]
    systems = [system.name for system in study.systems]
    head, _, *rows = differences(study.differences, outcomes_of(name), systems)
    metrics = head.strip("| ").split(" | ")[2:]
    return {
        (pair, metric): [float(number) for number in re.findall(r"[+-]?\d[\d.]*(?:e-\d+)?", cell)]
        for pair, _, *cells in (row.strip("| ").split(" | ") for row in rows)
        for metric, cell in zip(metrics, cells, strict=True)
    }


@pytest.mark.slow
def test_differences_on_the_page_are_those_of_the_outcomes() -> None:
    shown = re.findall(SHOWN, PAGE)
    assert len(shown) == len(SOURCES)
    for (*numbers, sign, p), (name, pair, metric) in zip(shown, SOURCES, strict=True):
        *expected, exact = computed(name)[pair, metric]
        assert [float(number) for number in numbers] == expected, (name, pair, metric)
        # p has two digits in the table; a p of 0.0505 is printed as 0.05 there.
        fits = not sign or (exact < float(p) if sign == "<" else exact == pytest.approx(float(p), rel=0.07))
        assert fits, (name, pair, metric, exact)


@cache
def printed(name: str) -> str:
    """Both tables that `study_outcomes table` prints."""
    return "\n".join(tables(load_studies()[name.removesuffix("-new")], outcomes_of(name)))


@pytest.mark.slow
@pytest.mark.parametrize("log", list(LOGS))
def test_means_and_differences_in_a_log_are_those_of_the_outcomes(log: str) -> None:
    """A log may reverse the sign of a difference."""
    text = (ROOT / "benchmarks" / "results" / f"{log}.md").read_text(encoding="utf-8")
    known = "\n".join(printed(name) for name in LOGS[log])
    means = re.findall(MEAN, text)
    assert means
    assert {*means} <= {*re.findall(MEAN, known)}
    pattern = rf"({NUMBER}) \(({NUMBER}) to ({NUMBER})\b"
    told = {_turned(*numbers) for numbers in re.findall(pattern, known)}
    for numbers in re.findall(pattern, text):
        assert _turned(*numbers) in told, numbers


def _turned(mean: str, low: str, high: str) -> tuple[float, ...]:
    """A difference and its interval, with the sign that makes the difference positive."""
    ends = sorted((float(low), float(high)))
    return (abs(float(mean)), *(sorted(-end for end in ends) if mean.startswith("-") else ends))


def test_shares_lost_in_pools_are_those_of_the_outcomes() -> None:
    outcomes = outcomes_of("table-2")

    def lost(system: str) -> int:
        pools, given = (
            outcomes.of(system)[:, :, outcomes.metrics.index(f"{prefix}R@1,IoU=0.5")].mean()
            for prefix in ("", "VMR ")
        )
        return round(100 * float(1 - pools / given))

    told = f"CET and BET lose {lost('cet')} and {lost('bet')} % of their right answers, MMN {lost('mmn')}, "
    assert f"{told}CroCs {lost('crocs')} %." in PAGE
    wide = outcomes_of("table-2-activitynet")
    best = max(wide.of(system)[:, :, 0].mean() for system, _ in wide.values)
    assert wide.metrics[0] == "R@1,IoU=0.3" and f"none finds more than {100 * best:.1f} % in pools" in PAGE


def test_forty_moments_are_below_twenty_for_every_system() -> None:
    for system in ("xml", "reloclnet", "conquer", "squidnet"):
        difference, *_, p = computed("ranked")[f"{system}_40 - {system}_20", "nDCG@40,IoU=0.5"]
        assert difference < 0 and p < 0.001


@pytest.mark.slow
def test_no_row_of_relevant_pairs_is_above_xml() -> None:
    for name in ("relevant-pairs", "relevant-pairs-grid", "relevant-pairs-long"):
        for (pair, metric), (difference, *_, p) in computed(name).items():
            if pair.endswith(" - xml"):
                assert difference <= 0 or p > 0.05, (name, pair, metric)
    whole = outcomes_of("relevant-pairs")
    first = whole.metrics.index("R@1,IoU=0.5")
    assert np.mean(whole.of("xml_pr")[:, :, first]) < np.mean(whole.of("xml")[:, :, first]) / 2


@pytest.mark.slow
def test_the_tables_of_two_annotators_are_those_of_its_files() -> None:
    """Outcomes, numbers of 27 November where no outcomes were kept, and cosines after epochs 1 and 10."""
    page = page_tables.PAGE.read_text(encoding="utf-8")
    ours, whenabouts = page.split("## Beside whenabouts")
    emptied = re.sub(
        rf"{NUMBER} (?:\({NUMBER} to {NUMBER}(?:; p = [\d.e-]+)?\)|± {NUMBER}) (?=\|)", " ", ours
    )
    assert len(ours) - len(emptied) > 12_000
    assert page_tables.refreshed(emptied, page_tables.printed()) == ours
    before = json.loads(RESULT.read_text(encoding="utf-8"))["test"]
    lines = {
        "{:.1f} ({:.1f} to {:.1f})".format(*numbers)
        for one in before.values()
        for numbers in one["metrics"].values()
    }
    assert {*re.findall(rf"{NUMBER} \({NUMBER} to {NUMBER}\)", whenabouts)} <= lines
    cosines: dict[tuple[str, str], list[float]] = {}
    with RESULT.with_name("two_annotators_curves.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            cosines.setdefault((row["system"], row["epoch"]), []).append(float(row["own_cosine"]))
    for system in {name for name, _ in cosines}:
        first, last = (np.mean(cosines[system, epoch]) for epoch in ("1", "10"))
        assert f"| {system} | {first:.2f}, {last:.2f} |" in page
