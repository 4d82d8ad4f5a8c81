"""What trainings answered, as a small file, and the differences of a study."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks import study_outcomes
from benchmarks.packed import packed_text, write_packed
from benchmarks.studies import Study, _asking, load_studies
from benchmarks.study_outcomes import (
    Outcomes,
    _of_run,
    differences,
    gathered,
    joined,
    main,
    mean_rows,
    opened,
    tables,
    written,
)

from whenabouts.types import Moment, ScoredMoment, UsageError
from whenabouts_bench.evaluation.several_trainings import over_trainings, pooled_variance
from whenabouts_bench.evaluation.significance import corrected
from whenabouts_bench.formats import read_annotations, write_run
from whenabouts_bench.formats.runs import MemoryRun
from whenabouts_systems.training.experiment import load_experiment

STUDY = load_studies()["crocs-controls"]


def made() -> Outcomes:
    random = np.random.default_rng(0)
    queries = tuple(f"v{number // 2}#{number}" for number in range(200))
    luck = random.random((200, 2))
    values = {
        (system, seed): (luck + 0.1 * random.random((200, 2)) + gain > 0.8).astype(np.float64)
        for system, gain in (("mmn", 0.0), ("mmn_more", 0.0), ("crocs_first", 0.3))
        for seed in ("1", "2", "3")
    }
    videos = tuple(query.partition("#")[0] for query in queries)
    return Outcomes(("R@1,IoU=0.3", "nDCG@10,IoU=0.3"), queries, videos, values)


def test_a_written_file_is_read_as_it_was_and_is_the_same_each_time(tmp_path: Path) -> None:
    outcomes = made()
    outcomes.values["mmn", "1"][:, 1] *= 0.1234
    written(outcomes, tmp_path / "a.csv.xz")
    written(outcomes, tmp_path / "b.csv.xz")
    assert (tmp_path / "a.csv.xz").read_bytes() == (tmp_path / "b.csv.xz").read_bytes()
    again = opened(tmp_path / "a.csv.xz")
    assert (again.metrics, again.queries, again.videos) == (
        outcomes.metrics,
        outcomes.queries,
        outcomes.videos,
    )
    assert list(again.values) == list(outcomes.values)
    for training, values in outcomes.values.items():
        np.testing.assert_array_equal(again.values[training], values)


def test_a_copy_of_a_run_is_no_second_training() -> None:
    outcomes = made()
    values = {**outcomes.values, ("mmn", "4"): outcomes.values["mmn", "2"].copy()}
    with pytest.raises(SystemExit, match="mmn-4: every query has the values of mmn-2; a copy is no second"):
        replace(outcomes, values=values)
    values["mmn_more", "4"] = values.pop(("mmn", "4"))  # another system may answer alike
    assert replace(outcomes, values=values).seeds("mmn_more") == ("1", "2", "3", "4")


def test_differences_are_told_of_the_trainings_that_both_systems_have() -> None:
    outcomes = made()
    lines = list(tables(STUDY, outcomes))
    better = next(line for line in lines if line.startswith("| crocs_first - mmn "))
    gain = 100 * (outcomes.of("crocs_first") - outcomes.of("mmn"))[:, :, 0].mean()
    assert f"{gain:+.1f} (+" in better
    assert any(line.startswith("| mmn_more - mmn | 3 |") for line in lines)
    del outcomes.values["mmn_more", "2"]  # type: ignore[attr-defined]
    change = 100 * (outcomes.of("mmn_more") - outcomes.of("mmn", ["1", "3"]))[:, :, 0].mean()
    assert any(line.startswith(f"| mmn_more - mmn | 2 | {change:+.1f} (") for line in tables(STUDY, outcomes))
    del outcomes.values["mmn", "3"]  # type: ignore[attr-defined]
    assert not any(line.startswith("| mmn_more - mmn ") for line in tables(STUDY, outcomes))


def unlike() -> Outcomes:
    """Systems that differ little, of trainings that differ by their seed; queries of a video are alike."""
    random = np.random.default_rng(1)
    queries = tuple(f"v{number // 10}#{number}" for number in range(200))
    videos = tuple(query.partition("#")[0] for query in queries)
    luck = np.repeat(random.random((20, 2)), 10, axis=0)
    values = {
        (system, seed): (luck + 0.3 * random.random((200, 2)) + gain + luckier > 0.9).astype(np.float64)
        for system, gain in (("a", 0.0), ("b", 0.06), ("c", 0.04), ("d", 0.0))
        for seed, luckier in (("1", 0.0), ("2", 0.02), ("3", 0.02 if system == "d" else 0.1))
    }
    return Outcomes(("R@1,IoU=0.3", "nDCG@10,IoU=0.3"), queries, videos, values)


def test_differences_have_the_p_of_all_trainings_and_videos_corrected_over_the_pairs() -> None:
    outcomes = unlike()
    pairs = [("b", "a"), ("c", "a")]
    clusters = np.unique(outcomes.videos, return_inverse=True)[1]
    # The fourth system is in no pair, and tells how much trainings vary as well.
    pooled = pooled_variance([outcomes.of(system) for system in "abcd"]).of_difference
    values = [outcomes.of(system) - outcomes.of(baseline) for system, baseline in pairs]
    found = [over_trainings(own, clusters, pooled) for own in values]
    p = corrected(np.stack([own.p for own in found]))
    assert (p > np.stack([own.p for own in found])).any()
    lines = list(differences(pairs, outcomes, "abcd"))[2:]
    for line, (system, baseline), own, result, least in zip(lines, pairs, values, found, p, strict=True):
        cells = [
            f"{100 * mean:+.1f} ({100 * low:+.1f} to {100 * high:+.1f}; p = {value:.2g})"
            for mean, (low, high), value in zip(own.mean(axis=(0, 1)), result.ends, least, strict=True)
        ]
        assert line == f"| {system} - {baseline} | 3 | {' | '.join(cells)} |"


def test_means_have_intervals_over_trainings_and_videos() -> None:
    outcomes = unlike()
    clusters = np.unique(outcomes.videos, return_inverse=True)[1]
    pooled = pooled_variance([outcomes.of(system) for system in "abcd"])
    ends = over_trainings(outcomes.of("b"), clusters, pooled).ends
    cells = [
        f"{100 * mean:.1f} ({100 * low:.1f} to {100 * high:.1f})"
        for mean, (low, high) in zip(outcomes.of("b").mean(axis=(0, 1)), ends, strict=True)
    ]
    assert f"| b | 3 | {' | '.join(cells)} |" in list(mean_rows(outcomes))


def test_values_stand_beside_their_queries_whatever_the_order_of_answers(tmp_path: Path) -> None:
    study = replace(load_studies()["two-stages"], tested=("VR R@1",))
    truth = tmp_path / "truth.jsonl"
    row = '{{"vid_name": "{0}", "duration": 9, "desc": "{0}", "desc_id": {1}, "ts": [0, 3]}}\n'
    truth.write_text(row.format("b", 2) + row.format("a", 1))
    right = {"2": [ScoredMoment(Moment("a", 0, 3), 1.0)], "1": [ScoredMoment(Moment("a", 0, 3), 1.0)]}
    write_run(MemoryRun.from_run(right), tmp_path / "answers.json", "jsonl")
    queries, values = _of_run(study, read_annotations(truth), tmp_path, ())
    assert dict(zip(queries, values[:, 0].tolist(), strict=True)) == {"1": 1.0, "2": 0.0}


def test_trainings_gathered_before_stay_beside_new_ones() -> None:
    whole = made()
    before = {training: values for training, values in whole.values.items() if training[1] != "2"}
    more = {training: values for training, values in whole.values.items() if training[1] != "1"}
    both = joined(STUDY, replace(whole, values=more), replace(whole, values=before))
    assert list(both.values) == list(whole.values)
    assert list(tables(STUDY, both)) == list(tables(STUDY, whole))
    other = {training: 1 - values for training, values in more.items()}
    with pytest.raises(SystemExit, match="-3: answers otherwise"):
        joined(STUDY, replace(whole, values=before), replace(whole, values=other))
    with pytest.raises(SystemExit, match="other metrics, queries"):
        joined(STUDY, whole, replace(whole, queries=whole.queries[::-1]))


def test_trainings_of_a_study_answer_the_file_that_another_study_asks(tmp_path: Path) -> None:
    trained, asking = (load_studies()[name] for name in ("relevant-pairs", "relevant-pairs-elsewhere"))
    same = {system.name: (system.experiment, system.settings) for system in trained.systems}
    for system in asking.systems:
        assert (system.experiment, system.settings) == same[system.name]
        kept = tmp_path / "experiment.toml"
        kept.write_text(load_experiment(system.experiment, system.settings).to_toml())
        own, asked = (load_experiment(path) for path in (kept, _asking(asking, tmp_path)))
        assert asked.data == replace(own.data, test=asking.asks)
        assert {**asked.tables(), "data": {}} == {**own.tables(), "data": {}}
    features = Path("features")
    assert trained.judgements(tmp_path, features) == features / "pairs_test.jsonl"
    assert asking.judgements(tmp_path, features) == features / "pairs_didemo_test.jsonl"
    assert trained.answers(tmp_path, "answers.json") == tmp_path / "answers.json"
    assert asking.answers(tmp_path, "answers.json") == tmp_path / "pairs_didemo_test_answers.json"


def test_a_training_that_cannot_tell_what_is_tested_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = load_studies()["two-stages"]
    truth = tmp_path / "truth.jsonl"
    truth.write_text('{"vid_name": "a", "duration": 9, "desc": "b", "desc_id": 1, "ts": [0, 3]}\n')
    for system in ("retriever", "xml"):
        (tmp_path / f"{system}-1").mkdir()
        (tmp_path / f"{system}-1" / "answers.json").touch()

    def of_run(study: Study, truth: object, run: Path, queries: object) -> tuple[tuple[str], np.ndarray]:
        if run.name.startswith("retriever"):
            raise UsageError("it holds VR alone")
        return ("1",), np.ones((1, len(study.tested)))

    monkeypatch.setattr(study_outcomes, "_of_run", of_run)
    outcomes = gathered(study, tmp_path, tmp_path, ["1"], truth)
    assert (list(outcomes.values), outcomes.videos) == ([("xml", "1")], ("a",))
    assert "retriever-1 is left out: it holds VR alone" in capsys.readouterr().out
    (tmp_path / "xml-1" / "answers.json").unlink()
    with pytest.raises(SystemExit, match="answers what is tested"):
        gathered(study, tmp_path, tmp_path, ["1"], truth)


def test_a_study_that_tests_nothing_is_refused(tmp_path: Path) -> None:
    for study in (replace(STUDY, tested=()), replace(STUDY, measure="truths")):
        with pytest.raises(SystemExit, match=r"tests no metric; .*--table"):
            gathered(study, tmp_path, tmp_path, ["1"])


def test_a_place_that_cannot_be_written_is_refused_before_the_trainings_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ["gather", "prem-retriever", str(tmp_path), str(tmp_path), "--to", str(tmp_path / "no" / "a.xz")]
    monkeypatch.setattr("sys.argv", ["study_outcomes", *asked])
    with pytest.raises(SystemExit, match=r"a\.xz: cannot be written there"):
        main()


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("nosuch", "a.csv.xz"), "nosuch: no such study; there are activitynet"),
        (("crocs-controls", "none.csv.xz"), "no file of outcomes"),
        (("crocs-controls", "empty.csv.xz"), "no file of outcomes"),
        (("prem-retriever", "a.csv.xz"), "has no row of prem-retriever"),
    ],
)
def test_a_table_of_nothing_is_refused(
    asked: tuple[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(made(), tmp_path / "a.csv.xz")
    (tmp_path / "empty.csv.xz").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["study_outcomes", "table", *asked])
    with pytest.raises(SystemExit, match=message):
        main()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: "{}", "not enough values to unpack"),
        (lambda text: text.replace("query,video", "id,video"), "not those of outcomes"),
        (lambda text: text + text.splitlines()[2] + "\n", "is there twice"),
        (lambda text: text + "q99,v1\n", "inhomogeneous"),
        (lambda text: text + "\n", "index out of range"),
        (lambda text: text[:-3] + "one", "could not convert"),
    ],
    ids=["another kind", "head", "twice", "cut off", "blank line", "word"],
)
def test_outcomes_with_a_fault_are_refused_in_one_line(
    change: Callable[[str], str], message: str, tmp_path: Path
) -> None:
    written(made(), tmp_path / "a.csv.xz")
    write_packed(tmp_path / "b.csv.xz", change(packed_text(tmp_path / "a.csv.xz")))
    with pytest.raises(SystemExit, match=rf"b.csv.xz: no file of outcomes.*{message}"):
        opened(tmp_path / "b.csv.xz")
