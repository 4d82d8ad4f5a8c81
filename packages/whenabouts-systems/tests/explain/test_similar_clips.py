"""The clips most similar to the query, inside and outside the right moment: figure 6 (a) of paper 003."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.small_split import TOKENS, WIDTH, save_run, write_split
from tests.small_systems import Chooser, Letters, Pairs, inputs, small_system, write_talk
from tests.uncalibrated import uncalibrated

from whenabouts import Corpus
from whenabouts.types import Moment
from whenabouts.video.thumbnails import encode_jpeg
from whenabouts_systems.explain import Borders, Explained, Explanation
from whenabouts_systems.explain import split as in_split
from whenabouts_systems.explain.answer import explain
from whenabouts_systems.explain.explained import Film, Frame, SimilarClip
from whenabouts_systems.explain.readout import similar_clips
from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.protocol import ClipBatch, QueryBatch, QueryEncoding, VideoEncoding
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.ranking.encoded_corpus import MemoryCorpus
from whenabouts_systems.training.data import ExperimentData
from whenabouts_systems.training.experiment import load_experiment

CLIPS, SECONDS, DURATION = 8, 2.0, 15.0
STREAMS = {"video": 6, "sub": 5}
Array = NDArray[np.float64]


def system(name: str, seed: int, streams: Mapping[str, int] = STREAMS) -> Trained:
    torch.manual_seed(seed)
    settings = {"streams": streams, "query_width": TOKENS, "hidden": 16, "heads": 2}
    model = new_model(name, config_of(name, {**settings, "initializer_range": 0.3})).eval()
    return Trained(name, model, inputs(), Decoding(max_clips=4))


def encoded(
    model: Any, seed: int, streams: Mapping[str, int] = STREAMS
) -> tuple[QueryEncoding, MemoryCorpus]:
    """A query, and a video of 8 clips beside a longer one."""
    torch.manual_seed(seed)
    mask = torch.arange(CLIPS + 3) < torch.tensor([[CLIPS], [CLIPS + 3]])
    clips = {name: torch.randn(2, CLIPS + 3, width) * mask[..., None] for name, width in streams.items()}
    clips["video"][0, 3] = 0
    if "sub" in clips:
        clips["sub"][0, 3] = 0
    queries = QueryBatch(torch.randn(1, 3, TOKENS), torch.ones(1, 3, dtype=torch.bool))
    with torch.no_grad():
        query, videos = model.encode_queries(queries), model.encode_videos(ClipBatch(clips, mask))
    return query, MemoryCorpus.of_block(("v", "w"), videos, [SECONDS] * 2, [DURATION, math.inf])


def cosines(query: QueryEncoding, corpus: MemoryCorpus) -> dict[str, Array]:
    """Stream -> (T,) cosines of the video's clips, one by one; -inf without a key."""
    video = corpus.blocks[0]
    return {
        stream: np.array(
            [
                float(torch.nn.functional.cosine_similarity(query.search[stream][0], keys[0, at], 0))
                if video.key_masks[stream][0, at]
                else -math.inf
                for at in range(CLIPS)
            ]
        )
        for stream, keys in video.keys.items()
    }


def best_of(values: Mapping[str, Array], clips: set[int]) -> dict[tuple[int, str], float]:
    """(clip, stream) -> cosine of the best of some clips in each stream."""
    best = {stream: max(clips, key=lambda at: row[at]) for stream, row in values.items()}
    return {(at, stream): values[stream][at] for stream, at in best.items()}


def of_place(clips: tuple[SimilarClip, ...], place: str) -> dict[tuple[int, str], float]:
    return {
        (round(clip.moment.start / SECONDS), stream): cosine
        for clip in clips
        if clip.place == place
        for stream, cosine in clip.cosines.items()
    }


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["prem_retriever", "reloclnet", "xml"])
def test_the_clips_are_the_best_inside_and_outside_the_true_moment(name: str, seed: int) -> None:
    trained = system(name, seed)
    query, corpus = encoded(trained.model, seed)
    truth, inside = Moment("v", 4.5, 8.0), {2, 3}
    similar = similar_clips(trained, query, corpus, "v", [truth, Moment("w", 0.0, 9.0)], None)
    values = cosines(query, corpus)
    assert of_place(similar, "inside") == pytest.approx(best_of(values, inside), abs=1e-4)
    assert of_place(similar, "outside") == pytest.approx(
        best_of(values, set(range(CLIPS)) - inside), abs=1e-4
    )
    assert {clip.place for clip in similar} == {"inside", "outside"}
    assert all(clip.moment.end == min(clip.moment.start + SECONDS, DURATION) for clip in similar)


@pytest.mark.parametrize("name", ["prem_retriever", "reloclnet", "xml", "hero"])
def test_without_a_moment_the_clips_score_the_video(name: str) -> None:
    streams = {"video": 6}
    trained = system(name, 1, streams)
    query, corpus = encoded(trained.model, 1, streams)
    (clip,) = similar_clips(trained, query, corpus, "v", (), None)
    assert clip.place == "anywhere"
    score = trained.model.score_videos(query, corpus.blocks[0])[0, 0].item()
    assert list(clip.cosines.values()) == pytest.approx([score], abs=1e-4)


def test_a_clip_that_is_the_best_in_both_streams_is_listed_once() -> None:
    trained = system("prem_retriever", 0)
    query, corpus = encoded(trained.model, 0)
    (clip,) = similar_clips(trained, query, corpus, "v", [Moment("v", 2.0, 4.0)], None)[:1]
    assert (clip.moment, clip.place) == (Moment("v", 2.0, 4.0), "inside")
    assert set(clip.cosines) == set(STREAMS)


def test_a_moment_that_covers_the_video_has_no_clip_outside() -> None:
    trained = system("prem_retriever", 0)
    query, corpus = encoded(trained.model, 0)
    similar = similar_clips(trained, query, corpus, "v", [Moment("v", 0.0, DURATION)], None)
    assert {clip.place for clip in similar} == {"inside"}
    assert of_place(similar, "inside") == pytest.approx(
        best_of(cosines(query, corpus), set(range(CLIPS))), abs=1e-4
    )


def test_an_empty_clip_has_no_key_and_is_never_similar() -> None:
    trained = system("prem_retriever", 0)
    query, corpus = encoded(trained.model, 0)
    similar = similar_clips(trained, query, corpus, "v", [Moment("v", 6.0, 8.0)], None)
    assert {clip.place for clip in similar} == {"outside"}


def test_clips_behind_the_end_of_the_video_are_left_out() -> None:
    trained = system("reloclnet", 0)
    query, corpus = encoded(trained.model, 0)
    short = replace(corpus, durations=np.array([5.0, 5.0]))
    similar = similar_clips(trained, query, short, "v", [Moment("v", 0.0, 2.0)], None)
    assert of_place(similar, "outside") == pytest.approx(best_of(cosines(query, corpus), {1, 2}), abs=1e-4)
    assert all(clip.moment.end <= 5.0 for clip in similar)


def test_a_true_moment_behind_the_end_of_the_video_is_no_place() -> None:
    trained = system("prem_retriever", 0)
    query, corpus = encoded(trained.model, 0)
    behind = similar_clips(trained, query, corpus, "v", [Moment("v", DURATION, 30.0)], None)
    assert behind == similar_clips(trained, query, corpus, "v", [], None)
    (inside, *_) = similar_clips(trained, query, corpus, "v", [Moment("v", DURATION - 0.1, 30.0)], None)
    assert (inside.moment.end, inside.place) == (DURATION, "inside")


def test_where_the_video_has_no_truth_the_answered_moment_counts() -> None:
    trained = system("xml", 2)
    query, corpus = encoded(trained.model, 2)
    row = np.zeros(CLIPS)
    along = Borders(row, row, row, row, False, Moment("v", 10.0, 12.0))
    similar = similar_clips(trained, query, corpus, "v", [Moment("w", 0.0, 2.0)], along)
    assert of_place(similar, "inside") == pytest.approx(best_of(cosines(query, corpus), {5}), abs=1e-4)
    with_truth = similar_clips(trained, query, corpus, "v", [Moment("v", 0.0, 2.0)], along)
    assert of_place(with_truth, "inside") == pytest.approx(best_of(cosines(query, corpus), {0}), abs=1e-4)


@pytest.mark.parametrize("model", [Chooser(), Pairs()])
def test_a_system_that_does_not_find_videos_by_clips_has_none(model: Any) -> None:
    clips = ClipBatch({"subtitle": torch.randn(1, 4, 16)}, torch.ones(1, 4, dtype=torch.bool))
    query = model.encode_queries(QueryBatch(torch.randn(1, 3, 16), torch.ones(1, 3, dtype=torch.bool)))
    corpus = MemoryCorpus.of_block(("v",), model.encode_videos(clips), [SECONDS], [8.0])
    trained = Trained("small", model, inputs(), Decoding())
    assert similar_clips(trained, query, corpus, "v", [Moment("v", 0.0, 2.0)], None) == ()


def test_keys_of_a_localizer_find_no_video() -> None:
    keys = {"video": torch.eye(4)[None]}
    mask = torch.ones(1, 4, dtype=torch.bool)
    corpus = MemoryCorpus.of_block(("v",), VideoEncoding(mask, keys, {"video": mask}), [SECONDS], [8.0])
    trained = Trained("small", Pairs(), inputs(), Decoding())
    assert similar_clips(trained, QueryEncoding({"video": torch.ones(1, 4)}), corpus, "v", (), None) == ()


# Explanations ----------------------------------------------------------------------------------------


def test_a_data_set_has_the_clips_of_the_system_that_finds_videos(tmp_path: Path) -> None:
    features = write_split(tmp_path / "features")
    localizer = Trained.from_pretrained(save_run(features, tmp_path / "run"))
    prem = replace(system("prem_retriever", 0, {"vision": WIDTH}), inputs=localizer.inputs)
    experiment = load_experiment(features / "tiny.toml")
    with ExperimentData.open(
        experiment.data, experiment.features, features, inputs=localizer.inputs, splits=("test",)
    ) as material:
        split = material.split("test")
        alone = in_split.InSplit("xml", localizer, split)
        staged = replace(alone, retriever=in_split.InSplit("prem", prem, split))
        explanation = in_split.explain([staged, alone], query_id="q1")
        for trained, explained in zip((prem, localizer), explanation.systems, strict=True):
            with torch.no_grad():
                query = trained.model.encode_queries(split.query_batch([1]))
                videos = trained.model.encode_videos(split.video_batch([1]))
            values = cosines(query, MemoryCorpus.of_block(("v1",), videos, [2.0], [15.5]))
            inside = best_of(values, {1, 2})  # the truth lasts from 2 to 5 s
            assert of_place(explained.similar_clips, "inside") == pytest.approx(inside, abs=1e-4)
            outside = best_of(values, set(range(CLIPS)) - {1, 2})
            assert of_place(explained.similar_clips, "outside") == pytest.approx(outside, abs=1e-4)


@pytest.mark.slow
def test_a_corpus_has_the_clips_of_the_retriever(tmp_path: Path) -> None:
    for number in range(2):
        write_talk(tmp_path, number)
    corpus = Corpus(tmp_path / "my.corpus", encoders=[Letters()], create=True)
    with uncalibrated():
        corpus.add(tmp_path, text=Letters(), processes=1)
        prem, xml = small_system("prem_retriever"), small_system("xml")
        query, moment = "the penguin moves to the north", "talk_001.vtt@10-17"
        staged = explain(corpus, query, xml, retriever=prem, moment=moment).systems[0]
        alone = explain(corpus, query, prem, video="talk_001.vtt").systems[0]
        found = corpus.search(query, 2, model=prem).moments
    assert {clip.place for clip in staged.similar_clips} == {"inside", "outside"}
    (best,) = alone.similar_clips
    assert best.place == "anywhere"
    same = [clip for clip in staged.similar_clips if clip.moment == best.moment]
    assert [clip.cosines for clip in same] == [best.cosines]
    scores = [one.score for one in found if one.moment.video_id == best.moment.video_id]
    assert scores == pytest.approx(list(best.cosines.values()), abs=1e-3)


def explanation(systems: int = 1, seconds: float = 40.0, shape: tuple[int, int] = (64, 36)) -> Explanation:
    """Each system has the most similar clips at other instants, with frames of other colours."""

    def frame(at: float, shade: int) -> Frame:
        return Frame(at, encode_jpeg(np.full((*shape[::-1], 3), shade, dtype=np.uint8)))

    low = np.arange(0.0, seconds, seconds / 10)
    even = np.full(10, 0.1)
    borders = Borders(low, low + seconds / 10, even, even, False, None)
    explained = []
    for number in range(systems):
        inside, outside = ((at + number) * seconds / 10 for at in (2, 7))
        clips = (
            SimilarClip(
                Moment("v", inside, inside + 1), "inside", {"video": 0.83, "sub": 0.4}, frame(inside, 0)
            ),
            SimilarClip(Moment("v", outside, outside + 1), "outside", {"video": 0.5}, frame(outside, 250)),
        )
        explained.append(Explained("run", "xml", None, borders, (), similar_clips=clips))
    plain = 8 // systems
    frames = tuple(frame((at + 0.5) * seconds / plain, 128) for at in range(plain))
    return Explanation("what", "", "v", seconds, (), tuple(explained), Film(frames))


def test_json_and_lines_have_place_times_and_cosines() -> None:
    (clip, _) = explanation().systems[0].similar_clips
    read = json.loads(json.dumps(explanation().to_json()))["systems"][0]["similar_clips"]
    assert read[0] == {
        "video_id": "v", "start": 8.0, "end": 9.0, "place": "inside", "cosines": {"video": 0.83, "sub": 0.4},
    }  # fmt: skip
    assert [one["place"] for one in read] == ["inside", "outside"]
    assert clip.label() == "most like the query, inside: video 0.83, sub 0.40"
    assert f"  {clip.label()}  v@0:08.000-0:09.000" in explanation().lines()
    assert not any("most like" in line for line in replace(explanation(), systems=()).lines())


def test_frames_of_similar_clips_replace_the_closest_ones() -> None:
    told = explanation()
    assert told.film is not None
    film = told.film.with_similar(told.systems[0].similar_clips, "#f0b400")
    assert [frame.seconds for frame in film.frames] == [2.5, 8.0, 12.5, 17.5, 22.5, 28.0, 32.5, 37.5]
    assert [at for at, frame in enumerate(film.frames) if frame.border] == [1, 5]
    assert told.film.with_similar((), "#f0b400") == told.film
    unread = tuple(replace(clip, frame=None) for clip in told.systems[0].similar_clips)
    assert told.film.with_similar(unread, "#f0b400") == told.film


def test_more_similar_clips_than_frames_are_all_shown() -> None:
    told = explanation()
    film = Film((Frame(1.0, b""),)).with_similar(told.systems[0].similar_clips, "#f0b400")
    assert [frame.seconds for frame in film.frames] == [8.0, 28.0]


@pytest.mark.parametrize("systems", [1, 2])
@pytest.mark.parametrize("shape", [(64, 36), (36, 64), (640, 20)])
@pytest.mark.parametrize("curves", [True, False], ids=["", "a retriever alone"])
def test_the_picture_has_their_frames_with_borders_and_labels(
    tmp_path: Path, systems: int, shape: tuple[int, int], curves: bool
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import to_hex

    from whenabouts_systems.explain import picture

    told = explanation(systems, shape=shape)
    if not curves:
        told = replace(told, systems=tuple(replace(system, borders=None) for system in told.systems))
    figure = picture._drawn(told)
    figure.set_dpi(100)
    FigureCanvasAgg(figure)  # one renderer measures all texts
    strips = [axes for axes in figure.axes if axes.images]
    for number, axes in enumerate(strips):
        borders = [to_hex(patch.get_edgecolor()) for patch in axes.patches if patch.get_edgecolor()[3]]
        assert borders == [picture._SIMILAR[number]] * 2
        shades = [round(float(image.get_array()[0, 0, 0]) / 125) for image in axes.images]
        assert sorted(shades) == [0, *[1] * (8 // systems - 2), 2]
        labels = ["".join(one.get_text().split()) for one in axes.texts]
        marked = [label.partition("mostlikethequery,")[2] for label in labels if "mostlike" in label]
        assert [label.partition(":")[0] for label in marked] == ["inside", "outside"]
        boxes = [one.get_window_extent() for one in (*axes.texts, *axes.images)]
        assert not [(a, b) for at, a in enumerate(boxes) for b in boxes[:at] if a.overlaps(b)]
        limits = axes.get_window_extent()
        assert all(limits.x0 - 0.5 <= box.x0 and box.x1 <= limits.x1 + 0.5 for box in boxes)
        assert all(limits.y0 <= box.y0 and box.y1 <= limits.y1 for box in boxes)
    assert len(strips) == systems
    picture.draw(told, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
