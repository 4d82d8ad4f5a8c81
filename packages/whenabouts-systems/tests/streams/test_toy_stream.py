"""A stream of one file goes through the whole product without a change elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.server.conftest import Client
from tests.small_systems import WIDTH, Letters, Shades, inputs
from tests.streams.brightness import Brightness, Loudness, Night
from tests.uncalibrated import uncalibrated

from whenabouts import Corpus
from whenabouts.calibration.measuring import measure
from whenabouts.cli.main import main
from whenabouts.confidence.background import SENTENCES
from whenabouts.confidence.probability import FEWEST_SCORES
from whenabouts.index.reading import FrameBatch, ReadTask, read_file
from whenabouts.index.sampling import FrameSettings
from whenabouts.indexing import plan_index
from whenabouts.server.app import Application
from whenabouts.server.settings import Settings
from whenabouts.streams import register, stream, unregister
from whenabouts.why import why
from whenabouts_systems.explain.answer import explain
from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.inputs import StreamInput
from whenabouts_systems.models.trained import Trained

VIDEOS = ("friday.mp4", "friday.vtt", "frog.webm")


@pytest.fixture(scope="module", autouse=True)
def _registered() -> Iterator[None]:
    for toy in (Brightness(), Night(), Loudness()):
        register(toy)
    yield
    for name in ("brightness", "night", "loudness"):
        unregister(name)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, samples: Path, _registered: None) -> Path:
    """Two videos, indexed by the command with the streams of this folder and the toys."""
    place = tmp_path_factory.mktemp("toy") / "corpus"
    paths = [str(samples / name) for name in VIDEOS]
    with uncalibrated():
        assert main(["index", *paths, "--corpus", str(place), "--brightness", "any", "--processes", "1"]) == 0
    return place


@pytest.fixture(scope="module")
def corpus(place: Path) -> Corpus:
    return Corpus(place, create=False)


def test_index_makes_it_of_frames_of_sound_and_of_another_streams_clips(corpus: Corpus) -> None:
    assert set(corpus.streams) == {"subtitle", "brightness", "night", "loudness"}
    video = corpus.resolve("friday.mp4")
    assert set(video.streams) == set(corpus.streams)
    blocks = {name: corpus.store.clips_of(name, [video.video_id]) for name in corpus.streams}
    assert len(blocks["brightness"]) >= 10
    dark = [text for text in blocks["brightness"].text if text.startswith(("black", "dark"))]
    assert len(blocks["night"]) == len(dark)
    assert set(blocks["loudness"].text) <= {"noise", "silence"} and len(blocks["loudness"])


def test_a_second_run_has_nothing_to_do_and_a_new_stream_is_added_to_what_is_there(
    place: Path, corpus: Corpus, samples: Path
) -> None:
    paths = [samples / name for name in VIDEOS]
    assert not plan_index(corpus, paths).work
    plan = plan_index(corpus, paths, vision=Shades())
    assert {work.reasons for work in plan.work} == {("pictures added",)}
    estimate = plan.estimate
    # Measuring afterwards alone takes so long.
    assert estimate.processor_seconds > 7 and estimate.disk_bytes > 0


@pytest.mark.slow
def test_one_pass_samples_frames_for_all_streams(samples: Path) -> None:
    small, large = FrameSettings(1.0, 32), FrameSettings(0.5, 64)
    alone, both = (
        [batch for batch in read_file(_task(samples, frames)) if isinstance(batch, FrameBatch)]
        for frames in ((small,), (small, large))
    )
    assert {batch.settings for batch in both} == {small, large}
    for one, other in zip(alone, [batch for batch in both if batch.settings == small], strict=True):
        assert one.clips == other.clips
        for image, same in zip(one.images, other.images, strict=True):
            assert min(image.shape[:2]) == min(same.shape[:2]) == 32
            assert abs(image.mean() - same.mean()) < 2


def _task(samples: Path, frames: tuple[FrameSettings, ...]) -> ReadTask:
    return ReadTask(0, samples / "friday.mp4", "media", frames=frames, cues=False)


def test_search_finds_by_it_and_shows_its_evidence(
    place: Path, corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    block = corpus.store.clips_of("brightness", [corpus.resolve("friday.mp4").video_id])
    result = corpus.search(block.text[3], k=3, streams="brightness")
    assert set(result.moments[0].evidence) == {"brightness"}
    assert main(["search", block.text[3], "--corpus", str(place), "--stream", "brightness", "--json"]) != 2
    found = json.loads(capsys.readouterr().out)["moments"]
    assert found[0]["start"] == pytest.approx(result.moments[0].moment.start, abs=1e-3)
    main(["search", block.text[3], "--corpus", str(place), "--stream", "brightness", "--table"])
    assert "brightness" in capsys.readouterr().out


@pytest.mark.slow
def test_rest_and_the_page_take_it(corpus: Corpus, tmp_path: Path) -> None:
    application = Application(corpus, Settings(cache=tmp_path))
    client = Client(application, {})
    try:
        assert "brightness" in client.json("/api/stats")["streams"]
        found = client.json("/api/search", query="bright noon", stream="brightness")["data"][0]
        assert found["labels"]["brightness"] == stream("brightness").evidence_label
        curves = client.json(f"/api/videos/{found['video_id']}/curves", query="bright noon")["curves"]
        assert len(curves["brightness"]["start"]) >= 10
    finally:
        application.service.close()


def test_doctor_stats_and_why_take_it(
    place: Path, corpus: Corpus, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["doctor", "--corpus", str(place), "--json"])
    findings = {one["name"]: one for one in json.loads(capsys.readouterr().out)["findings"]}
    assert findings["stream brightness"]["well"]
    assert main(["stats", "--corpus", str(place), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["streams"]["brightness"]["encoder"] == Letters.name
    lines = why(corpus, "bright noon", "friday.mp4@0-1").lines()
    assert any("brightness" in line for line in lines)


@pytest.mark.slow
def test_calibrate_measures_it(corpus: Corpus) -> None:
    report = measure(corpus.store, corpus.encoders.for_queries(), SENTENCES[:FEWEST_SCORES], made=2)
    assert report.calibration.streams["brightness"].clips >= 10
    assert report.calibration.group("brightness", "").scale is not None


@pytest.mark.slow
def test_a_trained_system_reads_it_and_explains_its_answer(place: Path, corpus: Corpus) -> None:
    settings: dict[str, Any] = {"streams": {"brightness": WIDTH}, "query_width": WIDTH, "hidden": 32}
    made_by = StreamInput(WIDTH, True, Letters.name, Letters.fingerprint)
    torch.manual_seed(0)
    model = new_model("xml", config_of("xml", settings)).eval()
    reads = inputs(streams={"brightness": made_by}, clip_seconds=0.5)
    trained = Trained("xml", model, reads, Decoding(max_clips=6))
    own = Corpus(place, create=False, encoders=[Letters()])
    (system,) = explain(own, "bright noon", trained, k=3).systems
    assert system.borders is not None
    assert "brightness" in own.search("bright noon", 1, model=trained).moments[0].evidence


def test_a_corpus_with_a_stream_that_is_not_installed_is_still_searched(place: Path) -> None:
    unregister("brightness")
    try:
        own = Corpus(place, create=False, encoders=[Letters()])
        assert own.search("bright noon", k=1, streams="brightness").moments[0].evidence["brightness"].text
    finally:
        register(Brightness())
