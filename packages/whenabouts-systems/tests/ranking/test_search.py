"""Searching with a trained system: as exact as scoring every video, and always up to date."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.hub_server import fetch_from_server
from tests.ranking.found_moments import distinct, spans_of
from tests.small_systems import (
    DEEDS,
    WIDTH,
    Chooser,
    Letters,
    Pairs,
    PairsConfig,
    inputs,
    small_system,
    small_xml,
    write_talk,
)

from whenabouts import Corpus
from whenabouts.confidence.probability import Thresholds
from whenabouts.encoders import EncoderUnavailable
from whenabouts.index.keys import Keys, known_systems, remove_keys
from whenabouts.index.lock import CorpusBusy
from whenabouts.index.records import EncoderMismatch, StreamInfo
from whenabouts.index.store import Store
from whenabouts.intake.files import FormatError
from whenabouts.types import UsageError
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.inputs import Inputs, StreamInput
from whenabouts_systems.models.protocol import QueryEncoding, SpanScores, VideoEncoding
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.ranking.calibrators import Temperature
from whenabouts_systems.ranking.confidence import TrainedConfidence
from whenabouts_systems.trained_search import search as trained_search
from whenabouts_systems.trained_search.even_grid import videos_on_grid
from whenabouts_systems.trained_search.indexed_corpus import unpacked
from whenabouts_systems.trained_search.opened import IndexedSystem, check_features, check_fit
from whenabouts_systems.trained_search.search import trained_on

QUERY = "the penguin moves to the north"
SILENT = Path(__file__).parents[4] / "samples" / "videos" / "flower.webm"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return small_xml().save_pretrained(tmp_path / "run")


def one_by_one(corpus: Corpus, trained: Trained, query: str, out: Path, k: int) -> list[tuple[Any, ...]]:
    """The k best moments by plain loops over each video alone: (score, video, start, end)."""
    from whenabouts_systems.features import open_features

    corpus.export_features("subtitle", 2.0, out)
    model, found = trained.model, []
    with open_features(out) as source, torch.no_grad():
        asked = model.encode_queries(trained.inputs.queries(Letters().encode_tokens([query])))
        for record in corpus.records():
            clips = trained.inputs.clips([{"subtitle": source.get(record.video_id)}])
            video = model.encode_videos(clips)
            score = float(model.score_videos(asked, video)[0, 0]) * model.video_weight
            spans = model.score_spans(asked, video)
            for first, last in itertools.product(range(clips.mask.shape[1]), repeat=2):
                if 0 <= last - first < 6:
                    total = score + float(spans.start[0, first] + spans.end[0, last])
                    assert record.duration is not None
                    end = min(2.0 * (last + 1), record.duration)
                    found.append((total, record.video_id, 2.0 * first, end))
    found.sort(key=lambda one: (-one[0], *one[1:]))
    return distinct(found, k)


@pytest.mark.slow
def test_the_answer_is_that_of_plain_loops_over_all_videos(corpus: Corpus, tmp_path: Path) -> None:
    trained = small_xml()
    expected = one_by_one(corpus, trained, QUERY, tmp_path / "features", 10)
    found = corpus.search(QUERY, 10, model=trained)
    assert spans_of(found) == [one[1:] for one in expected]
    np.testing.assert_allclose([one.score for one in found.moments], [one[0] for one in expected], atol=2e-2)


@pytest.mark.slow
def test_an_answer_says_where_it_comes_from_and_that_nobody_knows_how_sure_it_is(
    corpus: Corpus, run: Path
) -> None:
    result = corpus.search(QUERY, 5, model=run)
    assert result.answer == "unsure"
    assert "run is, has not been measured" in result.doubt
    assert result.calibration is None
    for found in result.moments:
        assert found.confidence is None
        (piece,) = found.evidence.values()
        assert piece.stream == "subtitle"
        assert found.moment.start <= piece.start < piece.end <= found.moment.end
        assert piece.text in found.text or not piece.text
    assert any(found.text for found in result.moments)


def test_the_evidence_is_the_clip_of_the_moment_whose_key_is_nearest(corpus: Corpus) -> None:
    trained = small_xml()
    found = corpus.search(QUERY, 1, model=trained).moments[0]
    rows = next(
        video.streams
        for video in videos_on_grid(corpus.store, ["subtitle"], 2.0, [corpus.resolve(found.moment.video_id)])
    )
    with torch.no_grad():
        asked = trained.model.encode_queries(trained.inputs.queries(Letters().encode_tokens([QUERY])))
        keys = trained.model.encode_videos(trained.inputs.clips([rows])).keys["subtitle"][0]
    scores = (keys @ asked.search["subtitle"][0]).numpy()
    first, last = int(found.moment.start // 2), int(np.ceil(found.moment.end / 2)) - 1
    best = first + int(scores[first : last + 1].argmax())
    assert found.evidence["subtitle"].start == 2.0 * best
    assert found.evidence["subtitle"].score == pytest.approx(scores[best], abs=1e-3)


@pytest.mark.parametrize("count", [1, 3, 5])
def test_nearest_keys_choose_the_videos_that_score_best(corpus: Corpus, count: int) -> None:
    trained = small_xml()
    corpus.encode(trained)
    finder = trained_on(corpus, trained)
    asked = finder.localizer.encode(QUERY)
    vectors = {name: rows[0].numpy() for name, rows in asked.search.items()}
    indexed, _ = finder.localizer.corpus()
    scores = {}
    for kept in indexed.kept(np.arange(len(indexed.ids))):
        encoding = unpacked([kept])
        scores[kept.video_id] = float(trained.model.score_videos(asked, encoding)[0, 0])
    expected = sorted(scores, key=lambda name: (-scores[name], name))[:count]
    rows, _ = indexed.nearest(vectors, count)
    assert [indexed.ids[row] for row in rows] == expected
    in_memory = indexed.select(np.arange(len(indexed.ids)))
    assert torch.equal(indexed.select(rows).blocks[0].mask.sum(1), in_memory.take(rows).mask.sum(1))
    without = indexed.allowed(sorted(set(scores) - {expected[0]}))
    assert rows[0] not in indexed.nearest(vectors, count, without)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("system", "part_bytes", "parts"), [("xml", None, [8]), ("xml", 1, [1] * 8), ("reloclnet", None, [8])]
)
def test_few_candidates_find_what_many_find(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch, system: str, part_bytes: int | None, parts: list[int]
) -> None:
    trained = small_system(system)
    everything = spans_of(corpus.search(QUERY, 3, model=trained))
    looked_at: list[int] = []
    score_spans = trained.model.score_spans

    def counted(queries: QueryEncoding, videos: VideoEncoding) -> SpanScores:
        looked_at.append(len(videos))
        scores: SpanScores = score_spans(queries, videos)
        return scores

    monkeypatch.setattr(trained.model, "score_spans", counted)
    monkeypatch.setattr(trained_search, "CANDIDATE_VIDEOS", 8)
    monkeypatch.setattr(trained_search, "EXACT_VIDEOS", 6)
    if part_bytes is not None:
        monkeypatch.setattr(trained_search, "_PART_BYTES", part_bytes)
    assert spans_of(corpus.search(QUERY, 3, model=trained)) == everything
    assert looked_at[: len(parts)] == parts
    assert sum(looked_at[len(parts) :]) == 6


@pytest.mark.slow
def test_filters_and_k_hold(corpus: Corpus, run: Path) -> None:
    found = corpus.search(QUERY, 1000, within="talk_003.vtt", model=run)
    assert {one.moment.video_id for one in found.moments} == {corpus.resolve("talk_003.vtt").video_id}
    assert spans_of(corpus.search(QUERY, 2, within="talk_003.vtt", model=run)) == spans_of(found)[:2]
    for one, other in itertools.combinations(found.moments, 2):
        assert one.moment.overlap(other.moment) == 0
    assert corpus.search(QUERY, where="camera=none", model=run).answer == "no_match"


def test_streams_cannot_be_chosen_for_a_trained_system(corpus: Corpus, run: Path) -> None:
    with pytest.raises(UsageError, match="searches its own streams"):
        corpus.search(QUERY, streams="subtitle", model=run)


@pytest.mark.slow
def test_new_changed_and_removed_videos_are_followed(corpus: Corpus, folder: Path, run: Path) -> None:
    corpus.search(QUERY, model=run)
    (info,) = known_systems(corpus.store)
    before = Keys(corpus.store, info).marks()
    write_talk(folder, 20)
    write_talk(folder, 4, again="again and again ")
    corpus.add(folder, processes=1)
    corpus.search(QUERY, model=run)
    after = Keys(corpus.store, info).marks()
    assert set(after) - set(before) == {corpus.resolve("talk_020.vtt").video_id}
    changed = [name for name in before if before[name] != after[name]]
    assert changed == [corpus.resolve("talk_004.vtt").video_id]
    gone = corpus.resolve("talk_007.vtt").video_id
    corpus.remove("talk_007.vtt")
    keys = corpus.store.read_side(info.table("subtitle"), ["video_id"])["video_id"].to_pylist()
    assert gone not in keys
    assert gone not in Keys(corpus.store, info).marks()
    found = corpus.search(QUERY, 100, model=run)
    assert gone not in {one.moment.video_id for one in found.moments}


@pytest.mark.slow
def test_what_was_encoded_piece_by_piece_equals_what_was_encoded_at_once(
    corpus: Corpus, folder: Path, run: Path, tmp_path: Path
) -> None:
    corpus.search(QUERY, model=run)
    write_talk(folder, 20)
    corpus.add(folder, processes=1)
    fresh = Corpus(shutil.copytree(corpus.location, tmp_path / "fresh.corpus"), encoders=[Letters()])
    whole = small_xml().save_pretrained(tmp_path / "another place")
    remove_keys(fresh.store, known_systems(fresh.store)[0])
    assert spans_of(corpus.search(QUERY, 20, model=run)) == spans_of(fresh.search(QUERY, 20, model=whole))


@pytest.mark.slow
@pytest.mark.parametrize("writes", [1, 2, 3, 5])
def test_a_killed_run_leaves_nothing_that_is_used(
    corpus: Corpus, run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, writes: int
) -> None:
    expected = spans_of(corpus.search(QUERY, 20, model=small_xml()))
    twin = Corpus(corpus.location, encoders=[Letters()])
    monkeypatch.setattr("whenabouts_systems.trained_search.search_keys._VIDEOS_AT_A_TIME", 3)
    left, write = [writes], Store.replace_in_side

    def dies(self: Store, *arguments: Any) -> None:
        if left[0] == 0:
            raise MemoryError("killed")
        left[0] -= 1
        write(self, *arguments)

    other = small_xml(seed=1)
    with monkeypatch.context() as broken:
        broken.setattr(Store, "replace_in_side", dies)
        with pytest.raises(MemoryError):
            twin.search(QUERY, model=other)
    corpus.refresh()
    (info,) = (one for one in known_systems(corpus.store) if one.system == other.fingerprint)
    keys = Keys(corpus.store, info)
    for name in keys.marks():  # whatever is there is whole
        rows = corpus.store.read_side(info.table("subtitle"), ["video_id"], [name])
        assert len(rows) > 0
    fresh = Corpus(corpus.location, encoders=[Letters()])
    again = fresh.search(QUERY, 20, model=other)
    corpus.refresh()
    assert len(keys.marks()) == 9
    counts = corpus.store.read_side(info.table("subtitle"), ["video_id", "index"]).to_pylist()
    assert len({(row["video_id"], row["index"]) for row in counts}) == len(counts)
    assert spans_of(again) != expected  # another system
    assert spans_of(again) == spans_of(corpus.search(QUERY, 20, model=other))


@pytest.mark.slow
def test_a_reader_beside_a_writer_says_what_is_not_searched(corpus: Corpus, folder: Path, run: Path) -> None:
    corpus.search(QUERY, model=run)
    write_talk(folder, 20)
    corpus.add(folder, processes=1)
    new = corpus.resolve("talk_020.vtt").video_id
    reader = Corpus(corpus.location, encoders=[Letters()])
    with Corpus(corpus.location).writing():
        result = reader.search(QUERY, 1000, model=run)
        assert any("1 video not yet encoded with run" in note for note in result.notes)
        assert new not in {one.moment.video_id for one in result.moments}
        assert result.moments
    result = reader.search(QUERY, 1000, model=run)
    assert new in {one.moment.video_id for one in result.moments}
    assert not result.notes


def test_a_first_use_beside_a_writer_is_told_to_wait(corpus: Corpus, run: Path) -> None:
    reader = Corpus(corpus.location, encoders=[Letters()])
    with Corpus(corpus.location).writing(), pytest.raises(CorpusBusy):
        reader.search(QUERY, model=run)


@pytest.mark.slow
def test_a_replaced_folder_is_another_system_and_the_old_keys_go(corpus: Corpus, run: Path) -> None:
    first = spans_of(corpus.search(QUERY, 20, model=run))
    small_xml(seed=1).save_pretrained(run)
    second = spans_of(corpus.search(QUERY, 20, model=run))
    assert first != second
    assert second == spans_of(corpus.search(QUERY, 20, model=small_xml(seed=1)))
    assert [one.system for one in known_systems(corpus.store)] == [small_xml(seed=1).fingerprint]
    assert not [name for name in corpus.store.sides if small_xml().fingerprint in name]


def test_a_cut_off_checkpoint_is_named(corpus: Corpus, run: Path) -> None:
    weights = run / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(FormatError, match=r"model\.safetensors: cut off"):
        corpus.search(QUERY, model=run)
    assert not known_systems(corpus.store)


def test_a_checkpoint_of_another_encoder_is_refused_and_both_are_named(corpus: Corpus) -> None:
    other = StreamInput(WIDTH, True, "other-16", f"other weights={'b' * 64}")
    with pytest.raises(
        EncoderMismatch, match=r"subtitle: trained on other-16 .*b{12}.*here it is letters-16"
    ):
        corpus.search(QUERY, model=small_xml(streams={"subtitle": other}))
    query = StreamInput(WIDTH, True, Letters.name, f"letters weights={'c' * 64}:tokens")
    with pytest.raises(EncoderMismatch, match=r"another query encoder: trained on letters-16 .*c{12}"):
        corpus.search(QUERY, model=small_xml(query=query))
    assert not known_systems(corpus.store)


def test_a_stream_that_the_corpus_lacks_is_named(corpus: Corpus) -> None:
    told = {name: StreamInput(WIDTH, True, Letters.name) for name in ("subtitle", "vision")}
    with pytest.raises(UsageError, match=r"reads the streams subtitle, vision; .*lacks vision; index with"):
        corpus.search(QUERY, model=small_xml(streams=told))


def test_what_a_checkpoint_does_not_say_is_noted(corpus: Corpus) -> None:
    untold = small_xml(streams={"subtitle": StreamInput(WIDTH)})
    notes = corpus.search(QUERY, model=untold).notes
    assert notes == (
        "xml: stream subtitle: the system does not say which encoder it was trained with; "
        "taken for letters-16",
    )


@pytest.mark.slow
def test_queries_of_an_unnamed_encoder_take_one_of_the_corpus_that_fits(corpus: Corpus) -> None:
    expected = corpus.search(QUERY, 3, model=small_xml())
    found = corpus.search(QUERY, 3, model=small_xml(query=StreamInput(WIDTH)))
    assert spans_of(found) == spans_of(expected)
    assert found.notes[0].endswith("does not say which encoder it was trained with; taken for letters-16")
    wide = small_xml(query=StreamInput(WIDTH + 1))
    with pytest.raises(
        EncoderMismatch, match=r"17 values .*available are letters-16 \(16\).*--encoder query=NAME"
    ):
        corpus.search(QUERY, model=wide)


def test_an_encoder_of_queries_that_has_moved_is_known_by_its_weights(corpus: Corpus) -> None:
    moved = StreamInput(WIDTH, True, "/gone/letters", f"{Letters.fingerprint}:tokens")
    assert corpus.search(QUERY, 3, model=small_xml(query=moved)).moments
    with pytest.raises(EncoderUnavailable, match="/gone/letters"):
        corpus.search(QUERY, model=small_xml(query=StreamInput(WIDTH, True, "/gone/letters")))


def test_one_encoder_by_two_names_is_imported_by_that_of_the_corpus(corpus: Corpus) -> None:
    named = small_xml(streams={"subtitle": StreamInput(WIDTH, True, "other")})
    with pytest.raises(EncoderMismatch, match="import with --encoder subtitle=letters-16"):
        corpus.search(QUERY, model=named)


LINE = f"letters weights={'a' * 64} dimension=16"


@pytest.mark.parametrize(
    ("told", "wrong", "noted"),
    [
        (StreamInput(16, True, "letters-16", LINE), False, False),
        (StreamInput(16, True, "elsewhere/letters", LINE), False, False),  # the weights decide
        (StreamInput(16, True, "letters-16", f'{{"weights_sha256": "{"a" * 64}"}}'), False, False),
        (StreamInput(16, True, "letters-16", f'{{"weights_sha256": "{"b" * 64}"}}'), True, False),
        (StreamInput(16, True, "letters-16"), False, False),
        (StreamInput(16, True, "other"), True, False),
        (StreamInput(16), False, True),
        (StreamInput(17, True, "letters-16", LINE), True, False),
    ],
)
def test_the_weights_decide_then_the_name(told: StreamInput, wrong: bool, noted: bool) -> None:
    problem, note = check_features(told, "letters-16", LINE, 16)
    assert (bool(problem), bool(note)) == (wrong, noted)


@pytest.mark.parametrize(
    ("settings", "about", "noted"),
    [
        ({"clip_seconds": 2.0}, {"imported from": "best.ckpt"}, True),
        ({"clip_seconds": 2.0, "frame_at": 0.5}, {"imported from": "best.ckpt"}, False),
        ({"clip_seconds": 2.0, "clip_frames": 8.0}, {"imported from": "best.ckpt"}, False),
        ({"clip_seconds": 2.0}, {}, False),
        ({}, {"imported from": "best.ckpt"}, False),
    ],
)
def test_a_released_system_tells_of_clips_that_are_their_first_frames(
    settings: dict[str, float], about: dict[str, str], noted: bool, tmp_path: Path
) -> None:
    corpus = Corpus(tmp_path / "corpus", create=True)
    corpus.store.add_stream(StreamInfo("vision", "seen", "seen:1", WIDTH, settings))
    own = Inputs(StreamInput(WIDTH), {"vision": StreamInput(WIDTH, True, "seen")}, clip_seconds=2.0)
    trained = Trained("pairs", Pairs(), own, Decoding(), about=about)
    notes = check_fit(corpus.store, trained, "run")
    assert any("index the videos into a new corpus" in note for note in notes) == noted


def test_a_system_without_keys_looks_where_the_untrained_search_looks(corpus: Corpus) -> None:
    trained = Trained("pairs", Pairs(), inputs(), Decoding(max_clips=3))
    found = corpus.search("the glacier breaks at night", 3, model=trained).moments
    assert found[0].evidence.keys() == {"pairs"}
    assert "glacier" in found[0].text


def test_a_system_without_keys_takes_candidates_of_the_untrained_search(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trained_search, "EXACT_VIDEOS", 2)
    monkeypatch.setattr("whenabouts.search.candidates.CANDIDATE_VIDEOS", 1)
    trained = Trained("pairs", Pairs(), inputs(), Decoding(max_clips=3))
    found = corpus.search("the glacier breaks at night", 4, model=trained).moments
    (expected,) = corpus.searcher().retrieval.videos("the glacier breaks at night", ["subtitle"])
    assert {one.moment.video_id for one in found} == {expected}
    assert len(found) > 1


def test_the_untrained_search_says_which_video_is_right_where_no_system_does(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spans score alike in all videos; the best clip of a video is found behind many of a longer one."""
    trained = Trained("pairs", Pairs(), inputs(), Decoding(max_clips=1))
    trained.model.config, trained.model.video_weight = PairsConfig(scale=0.0), 20.0
    expected = corpus.search("the glacier breaks at night", 9, model=trained).moments
    monkeypatch.setattr("whenabouts.search.candidates.NEAREST_CLIPS", 1)
    found = corpus.search("the glacier breaks at night", 9, model=trained).moments
    assert [one.moment for one in found] == [one.moment for one in expected]
    assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=1e-2)
    of_query = Letters().encode_text(["the glacier breaks at night"])[0]
    best = {
        video.id: 20 * float((corpus.store.clips_of("subtitle", [video.id]).vectors @ of_query).max())
        for video in corpus.videos()
    }
    assert found[0].score == pytest.approx(max(best.values()), abs=1e-2)
    for one in found:
        assert one.score == pytest.approx(best[one.moment.video_id], abs=1e-2)


def test_a_system_that_only_chooses_videos_answers_whole_videos(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = Trained("chooser", Chooser(), inputs(), Decoding())
    everything = corpus.search(QUERY, 9, model=trained).moments
    (info,) = known_systems(corpus.store)
    assert info.distance == "dot"
    for one in everything:
        record = corpus.resolve(one.moment.video_id)
        assert (one.moment.start, one.moment.end) == (0.0, record.duration)
    monkeypatch.setattr(trained_search, "EXACT_VIDEOS", 3)
    assert corpus.search(QUERY, 1, model=trained).moments == everything[:1]


@pytest.mark.slow
def test_threads_share_a_loaded_system(corpus: Corpus, run: Path) -> None:
    expected = corpus.search(QUERY, 5, model=run)
    twin = corpus.beside()
    assert twin.search(QUERY, 5, model=run) == expected
    assert twin._loaded is corpus._loaded


def test_encoding_tells_how_far_it_is_and_what_there_is(corpus: Corpus, run: Path) -> None:
    told: list[tuple[int, int]] = []
    assert corpus.encode(run, progress=lambda done, of: told.append((done, of))) == 9
    assert told[-1] == (9, 9)
    told.clear()
    assert corpus.encode(run, progress=lambda done, of: told.append((done, of))) == 9
    assert not told  # nothing was new


# How sure an answer is ----------------------------------------------------------------------------

UNRELATED = tuple(f"the {one} {deed}" for one in ("kettle", "mirror", "tunnel") for deed in DEEDS)


def calibrate(run: Path, **changes: object) -> TrainedConfidence:
    """A calibration beside a checkpoint: confidence is one half two spreads above chance."""
    told: dict[str, Any] = {
        "fingerprint": Trained.from_pretrained(run).fingerprint,
        "system": "xml",
        "definition": "margin",
        "calibrator": Temperature(2.0, 1.0),
        "iou": 0.5,
        "unrelated": UNRELATED,
        "thresholds": Thresholds(0.6, 0.1),
        "about": {"split": "validation"},
        **changes,
    }
    kept = TrainedConfidence(**told)
    kept.save(run)
    return kept


@pytest.mark.slow
def test_a_calibrated_system_says_how_sure_its_moments_are(corpus: Corpus, run: Path) -> None:
    plain = corpus.search(QUERY, 6, model=run)
    best = [corpus.search(text, 1, model=run).moments[0].score for text in UNRELATED]
    low, median, high = np.quantile(best, [0.25, 0.5, 0.75])
    kept = calibrate(run)
    found = corpus.search(QUERY, 6, model=run)
    assert spans_of(found) == spans_of(plain)
    expected = kept.calibrator([(one.score - median) / (high - low) for one in plain.moments])
    assert [one.confidence for one in found.moments] == pytest.approx(expected.tolist(), abs=1e-9)
    assert "confidence was measured on validation, not on this corpus" in found.notes


@pytest.mark.slow
def test_a_calibration_comes_along_from_a_hub(
    corpus: Corpus, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrate(run)
    here = corpus.search(QUERY, 6, model=run)
    fetch_from_server(run, "me/xml", tmp_path / "cache", monkeypatch)
    there = corpus.search(QUERY, 6, model="me/xml")
    assert [one.confidence for one in there.moments] == [one.confidence for one in here.moments]
    assert all(one.confidence is not None for one in there.moments)


@pytest.mark.slow
def test_moments_that_are_less_sure_are_left_out(corpus: Corpus, run: Path) -> None:
    calibrate(run)
    found = corpus.search(QUERY, 6, model=run)
    sure = [one.confidence or 0.0 for one in found.moments]
    least = (sure[1] + sure[2]) / 2
    some = corpus.search(QUERY, 6, model=run, min_confidence=least)
    assert spans_of(some) == spans_of(found)[:2]
    none = corpus.search(QUERY, 6, model=run, min_confidence=1.0)
    assert (none.moments, none.answer) == ((), "no_match")
    assert not any("uncalibrated" in note for note in none.notes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("thresholds", "answer"),
    [((0.0, 0.0), "match"), ((1.0, 0.0), "unsure"), ((1.0, 1.0), "no_match")],
)
def test_the_answer_is_parted_by_the_thresholds_of_the_calibration(
    corpus: Corpus, run: Path, thresholds: tuple[float, float], answer: str
) -> None:
    calibrate(run, thresholds=Thresholds(*thresholds), calibrator=Temperature(0.0, 1e9))
    found = corpus.search(QUERY, 3, model=run)
    assert found.answer == answer
    assert bool(found.doubt) == (answer == "unsure")
    assert "has not been measured" not in found.doubt


@pytest.mark.slow
def test_what_chance_scores_is_kept_with_the_corpus_until_its_videos_change(
    corpus: Corpus, folder: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrate(run)
    asked: list[str] = []
    whole = IndexedSystem.encode

    def noted(self: IndexedSystem, text: str) -> QueryEncoding:
        asked.append(text)
        return whole(self, text)

    monkeypatch.setattr(IndexedSystem, "encode", noted)
    first = corpus.search(QUERY, 3, model=run)
    assert asked == [QUERY, *UNRELATED]
    asked.clear()
    again = Corpus(tmp_path / "my.corpus", encoders=[Letters()]).search(QUERY, 3, model=run)
    assert asked == [QUERY]
    assert [one.confidence for one in again.moments] == [one.confidence for one in first.moments]
    write_talk(folder, 20)
    corpus.add(folder, text=Letters(), processes=1)
    asked.clear()
    corpus.search(QUERY, 3, model=run)
    assert asked == [QUERY, *UNRELATED]
    calibrate(run, unrelated=UNRELATED[:9])
    asked.clear()
    corpus.search(QUERY, 3, model=run)
    assert asked == [QUERY, *UNRELATED[:9]]


@pytest.mark.slow
def test_the_top_score_alone_asks_nothing_else(corpus: Corpus, run: Path) -> None:
    kept = calibrate(run, definition="top", unrelated=())
    found = corpus.search(QUERY, 3, model=run)
    expected = kept.calibrator([one.score for one in found.moments])
    assert [one.confidence for one in found.moments] == pytest.approx(expected.tolist())


@pytest.mark.slow
def test_too_few_sentences_tell_no_confidence_and_say_so(corpus: Corpus, run: Path) -> None:
    calibrate(run, unrelated=UNRELATED[:3])
    found = corpus.search(QUERY, 3, model=run)
    assert {one.confidence for one in found.moments} == {None}
    assert any(note.startswith("no confidence: only 3 unrelated queries") for note in found.notes)
    assert found.answer == "unsure"


def test_the_calibration_of_another_checkpoint_is_refused_and_named(corpus: Corpus, run: Path) -> None:
    calibrate(run, fingerprint="0123456789abcdef")
    with pytest.raises(UsageError, match=r"calibration\.json: is the calibration of another checkpoint"):
        corpus.search(QUERY, 3, model=run)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["xml", "reloclnet"])
def test_a_video_without_words_is_not_found_by_a_system_that_reads_words_alone_and_that_is_told(
    corpus: Corpus, tmp_path: Path, name: str
) -> None:
    trained = small_system(name)
    usual = corpus.search(QUERY, k=50, model=trained)
    assert not any("no subtitle" in note for note in usual.notes)
    (tmp_path / "more").mkdir()
    shutil.copy(SILENT, tmp_path / "more" / "silent.webm")
    corpus.add(tmp_path / "more", text=Letters(), processes=1)
    assert len(corpus.videos()) == 10
    found = corpus.search(QUERY, k=50, model=trained)
    assert spans_of(found) == spans_of(usual)
    (note,) = [note for note in found.notes if "no subtitle" in note]
    assert note == f"1 of 10 videos have no subtitle and cannot be found by {name}"
