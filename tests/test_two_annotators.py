"""`benchmarks/two_annotators.py`: clips of sentences, transcripts, and baselines on three videos."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("whenabouts_systems", reason="benchmarks of research")

from benchmarks import two_annotators
from benchmarks.packed import packed_text
from benchmarks.study_outcomes import Outcomes, opened, written
from benchmarks.two_annotators import (
    METRICS,
    SentenceRun,
    Words,
    beside,
    bm25,
    clips_of,
    keep,
    keep_curves,
    outcomes_of,
    queries_of,
    srt,
    table,
    tf_idf,
    validated,
)

from whenabouts.video.cues import read_cue_file
from whenabouts_bench.evaluation.evaluate import evaluate
from whenabouts_bench.formats import write_run
from whenabouts_bench.formats.annotations import AnnotationBuilder, Annotations
from whenabouts_bench.formats.runs import moments_of
from whenabouts_bench.formats.sentences import Sentence

SPOKEN = {
    "dance": (Sentence(0, 10, "A woman dances on a stage."), Sentence(10, 20, "She bows to the people.")),
    "cook": (Sentence(0, 8, "A man cuts an onion."), Sentence(12, 30, "He fries the onion in a pan.")),
    "dive": (Sentence(2, 9, "A man jumps off the board."),),
}


def _truth() -> Annotations:
    builder = AnnotationBuilder("three")
    for video, moments in SPOKEN.items():
        builder.add_video(video, moments[-1].end)
    for number, (text, video, start, end) in enumerate(
        (
            ("the onion is fried in oil", "cook", 12, 30),
            ("a woman dances", "dance", 0, 10),
            ("bows", "dance", 0, 10),
        )
    ):
        builder.add_query(f"q{number}", text)
        builder.judge(f"q{number}", video, start, end)
    return builder.annotations()


def _words() -> Words:
    return Words([sentence.text for sentences in SPOKEN.values() for sentence in sentences])


@pytest.mark.parametrize("ranker", [tf_idf, bm25])
def test_a_baseline_finds_videos_and_sentences_by_their_words(ranker: object) -> None:
    assert callable(ranker)
    run = SentenceRun("words", _truth(), SPOKEN, ranker(_words()))
    found = evaluate(_truth(), run, ["VR R@1", "SVMR R@1,IoU=0.7", "R@1,IoU=0.7"]).means()
    # The word of the third query stands in the sentence after its moment.
    assert found == {"VR R@1": 1.0, "SVMR R@1,IoU=0.7": 2 / 3, "R@1,IoU=0.7": 2 / 3}


def test_a_baseline_answers_from_the_pool_where_another_video_is_right_too() -> None:
    builder = AnnotationBuilder("pools")
    for video, moments in SPOKEN.items():
        builder.add_video(video, moments[-1].end)
    builder.add_query("q", "she jumps off a stage")
    builder.judge("q", "dance", 0, 10)
    builder.judge("q", "dive", 2, 9)
    builder.set_pool("q", ["dance", "dive"])
    truth = builder.annotations()
    run = SentenceRun("words", truth, SPOKEN, tf_idf(_words()), ("VCMR",))
    assert {row.moment.video_id for row in dict(moments_of(run))["q"]} == {"dance", "dive"}
    found = evaluate(truth, run, ["R@1,IoU=0.7"])
    assert found.means() == {"R@1,IoU=0.7": 1.0}
    assert outcomes_of(truth, {("words", "1"): found}).metrics == ("R@1,IoU=0.7",)


def test_what_was_kept_is_printed_beside_what_is_asked_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two_annotators, "OUTCOMES", tmp_path / "kept.csv.xz")
    run = SentenceRun("words", _truth(), SPOKEN, tf_idf(_words()))
    found = evaluate(_truth(), run, METRICS)
    keep(outcomes_of(_truth(), {("TF-IDF", "1"): found}))
    some = queries_of(_truth(), 1)
    keep(outcomes_of(_truth(), {("whenabouts", "1"): evaluate(some, replace(run, truth=some), METRICS)}))
    whole, part = "\n".join(table(opened(tmp_path / "kept.csv.xz"))).split(" queries of ")[1:]
    assert "| TF-IDF |  | 100.0 (100.0 to 100.0) |" in whole and "whenabouts" not in whole
    assert part.startswith("1 videos") and "| TF-IDF |" in part and "| whenabouts |" in part


def test_the_first_moment_of_each_list_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = SentenceRun("words", _truth(), SPOKEN, tf_idf(_words()))
    write_run(run, tmp_path / "run.jsonl", "jsonl")
    kept = tmp_path / "first.csv.xz"
    given = ["two_annotators", "answers", str(kept), f"XML@2={tmp_path / 'run.jsonl'}"]
    monkeypatch.setattr("sys.argv", given)
    two_annotators.main()
    header, *rows = packed_text(kept).splitlines()
    assert header == "system,seed,list,query,video,start,end"
    assert "XML,2,VCMR,q0,cook,12.00,30.00" in rows and len(rows) == 3


def test_what_trainings_found_in_validation_is_read_from_their_folders(tmp_path: Path) -> None:
    for seed, hit in (("one", 1.0), ("two", 0.0)):
        rows = [
            {"query_id": f"v{video}#0", "metrics": {**dict.fromkeys(METRICS, hit), "VR R@1": float(video)}}
            for video in (1, 0)
        ]
        (tmp_path / seed).mkdir()
        (tmp_path / seed / "validation.queries.jsonl").write_text("\n".join(map(json.dumps, rows)))
    untrained = Outcomes(
        METRICS, ("v0#0", "v1#0"), ("v0", "v1"), {("words", "1"): np.zeros((2, len(METRICS)))}
    )
    runs = [f"XML@1={tmp_path / 'one'}", f"XML@4={tmp_path / 'two'}"]
    found = validated(runs, untrained)
    assert (found.queries, found.systems, found.seeds("XML")) == (
        untrained.queries,
        ("words", "XML"),
        ("1", "4"),
    )
    assert found.of("XML")[:, :, :2].tolist() == [[[0, 1], [1, 1]], [[0, 0], [1, 0]]]
    with pytest.raises(SystemExit, match="XML=one: is not NAME@SEED=PLACE"):
        validated(["XML=one"], untrained)
    file = tmp_path / "two" / "validation.queries.jsonl"
    file.write_text(file.read_text().replace("v0#0", "v2#0"))
    with pytest.raises(SystemExit, match="two: validated on other queries"):
        validated(runs, untrained)


def test_outcomes_and_curves_of_trainings_stay_beside_those_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two_annotators, "CURVES", tmp_path / "curves.csv")

    def train(seed: str, hit: float) -> str:
        (tmp_path / seed).mkdir(exist_ok=True)
        losses, metrics = {"own_cosine": hit, "total": 1.0}, dict.fromkeys(METRICS, hit)
        line = {"epoch": 1, "step": 8, "losses": losses, "metrics": metrics}
        (tmp_path / seed / "curves.jsonl").write_text(json.dumps(line))
        return f"XML@{seed}={tmp_path / seed}"

    keep_curves([train("2", 0.5), train("3", 0.25)])
    keep_curves([train("1", 0.125), train("3", 0.75)])
    lines = (tmp_path / "curves.csv").read_text().splitlines()
    assert lines[0].startswith("system,seed,epoch,step,own_cosine,total,VR R@1,")
    assert [line.split(",")[1:7] for line in lines[1:]] == [
        ["1", "1", "8", "0.1250", "1.0000", "12.50"],
        ["2", "1", "8", "0.5000", "1.0000", "50.00"],
        ["3", "1", "8", "0.7500", "1.0000", "75.00"],
    ]

    def outcomes(**values: float) -> Outcomes:
        cells = {("XML", seed[1:]): np.full((1, 1), value) for seed, value in values.items()}
        return Outcomes(("VR R@1",), ("v0#0",), ("v0",), cells)

    file = tmp_path / "kept.csv.xz"
    written(outcomes(s2=0.5, s3=0.25), file)
    both = beside(file, outcomes(s1=0.125, s3=0.75))
    assert (both.seeds("XML"), both.of("XML").ravel().tolist()) == (("1", "2", "3"), [0.125, 0.5, 0.75])


def test_trainings_are_held_against_xml_and_a_copy_is_none() -> None:
    random = np.random.default_rng(0)
    queries = tuple(f"q{number}" for number in range(60))
    values = {
        (system, seed): (random.random((60, 1)) < share).astype(np.float64)
        for system, share in (("XML", 0.3), ("XML +PR", 0.9))
        for seed in "12"
    }
    made = Outcomes(("VR R@1",), queries, queries, values)
    lines = list(table(made))
    difference = 100 * (made.of("XML +PR") - made.of("XML")).mean()
    assert any(line.startswith(f"| XML +PR - XML | 2 | {difference:+.1f} (") for line in lines)
    with pytest.raises(SystemExit, match="XML-3: every query has the values of XML-1"):
        replace(made, values={**values, ("XML", "3"): values["XML", "1"]})


def test_single_trainings_are_told_by_what_the_first_has_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_annotators, "PAIRS", (("CroCs", "MMN"),))
    queries = tuple(f"q{number}" for number in range(40))
    found = np.arange(40)[:, None] % 4 < 2
    values = {("CroCs", "1"): np.ones((40, 1)), ("MMN", "1"): found.astype(float)}
    lines = list(table(Outcomes(("VR R@1",), queries, queries, values)))
    assert any(line.startswith("| CroCs - MMN | +50.0 (+") for line in lines)


def test_tf_idf_is_its_formula() -> None:
    scores = tf_idf(_words())(["onion pan"])[0]
    idf = [math.log(6 / (1 + times)) + 1 for times in (2, 1)]
    asked = np.array(idf) / math.hypot(*idf)
    # "a man cuts an onion": a stands in four sentences, the others but the onion in one or two.
    rest = {"a": 4, "man": 2, "cuts": 1, "an": 1}
    lengths = math.hypot(idf[0], *(math.log(6 / (1 + times)) + 1 for times in rest.values()))
    assert scores[2] == pytest.approx(asked[0] * idf[0] / lengths)
    assert scores[0] == 0


def test_bm25_counts_a_word_each_time_it_is_said() -> None:
    words = Words(["an onion, an onion and a pan", "an onion and a pan"])
    idf, lengths = math.log(1 + 0.5 / 2.5), words.counts.sum(1)
    norms = 1.2 * (0.25 + 0.75 * lengths / lengths.mean())
    expected = [idf * times * 2.2 / (times + norm) for times, norm in zip((2, 1), norms, strict=True)]
    np.testing.assert_allclose(bm25(words)(["onion"])[0], expected)


def test_bm25_is_its_formula() -> None:
    words = _words()
    scores = bm25(words)(["onion onion pan"])
    lengths = words.counts.sum(1)
    idf = {"onion": math.log(1 + 3.5 / 2.5), "pan": math.log(1 + 4.5 / 1.5)}

    def weight(row: int, times: int) -> float:
        return times * 2.2 / (times + 1.2 * (0.25 + 0.75 * float(lengths[row] / lengths.mean())))

    expected = [0, 0, 2 * idf["onion"] * weight(2, 1), (2 * idf["onion"] + idf["pan"]) * weight(3, 1), 0]
    np.testing.assert_allclose(scores[0], expected)


def test_queries_are_made_of_val_2_and_words_of_val_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("val_1", "val_2"):
        video = {"duration": 9.0, "timestamps": [[0, 5]], "sentences": [f"a sentence of {name}"]}
        (tmp_path / f"{name}.json").write_text(json.dumps({"v_aaaaaaaaaaa": video}))

    class Written(Exception):
        pass

    def noted(queries: Annotations, words: Annotations, out: Path) -> None:
        raise Written([queries.queries[0].text, words.queries[0].text])

    monkeypatch.setattr(two_annotators, "write_two_annotators", noted)
    with pytest.raises(Written, match=r"\['a sentence of val_2', 'a sentence of val_1'\]"):
        two_annotators.write(tmp_path, tmp_path / "out")


def test_a_clip_is_the_mean_of_its_sentences_by_their_seconds_and_zero_in_a_pause() -> None:
    vectors = np.eye(2)
    rows = clips_of((Sentence(0, 6, "one"), Sentence(5, 7, "two")), vectors, 14.0)
    both = math.sqrt(0.5)
    assert rows.flatten().tolist() == pytest.approx([1, 0, both, both, 0, 0, 0, 0])


def test_a_transcript_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "cook.srt"
    file.write_text(srt((Sentence(0.5, 61.25, "one"), Sentence(3600, 3700.001, "two"))), encoding="utf-8")
    cues = read_cue_file(file).cues
    assert [(cue.start, cue.end, cue.text) for cue in cues] == [(0.5, 61.25, "one"), (3600, 3700.001, "two")]


def test_queries_of_some_videos_keep_all_videos_to_be_searched() -> None:
    whole = _truth()
    for count in range(4):
        some = queries_of(whole, count)
        assert some.videos == whole.videos
        assert len({some.videos[video].id for video in some.video}) <= count
        assert [some.queries[query].id for query in some.query] == [query.id for query in some.queries]
    assert some.queries == whole.queries
