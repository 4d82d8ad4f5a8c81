"""Answers in Python: a sequence, a table, and what a notebook shows."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from whenabouts import Corpus, Moment, ScoredMoment, SearchResult
from whenabouts.index.records import VideoRecord


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory, samples: Path) -> Path:
    folder = tmp_path_factory.mktemp("notebook")
    shutil.copy2(samples / "friday.mp4", folder)
    (folder / "friday.vtt").write_text(
        "WEBVTT\n\n00:01.000 --> 00:03.000\nThe crown &lt;script&gt;alert(1)&lt;/script&gt; jewels.\n"
    )
    (folder / "talk.vtt").write_text("WEBVTT\n\n00:01.000 --> 00:03.000\nThe crown was varnished.\n")
    (folder / "facts.jsonl").write_text('{"path": "friday.mp4", "title": "His <b>Girl</b> & Friday"}\n')
    return folder


@pytest.fixture(scope="module")
def corpus(videos: Path) -> Corpus:
    made = Corpus(videos / "my.corpus", create=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("whenabouts.calibration.measuring.is_due", lambda store, known: False)
        made.add(videos, metadata_file=videos / "facts.jsonl", processes=1)
    return made


@pytest.mark.slow
def test_the_nouns_import_from_the_top_without_pytorch() -> None:
    program = (
        "import sys\n"
        "from whenabouts import Corpus, Evidence, Judgement, Moment, Qrels, Query, Run, ScoredMoment\n"
        "from whenabouts import SearchOptions, SearchResult, UsageError, Video, WhenaboutsError\n"
        "import whenabouts\n"
        "assert set(whenabouts.__all__) <= set(dir(whenabouts))\n"
        "print(sorted({'torch', 'pandas', 'transformers', 'av'} & sys.modules.keys()))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_an_answer_is_a_sequence_of_moments_with_path_and_title(corpus: Corpus, videos: Path) -> None:
    result = corpus.search("the crown")
    assert len(result) == len(result.moments) == 2
    assert list(result) == [result[0], result[1]] and result[-1] == result[1]
    assert result[:1] == (result[0],)
    friday = next(scored for scored in result if scored.path == str(videos / "friday.mp4"))
    assert friday.title == "His <b>Girl</b> & Friday"
    assert (friday.video_id, friday.start, friday.end) == (
        friday.moment.video_id,
        friday.moment.start,
        friday.moment.end,
    )
    with pytest.raises(IndexError):
        result[2]


def test_an_answer_is_a_table(corpus: Corpus) -> None:
    result = corpus.search("the crown")
    table = result.to_arrow()
    assert table.column("start").to_pylist() == [moment["start"] for moment in result.to_json()["moments"]]
    assert table.column("streams").to_pylist() == [["subtitle"], ["subtitle"]]
    empty = SearchResult("x", "no_match", ())
    assert empty.to_arrow().schema == table.schema
    # Not among what tests install: pyarrow loads pandas wherever it is, in every program that is started.
    pytest.importorskip("pandas")
    frame = result.to_pandas()
    assert frame["rank"].tolist() == [1, 2]
    assert set(frame["title"]) == {scored.title for scored in result}
    assert list(frame.columns) == table.column_names
    assert len(empty.to_pandas()) == 0


@pytest.mark.slow
def test_without_pandas_the_remedy_is_named() -> None:
    program = (
        "import importlib.abc, sys\n"
        "class Absent(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name.split('.')[0] == 'pandas': raise ModuleNotFoundError(name, name='pandas')\n"
        "sys.meta_path.insert(0, Absent())\n"
        "from whenabouts import SearchResult, UsageError\n"
        "try: SearchResult('x', 'no_match', ()).to_pandas()\n"
        "except UsageError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "pip install 'whenabouts[notebook]'" in done.stdout, done.stderr


def test_a_notebook_shows_pictures_and_escapes_what_files_say(corpus: Corpus) -> None:
    html = corpus.search("the <i>crown</i>")._repr_html_()
    assert "<script>" not in html and "&lt;script&gt;alert(1)" in html
    assert "His &lt;b&gt;Girl&lt;/b&gt; &amp; Friday" in html
    assert "the &lt;i&gt;crown" in html
    (picture,) = re.findall(r'src="data:image/jpeg;base64,([^"]+)"', html)  # the transcript has none
    assert base64.b64decode(picture).startswith(b"\xff\xd8")


def test_a_notebook_numbers_places_as_the_table_does(corpus: Corpus) -> None:
    html = corpus.search("crown", all=True, skip=1)._repr_html_()
    assert html.startswith("<div><p><b>1 moment for “crown”") and ">2</td>" in html


def test_a_moment_on_an_object_store_has_its_address() -> None:
    scored = ScoredMoment(Moment("film", 1.0, 2.5), 0.0)
    record = VideoRecord("film", "s3://films/a b.mp4")
    result = SearchResult("x", "match", (scored,), {"film": record})
    assert result.link(scored) == "s3://films/a%20b.mp4#t=1.000,2.500"


@pytest.mark.slow
def test_a_file_that_was_changed_has_no_picture_in_a_notebook(videos: Path, tmp_path: Path) -> None:
    path = tmp_path / "friday.mp4"
    for name in ("friday.mp4", "friday.vtt"):
        shutil.copy2(videos / name, tmp_path)
    corpus = Corpus(tmp_path / "my.corpus", create=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("whenabouts.calibration.measuring.is_due", lambda store, known: False)
        corpus.add(path, processes=1)
    result = corpus.search("the crown")
    assert "data:image" in result._repr_html_()
    os.utime(path, (1, 1))
    assert "data:image" not in result._repr_html_()
    path.unlink()
    assert "friday.mp4" in result._repr_html_() and "data:image" not in result._repr_html_()
