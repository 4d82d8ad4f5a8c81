"""Comparison of runs: numbers, refusals, and equal contents of table, JSON and LaTeX."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from whenabouts.types import UsageError
from whenabouts_bench.evaluation.compared import booktabs, escaped
from whenabouts_bench.evaluation.comparison import (
    Comparison,
    Settings,
    clusters_of,
    compare,
    names_of,
    queries_in_several_videos,
)
from whenabouts_bench.evaluation.evaluate import Evaluation
from whenabouts_bench.evaluation.several_trainings import over_trainings, pooled_variance
from whenabouts_bench.evaluation.significance import bootstrap_intervals, corrected, sign_flip_test
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations

Floats = NDArray[np.float64]

METRICS = ("R@1,IoU=0.5", "R@1,IoU=0.7", "mIoU")
QUICK = Settings(resamples=400)


def evaluation(name: str, values: Floats, metrics: tuple[str, ...] = METRICS) -> Evaluation:
    return Evaluation("vcmr@1", name, metrics, tuple(f"q{n}" for n in range(len(values))), values)


def hits(seed: int, share: float, queries: int = 120) -> Floats:
    """(Q, 3) values; seeds that differ share most of their luck."""
    luck = np.random.default_rng(0).random((queries, 1)) + 0.3 * np.random.default_rng(seed).random(
        (queries, 3)
    )
    return (luck < 1.3 * share).astype(np.float64)


@pytest.fixture()
def videos() -> dict[str, int]:
    return {f"q{number}": number // 3 for number in range(120)}


@pytest.fixture()
def runs() -> list[Evaluation]:
    return [
        evaluation("a.jsonl", hits(1, 0.4)),
        evaluation("b.jsonl", hits(2, 0.7)),
        evaluation("c", hits(3, 0.4)),
    ]


@pytest.fixture()
def compared(runs: list[Evaluation], videos: dict[str, int]) -> Comparison:
    return compare(runs, videos, settings=QUICK)


def judged(*rows: tuple[str, str, float]) -> Annotations:
    """Annotations of (query, video, relevance)."""
    collector = AnnotationBuilder("made")
    for number, (query, video, relevance) in enumerate(rows):
        collector.add_query(query)
        collector.judge(query, video, number, number + 1.0, relevance)
    return collector.annotations()


# ------------------------------------------------------------------------------- clusters


def test_queries_of_one_video_are_one_cluster() -> None:
    clusters = clusters_of(judged(("x", "v", 1), ("y", "w", 1), ("z", "v", 1)))
    assert clusters["x"] == clusters["z"] != clusters["y"]


def test_a_query_of_several_videos_is_filed_under_the_most_relevant_and_then_the_first() -> None:
    annotations = judged(("x", "v", 1), ("x", "w", 3), ("x", "u", 3), ("in w", "w", 1), ("in u", "u", 1))
    clusters = clusters_of(annotations)
    assert clusters["x"] == clusters["in w"] != clusters["in u"]
    assert queries_in_several_videos(annotations) == 1
    assert queries_in_several_videos(annotations, 3) == 1 and queries_in_several_videos(annotations, 4) == 0
    assert queries_in_several_videos(judged(("x", "v", 1), ("x", "w", 0))) == 0


def test_queries_without_judgements_are_clusters_by_themselves() -> None:
    collector = AnnotationBuilder("made")
    for query in ("x", "y", "z"):
        collector.add_query(query)
    collector.judge("y", "v", 0, 1)
    clusters = clusters_of(collector.annotations())
    assert len(set(clusters.values())) == 3
    assert queries_in_several_videos(collector.annotations()) == 0


def test_where_nothing_is_judged_there_are_still_clusters() -> None:
    assert clusters_of(AnnotationBuilder("made").annotations()) == {}
    assert queries_in_several_videos(AnnotationBuilder("made").annotations()) == 0


# ------------------------------------------------------------------------------- numbers


def test_numbers_are_those_of_the_tests_on_their_own(runs: list[Evaluation], videos: dict[str, int]) -> None:
    compared = compare(runs, videos, settings=QUICK)
    labels = np.arange(120) // 3
    p = np.stack([sign_flip_test(run.values - runs[0].values, labels, resamples=400).p for run in runs[1:]])
    told = {(d.metric, d.system): d for d in compared.differences}
    for column, metric in enumerate(METRICS):
        for row, (name, run) in enumerate(zip("bc", runs[1:], strict=True)):
            own = told[metric, name]
            differences = (run.values - runs[0].values)[:, column : column + 1]
            assert own.p == p[row, column]
            assert own.p_corrected == corrected(p)[row, column]
            assert own.difference.value == pytest.approx(differences.mean())
            ends = bootstrap_intervals(differences, labels, resamples=400)[0]
            assert [own.difference.low, own.difference.high] == ends.tolist()
            assert compared.systems[row + 1].means[metric].value == run.means()[metric]


def test_verdicts_say_which_is_better(
    compared: Comparison, runs: list[Evaluation], videos: dict[str, int]
) -> None:
    verdicts = {(d.metric, d.system): d.verdict for d in compared.differences}
    assert {verdicts[metric, "b"] for metric in METRICS} == {"better"}
    assert {verdicts[metric, "c"] for metric in METRICS} == {"no difference shown"}
    turned = compare([runs[1], runs[0]], videos, settings=QUICK)
    assert {d.verdict for d in turned.differences} == {"worse"}


def test_a_difference_is_called_one_where_the_corrected_p_is_at_most_alpha(videos: dict[str, int]) -> None:
    near = [evaluation(name, hits(n, 0.4 + n / 20)) for n, name in enumerate("ab")]
    p = max(d.p_corrected for d in compare(near, videos, settings=QUICK).differences)
    assert 0.01 < p < 0.5
    for alpha, verdicts in ((p, {"better"}), (0.999 * p, {"better", "no difference shown"})):
        told = compare(near, videos, settings=replace(QUICK, alpha=alpha)).differences
        assert {d.verdict for d in told} | {"better"} == verdicts


def test_a_difference_is_none_where_only_the_uncorrected_p_is_small(videos: dict[str, int]) -> None:
    near = [evaluation(name, hits(n, 0.4 + n / 20)) for n, name in enumerate("abc")]
    own = replace(QUICK, correction="bonferroni")
    told = compare(near, videos, settings=own).differences
    number = max(range(len(told)), key=lambda at: told[at].p * (told[at].p_corrected < 1))
    least, most = told[number].p, told[number].p_corrected
    assert 0.01 < least < most < 1
    again = compare(near, videos, settings=replace(own, alpha=(least + most) / 2)).differences[number]
    assert (again.p_corrected, again.verdict) == (most, "no difference shown")


def test_systems_of_several_trainings_are_told_with_the_variance_of_all_of_them(
    videos: dict[str, int],
) -> None:
    values = np.stack([hits(n, 0.4 + 0.1 * (n // 3)) for n in range(9)])
    each = [evaluation(f"{'abc'[n // 3]}-{n % 3}", own) for n, own in enumerate(values)]
    told = compare(each, videos, settings=replace(QUICK, trainings=3))
    systems, labels = values.reshape(3, 3, 120, 3), np.arange(120) // 3
    pooled = pooled_variance([*systems])
    of_pairs = [over_trainings(own - systems[0], labels, pooled.of_difference) for own in systems[1:]]
    p = corrected(np.stack([own.p for own in of_pairs]))
    for column, metric in enumerate(METRICS):
        differences = [d for d in told.differences if d.metric == metric]
        for row, (own, difference) in enumerate(zip(of_pairs, differences, strict=True)):
            assert difference.p == pytest.approx(own.p[column])
            assert difference.p_corrected == pytest.approx(p[row, column])
            ends = [difference.difference.low, difference.difference.high]
            assert ends == pytest.approx(own.ends[column])
        ends = over_trainings(systems[1], labels, pooled).ends[column].clip(0, 1)
        mean = told.systems[1].means[metric]
        assert [mean.low, mean.high] == pytest.approx(ends)


@given(st.permutations(range(3)), st.integers(0, 100))
@settings(deadline=None, max_examples=15)
def test_neither_the_order_of_runs_nor_that_of_queries_matters(order: Sequence[int], seed: int) -> None:
    each = replace(QUICK, baseline="each-pair")
    videos = {f"q{number}": number // 3 for number in range(120)}
    own = [evaluation(name, hits(n, 0.5 + n / 20)) for n, name in enumerate("abc")]
    rng = np.random.default_rng(seed)
    shuffled = []
    for number in order:
        rows = rng.permutation(120)
        ids = tuple(own[number].query_ids[row] for row in rows)
        shuffled.append(replace(own[number], query_ids=ids, values=own[number].values[rows]))
    first, again = compare(own, videos, settings=each), compare(shuffled, videos, settings=each)
    there = {(d.metric, d.system, d.baseline): d for d in again.differences}
    for d in first.differences:
        same, turned = (
            there.get((d.metric, *pair)) for pair in ((d.system, d.baseline), (d.baseline, d.system))
        )
        found = same or turned
        assert found is not None
        assert (found.p, found.p_corrected) == (d.p, d.p_corrected)
        ends = (found.difference.low, found.difference.high)
        assert (d.difference.low, d.difference.high) == (ends if same else (-ends[1], -ends[0]))
        assert found.difference.value == pytest.approx((1 if same else -1) * d.difference.value)


def test_a_metric_has_the_same_numbers_whatever_else_is_asked(
    runs: list[Evaluation], videos: dict[str, int], compared: Comparison
) -> None:
    only = [evaluation(run.run, run.values[:, 1:2], METRICS[1:2]) for run in runs]
    alone = compare(only, videos, settings=QUICK)
    assert list(alone.differences) == [d for d in compared.differences if d.metric == METRICS[1]]


def test_the_family_is_all_pairs_of_a_metric(runs: list[Evaluation], videos: dict[str, int]) -> None:
    for baseline, pairs in (
        ("first", [("b", "a"), ("c", "a")]),
        ("each-pair", [("b", "a"), ("c", "a"), ("c", "b")]),
    ):
        own = replace(QUICK, baseline=baseline, correction="bonferroni")  # type: ignore[arg-type]
        compared = compare(runs, videos, settings=own)
        assert compared.family == len(pairs)
        assert [(d.system, d.baseline) for d in compared.differences] == pairs * 3
        assert all(d.p_corrected == min(1, len(pairs) * d.p) for d in compared.differences)


def test_a_run_compared_with_itself_is_no_different(runs: list[Evaluation], videos: dict[str, int]) -> None:
    compared = compare([runs[0], runs[0]], videos, settings=QUICK)
    assert {(d.p, d.difference.value, d.difference.low, d.difference.high) for d in compared.differences} == {
        (1.0, 0.0, 0.0, 0.0)
    }
    assert not compared.notes
    assert [system.name for system in compared.systems] == ["a", "a #2"]


def test_a_metric_that_applies_to_some_queries_is_told_of_those(videos: dict[str, int]) -> None:
    one, other = hits(1, 0.5), hits(2, 0.5)
    one[:90, 1] = other[:90, 1] = np.nan
    one[:, 2] = other[:, 2] = np.nan
    compared = compare([evaluation("a", one), evaluation("b", other)], videos, settings=QUICK)
    assert compared.metrics == METRICS[:2]
    assert compared.counts == {METRICS[0]: (120, 40), METRICS[1]: (30, 10)}
    assert any("mIoU" in note and "no query" in note for note in compared.notes)
    short = compare(
        [
            replace(evaluation(name, values[90:]), query_ids=tuple(f"q{n}" for n in range(90, 120)))
            for name, values in (("a", one), ("b", other))
        ],
        videos,
        settings=QUICK,
    )
    assert compared.differences[1] == short.differences[1]
    assert "(applies to 30 queries about 10 videos)" in "\n".join(compared.table())


# ------------------------------------------------------------------------------- what is refused or warned of


def test_runs_over_different_queries_are_refused(runs: list[Evaluation], videos: dict[str, int]) -> None:
    fewer = replace(runs[1], query_ids=runs[1].query_ids[1:], values=runs[1].values[1:])
    with pytest.raises(
        UsageError, match=r"a and b .*1 only in the first, 0 only in the second, such as 'q0'"
    ):
        compare([runs[0], fewer], videos, settings=QUICK)


def test_runs_under_different_protocols_are_refused(runs: list[Evaluation], videos: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=r"vcmr@1.*tvr@1"):
        compare([runs[0], replace(runs[1], protocol="tvr@1")], videos, settings=QUICK)


def test_a_metric_that_applies_differently_is_refused(runs: list[Evaluation], videos: dict[str, int]) -> None:
    values = runs[1].values.copy()
    values[5, 1] = np.nan
    with pytest.raises(UsageError, match=r"R@1,IoU=0\.7"):
        compare([runs[0], replace(runs[1], values=values)], videos, settings=QUICK)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (Settings(alpha=0), "alpha"),
        (Settings(alpha=1.5), "alpha"),
        (Settings(alpha=float("nan")), "alpha"),
        (Settings(seed=-1), "seed"),
        (Settings(resamples=0), "give 40"),
        (Settings(resamples=30), "give 40"),
        (Settings(resamples=10**9), "10000000"),
    ],
)
def test_settings_that_cannot_work_are_refused(
    runs: list[Evaluation], videos: dict[str, int], wrong: Settings, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        compare(runs, videos, settings=wrong)


def test_one_run_is_no_comparison(runs: list[Evaluation], videos: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="two or more"):
        compare(runs[:1], videos)


def test_a_query_without_a_cluster_and_names_alike_are_refused(
    runs: list[Evaluation], videos: dict[str, int]
) -> None:
    with pytest.raises(UsageError, match="'q7' has no cluster"):
        compare(runs, {name: video for name, video in videos.items() if name != "q7"}, settings=QUICK)
    with pytest.raises(UsageError, match="all different"):
        compare(runs, videos, names=["x", "x", "y"], settings=QUICK)


def test_few_videos_are_warned_of(runs: list[Evaluation]) -> None:
    compared = compare(runs[:2], {f"q{number}": number % 4 for number in range(120)}, settings=QUICK)
    said = " ".join(compared.notes)
    assert "4 videos are too few" in said
    one = compare(runs, dict.fromkeys(runs[0].query_ids, 0), settings=QUICK)
    assert "1 video is too few" in " ".join(one.notes)
    assert "In 3 of the 3 comparisons" in said
    assert {d.p for d in compared.differences} <= {n / 16 for n in range(2, 17)}
    assert all(d.exact for d in compared.differences)


def test_enough_videos_are_not_warned_of(compared: Comparison) -> None:
    assert compared.notes == ()


def test_metrics_that_only_some_runs_tell_are_left_out_and_named(
    runs: list[Evaluation], videos: dict[str, int]
) -> None:
    fewer = evaluation("b", runs[1].values[:, 1:][:, ::-1], METRICS[:0:-1])
    compared = compare([runs[0], fewer], videos, settings=QUICK)
    assert compared.metrics == METRICS[1:]
    assert compared.systems[1].means[METRICS[1]].value == runs[1].means()[METRICS[1]]
    assert any(METRICS[0] in note for note in compared.notes)
    with pytest.raises(UsageError, match="no metric in common"):
        compare([runs[0], evaluation("b", runs[1].values, ("x", "y", "z"))], videos, settings=QUICK)


# ------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["runs/xml.jsonl", "runs/rel.jsonl.gz"], ("xml", "rel")),
        (["a/run.json", "b/run.json", "other.json"], ("a/run", "b/run", "other")),
        (["run.json", "b/run.json"], ("run", "b/run")),
        (["x/a/run.json", "y/a/run.json"], ("x/a/run", "y/a/run")),
        (["run.json", "run.json", "run #2.json"], ("run", "run #2", "run #2 #2")),
        (["run.json", "run.jsonl"], ("run", "run #2")),
        (["model.v1.json", "model.v2.json"], ("model.v1", "model.v2")),
        (["", "."], ("run", "run #2")),
        (["/a/run.json", "/a/run.json"], ("/a/run", "/a/run #2")),
    ],
)
def test_names_are_short_and_no_two_alike(files: list[str], names: tuple[str, ...]) -> None:
    assert names_of(files) == names


@pytest.mark.slow
@given(st.lists(st.from_regex(r"(/?[ab#2 .]{0,3}){1,3}", fullmatch=True), min_size=1, max_size=6))
def test_no_files_get_names_alike(files: list[str]) -> None:
    names = names_of(files)
    assert len(set(names)) == len(files) == len(names)
    assert all(names)


# ------------------------------------------------------------------------------- shown


def test_the_table_says_what_was_done(compared: Comparison) -> None:
    text = "\n".join(compared.table())
    flat = " ".join(text.split())
    assert text.startswith("vcmr@1: 120 queries about 40 videos\n")
    row = next(line for line in compared.table() if line.startswith("  b "))
    told = compared.differences[0]
    mean = compared.systems[1].means[METRICS[0]]
    assert row.split() == [
        "b",
        f"{100 * mean.value:.2f}",
        f"[{100 * mean.low:.2f},",
        f"{100 * mean.high:.2f}]",
        "a",
        f"{100 * told.difference.value:+.2f}",
        f"[{100 * told.difference.low:+.2f},",
        f"{100 * told.difference.high:+.2f}]",
        f"{told.p_corrected:.4f}",
        "better",
    ]
    assert "400 bootstrap draws of whole videos" in flat
    assert "paired randomisation test" in flat
    assert "Holm's correction for the 2 comparisons of each metric" in flat
    assert "not that the runs are equal" in flat
    assert max(map(len, compared.table())) <= 110


def test_the_table_says_how_many_queries_are_missing_and_what_becomes_of_them(
    runs: list[Evaluation], videos: dict[str, int]
) -> None:
    zero = compare([runs[0], replace(runs[1], missing=("q3", "q4"))], videos, settings=QUICK)
    assert "  Judged queries not answered: 2 by b; they count as 0" in zero.table()
    dropped = compare([replace(run, missing=("q998", "q999")) for run in runs], videos, settings=QUICK)
    assert "  Judged queries not answered: 2 by a, 2 by b, 2 by c; they are left out" in dropped.table()
    assert "they count as 0" in zero.to_latex()
    assert "400 times (all patterns if fewer)" in zero.to_latex()


def test_queries_by_themselves_are_told_as_such(runs: list[Evaluation]) -> None:
    several = compare([*runs, runs[1]], None, names=("x", "y"), settings=replace(QUICK, trainings=2))
    assert "variance of trainings and of queries together" in " ".join(several.table())
    compared = compare(runs, None, settings=QUICK)
    assert compared.clustered_by == "query"
    assert compared.table()[0] == "vcmr@1: 120 queries"
    assert "whole queries" in compared.to_latex()


def test_json_has_the_numbers_of_the_comparison(compared: Comparison) -> None:
    told = json.loads(json.dumps(compared.to_json(), allow_nan=False))
    assert (told["queries"], told["videos"], told["family"]["size"]) == (120, 40, 2)
    assert [system["name"] for system in told["systems"]] == ["a", "b", "c"]
    assert [pair["system"] for pair in told["comparisons"]] == ["b", "c"]
    for pair in told["comparisons"]:
        assert list(pair["metrics"]) == list(METRICS)
    first = compared.differences[0]
    assert told["comparisons"][0]["metrics"][METRICS[0]] == {
        "difference": first.difference.value,
        "low": first.difference.low,
        "high": first.difference.high,
        "p": first.p,
        "p_corrected": first.p_corrected,
        "exact": first.exact,
        "differing_videos": first.differing_videos,
        "verdict": "better",
    }


def cells_of(latex: str) -> list[list[str]]:
    """The cells of a table's rows, heads included."""
    body = latex[latex.index(r"\toprule") : latex.index(r"\bottomrule")]
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)&", line.removesuffix(r"\\"))]
        for line in map(str.strip, body.splitlines())
        if line.endswith(r"\\")
    ]


def test_latex_marks_what_a_run_beats_in_both_directions(
    runs: list[Evaluation], videos: dict[str, int]
) -> None:
    better_first = compare([runs[1], runs[0]], videos, settings=QUICK).to_latex()
    assert cells_of(better_first)[1][0] == "(a)~b"
    assert "$^{b}$" in cells_of(better_first)[1][1]
    assert "$^" not in cells_of(better_first)[2][1]
    assert "Only differences to (a) were tested" in better_first
    each = compare(runs, videos, settings=replace(QUICK, baseline="each-pair")).to_latex()
    assert "$^{a,c}$" in cells_of(each)[2][1]
    assert "were tested" not in each


@pytest.mark.parametrize("count", [3, 6])
def test_latex_is_balanced_and_has_a_cell_for_each_run_and_metric(videos: dict[str, int], count: int) -> None:
    metrics = tuple(f"R@{number}" for number in range(count))
    pair = [evaluation(name, np.tile(hits(n, 0.5), 2)[:, :count], metrics) for n, name in enumerate("ab")]
    compared = compare(pair, videos, names=["50%_of {x}", "b&b"], settings=QUICK)
    latex = compared.to_latex()
    rows = cells_of(latex)
    assert {len(row) for row in rows} == ({4} if count == 3 else {3})
    assert len(rows) == (3 if count == 3 else 7)
    assert re.search(r"\{tabular\}\{lc+\}", latex)
    bare = latex.replace(r"\\", "").replace(r"\{", "").replace(r"\}", "")
    assert bare.count("{") == bare.count("}")
    assert bare.replace(r"\$", "").count("$") % 2 == 0
    assert r"50\%\_of \{x\}" in latex and r"b\&b" in latex
    shown = f"{100 * compared.systems[0].means['R@0'].value:.2f}"
    assert shown in rows[1][1]


@given(st.text())
def test_escaped_text_has_nothing_that_latex_obeys(text: str) -> None:
    harmless = (
        r"\\(textbackslash|textasciicircum|textasciitilde|textless|textgreater|textbar|textquotedbl)\{\}"
    )
    left = re.sub(r"\\[{}$&#_%]", "", re.sub(harmless, "", escaped(text)))
    assert not set(left) & set("\\{}$&#_%^~\n\r\x1b")


def test_a_table_is_what_booktabs_wants() -> None:
    made = booktabs(["", "x"], [["a", "1"]], caption="C", label="tab:t", before=["needs it"])
    assert made.splitlines() == [
        "% needs it",
        r"\begin{table}",
        r"  \centering",
        r"  \caption{C}",
        r"  \label{tab:t}",
        r"  \begin{tabular}{lc}",
        r"    \toprule",
        r"     & x \\",
        r"    \midrule",
        r"    a & 1 \\",
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]


def test_a_metric_that_a_run_does_not_tell_is_a_dash_everywhere(
    runs: list[Evaluation], videos: dict[str, int]
) -> None:
    values = runs[1].values.copy()
    values[:, 1] = np.nan
    untold = replace(runs[1], values=values, not_answered=("R@1,IoU=0.7",))
    told = compare([runs[0], untold], videos, settings=QUICK)
    assert (told.metrics, told.not_answered) == (("R@1,IoU=0.5", "mIoU"), ("R@1,IoU=0.7",))
    assert told.to_json()["metrics"]["R@1,IoU=0.7"] is None
    assert "R@1,IoU=0.7  -" in told.table()
    assert any("because not every run answers this task: R@1,IoU=0.7" in note for note in told.notes)
    latex = told.to_latex()
    assert "& R@1,IoU=0.7 \\\\" in latex and latex.count("& -- \\\\") == 2
    only = [replace(e, metrics=e.metrics[1:2], values=e.values[:, 1:2]) for e in (runs[0], untold)]
    with pytest.raises(UsageError, match=r"R@1,IoU=0.7: a run does not answer this task"):
        compare(only, videos, settings=QUICK)
