"""`whenabouts search` with output for users and for programs."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

import pytest
from rich.cells import cell_len
from tests.uncalibrated import uncalibrated

from whenabouts.cli import search
from whenabouts.cli.terminal import console, print_json

Whenabouts = Callable[..., Any]

MOMENT_KEYS = {
    "rank",
    "video_id",
    "path",
    "start",
    "end",
    "score",
    "word",
    "confidence",
    "chance_percentile",
    "evidence",
    "text",
    "link",
}


def test_json_is_what_the_formats_page_says(whenabouts: Whenabouts) -> None:
    done = whenabouts("search", "the crown jewels", "-k", "5")
    answer = done.json
    assert done.code == 0
    assert done.err == ""
    assert set(answer) == {
        "query",
        "understood",
        "like",
        "answer",
        "word",
        "confidence_interval",
        "moments",
        "notes",
        "calibration",
        "searched",
        "places",
    }
    assert answer["query"] == "the crown jewels"
    assert answer["answer"] == "match"
    assert 1 < len(answer["moments"]) <= 5
    for place, moment in enumerate(answer["moments"], 1):
        assert set(moment) == MOMENT_KEYS
        assert moment["rank"] == place
        assert isinstance(moment["score"], float)
        assert 0 <= moment["confidence"] <= 1
        assert 0 <= moment["start"] < moment["end"]
        assert Path(moment["path"]).is_file()
        assert moment["link"].endswith(f"#t={moment['start']:.3f},{moment['end']:.3f}")
        assert set(moment["evidence"]) == {"subtitle"}
        for piece in moment["evidence"].values():
            assert set(piece) == {"score", "start", "end", "text", "box", "recognised"}
            assert piece["text"] in moment["text"]
            assert moment["start"] <= piece["start"] < piece["end"] <= moment["end"]
    keys = [(-m["score"], m["video_id"], m["start"]) for m in answer["moments"]]
    assert keys == sorted(keys)


def test_a_table_names_video_span_sureness_and_the_line(whenabouts: Whenabouts) -> None:
    done = whenabouts("search", "crown jewels", "--table")
    assert done.code == 0
    assert "friday.mp4" in done.out
    assert "0:04.300 - 0:06.000" in done.out
    assert "%" in done.out
    assert "Somebody must've stolen the crown jewels" in done.out
    assert "{" not in done.out


def test_nothing_of_the_kind_is_no_match_with_exit_code_one(whenabouts: Whenabouts) -> None:
    done = whenabouts("search", "negotiating fishing quotas in parliament")
    assert done.code == 1
    assert done.json["answer"] == "no_match"
    table = whenabouts("search", "negotiating fishing quotas in parliament", "--table")
    assert table.code == 1
    # The pictures were not searched, so the answer does not mention them.
    assert table.out.startswith("Nothing like it in the words of this corpus.")
    assert "pictures were not searched for what they show (index with --vision" in table.out
    assert done.json["searched"]["not_searched"]["vision"] > 0
    of_words = whenabouts("search", "negotiating fishing quotas", "--stream", "subtitle", "--table")
    assert of_words.out.startswith("Nothing like it in this corpus.") and "pictures" not in of_words.out


@pytest.mark.parametrize("k", [1, 2, 1000])
def test_at_most_k_moments(whenabouts: Whenabouts, k: int) -> None:
    assert len(whenabouts("search", "telescope", "-k", str(k)).json["moments"]) <= k


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["-k", "0"], "ask for 1 to 1000"),
        (["-k", "-3"], "ask for 1 to 1000"),
        (["-k", "1001"], "ask for 1 to 1000"),
        (["-k", "some"], "invalid int"),
        (["--min-confidence", "1.5"], "0 to 1"),
        (["--min-confidence", "-0.1"], "0 to 1"),
        (["--min-confidence", "nan"], "0 to 1"),
        (["--min-confidence", "high"], "invalid float"),
        (["--stream", "smell"], "subtitle"),
        (["--within", "nowhere.mp4"], "whenabouts show"),
        (["--within", "twin.vtt"], "give the id"),
        (["--after", "yesterday"], "2024-05-01"),
        (["--before", "2024-13-01"], "2024-05-01"),
        (["--where", "year"], "KEY=VALUE"),
        (["--where", "=2020"], "KEY=VALUE"),
        (["--where", "duration>=abc"], "'abc' is not a number; durations are in seconds"),
        (["--json", "--table"], "not allowed with"),
        (["--corups", "x"], "unrecognized"),
    ],
)
def test_what_cannot_be_honoured_is_refused_with_what_would_be(
    whenabouts: Whenabouts, options: list[str], told: str
) -> None:
    done = whenabouts("search", "telescope", *options)
    assert done.code == 2
    assert told in done.err
    assert done.out == ""


def test_an_ambiguous_name_lists_the_ids_and_an_id_works(whenabouts: Whenabouts) -> None:
    done = whenabouts("search", "brother", "--within", "twin.vtt")
    ids = [word.strip(",;") for word in done.err.split() if word.startswith("twin-")]
    assert len(ids) == 2
    found = whenabouts("search", "brother repairs clocks", "--within", ids[0], "--within", ids[1]).json
    assert {moment["video_id"] for moment in found["moments"]} == set(ids)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--within", "friday"], {"friday.mp4"}),
        (["--within", "friday", "--within", "really?.vtt"], {"friday.mp4", "really?.vtt"}),
        (["--where", "speaker=ada"], {"hash #1.vtt", "100%.vtt"}),
        (["--where", "speaker=ada", "--where", "year>=2000"], {"100%.vtt"}),
        (["--where", "speaker=*", "--where", "year<2021", "--where", "year>1999"], {"really?.vtt"}),
        (["--after", "1990-01-01", "--before", "2000-01-01"], {"hash #1.vtt"}),
        (["--after", "2020-05-01", "--before", "2021-05-01"], {"really?.vtt"}),
        (["--before", "2020-05-01", "--where", "name!=friday*"], {"hash #1.vtt"}),
        (["--where", "name=nasa*", "--where", "duration<20"], {"nasa_13013.mp4", "nasa_audio_only.mp3"}),
        (["--where", "path=*/b/*"], {"twin.vtt"}),
        (["--where", "speaker=nobody"], set()),
    ],
)
def test_filters_leave_just_the_videos_that_fit(
    whenabouts: Whenabouts, options: list[str], names: set[str]
) -> None:
    found = whenabouts("search", "who says what about the world", "-k", "50", *options)
    assert {Path(moment["path"]).name for moment in found.json["moments"]} == names
    if not names:
        assert found.code == 1
        assert found.json["answer"] == "no_match"


def test_the_least_confidence_leaves_out_what_is_less_sure(whenabouts: Whenabouts) -> None:
    everything = whenabouts("search", "crown jewels", "-k", "50").json["moments"]
    sure = whenabouts("search", "crown jewels", "-k", "50", "--min-confidence", "0.9").json["moments"]
    assert [m for m in everything if m["confidence"] >= 0.9] == sure
    assert 0 < len(sure) < len(everything)


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("a lighthouse keeper polishes the lens", "with space.vtt"),
        ("beetles in glass jars", "hash #1.vtt"),
        ("penguins slide down the ice", "really?.vtt"),
        ("the glacier melts", "100%.vtt"),
        ("a saxophone in the station", "two\nlines \x1b[31mred.vtt"),
    ],
)
def test_links_lead_to_the_file_whatever_its_name(
    whenabouts: Whenabouts, strange_folder: Path, query: str, name: str
) -> None:
    best = whenabouts("search", query, "-k", "1").json["moments"][0]
    link = urlsplit(best["link"])
    assert link.scheme == "file"
    assert link.query == ""
    assert link.fragment == f"t={best['start']:.3f},{best['end']:.3f}"
    assert unquote_to_bytes(link.path) == os.fsencode(strange_folder / name)


def test_a_name_that_is_no_utf8_is_printed_and_linked(whenabouts: Whenabouts, strange_folder: Path) -> None:
    path = os.fsencode(strange_folder) + b"/caf\xe9.vtt"
    if not os.path.exists(path):  # noqa: PTH110 - pathlib takes no bytes
        pytest.skip("this file system takes only UTF-8")
    done = whenabouts("search", "the volcano erupted on Sunday", "-k", "1")
    best = done.json["moments"][0]
    assert unquote_to_bytes(urlsplit(best["link"]).path) == path
    for said in (done.out, whenabouts("search", "the volcano erupted", "-k", "1", "--table").out):
        assert "caf\\" in said
        said.encode("utf-8")


def test_names_and_words_cannot_command_the_terminal(whenabouts: Whenabouts) -> None:
    done = whenabouts("search", "a saxophone in the station", "-k", "1", "--table")
    assert "\x1b" not in done.out
    assert "two\\nlines \\x1b[31mred.vtt" in done.out


def test_json_on_a_terminal_escapes_what_could_command_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "a\x9b31m\u202e\U000e0041\u2028é“.mp4"
    print_json(name)
    assert capsys.readouterr().out == f'"{name}"\n'
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_json(name)
    shown = capsys.readouterr().out
    assert json.loads(shown) == name
    assert shown == '"a\\u009b31m\\u202e\\udb40\\udc41\\u2028é“.mp4"\n'


def test_brackets_and_names_of_emoji_are_printed_as_they_are(
    whenabouts: Whenabouts, capsys: pytest.CaptureFixture[str]
) -> None:
    console().print("Like [/b] :smile:.png:", style="bold")
    assert capsys.readouterr().out == "Like [/b] :smile:.png:\n"
    assert "nobody says “[/b] :smile:”" in whenabouts("search", '"[/b] :smile:"', "--table").err


def test_the_corpus_may_be_named_by_the_environment(
    bare: Whenabouts, corpus: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WHENABOUTS_CORPUS", str(corpus))
    assert bare("search", "crown jewels").code == 0
    assert bare("search", "crown jewels", "--corpus", str(tmp_path)).code == 2


def test_without_a_corpus_it_says_how_to_name_or_make_one(
    bare: Whenabouts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("WHENABOUTS_CORPUS", raising=False)
    done = bare("search", "x")
    assert (done.code, done.out) == (2, "")
    assert "--corpus" in done.err and "WHENABOUTS_CORPUS" in done.err
    done = bare("search", "x", "--corpus", str(tmp_path / "none"))
    assert (done.code, done.out) == (2, "")
    assert "whenabouts index" in done.err
    assert not (tmp_path / "none").exists()
    (tmp_path / "file").write_text("no corpus")
    assert bare("search", "x", "--corpus", str(tmp_path / "file")).code == 2


@pytest.mark.slow
def test_a_corpus_without_anything_to_search_says_so(bare: Whenabouts, tmp_path: Path) -> None:
    place, broken = tmp_path / "empty.corpus", tmp_path / "broken.mp4"
    broken.write_text("no video at all")
    indexed = bare("index", str(broken), "--corpus", str(place), "--processes", "1")
    assert indexed.code == 2
    assert indexed.json["failed"][0]["path"] == str(broken)
    done = bare("search", "crown jewels", "--corpus", str(place))
    assert done.code == 1
    assert done.json["moments"] == []
    assert done.json["answer"] == "no_match"
    assert "Nothing like it" in bare("search", "crown jewels", "--corpus", str(place), "--table").out
    assert "broken.mp4" in bare("stats", "--corpus", str(place), "--table").out


@pytest.mark.parametrize("name", ["Vortrag über Kronjuwelen, " * 6 + "Teil 2", "青蛙在池塘里" * 12 + "二"])
def test_on_a_terminal_long_names_leave_room_for_the_times(
    bare: Whenabouts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    words = "1\n00:00:01,000 --> 00:00:02,500\nSomebody must have stolen the crown jewels\n"
    (tmp_path / f"{name}.srt").write_text(words)
    place = str(tmp_path / "own.corpus")
    with uncalibrated():
        assert bare("index", str(tmp_path), "--corpus", place, "--processes", "1").code == 0
    ask = ("search", "crown jewels", "--corpus", place, "--table")
    assert f"{name}.srt" in bare(*ask).out
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    shown = re.sub(r"\x1b\][^\\]*\\|\x1b\[[0-9;]*m", "", bare(*ask).out)
    (row,) = (line for line in shown.splitlines() if line.startswith("1 "))
    assert cell_len(row) <= 80 and "…" in row and name[-1] in row and "0:01.000 - 0:02.500" in row


@pytest.mark.parametrize("query", ["", "   ", "\t\n", "\u3000"])
def test_an_empty_question_is_wrong_use(whenabouts: Whenabouts, query: str) -> None:
    done = whenabouts("search", query)
    assert done.code == 2
    assert "say in a few words" in done.err


def test_a_question_of_ten_thousand_words_is_answered_by_its_first(whenabouts: Whenabouts) -> None:
    done = whenabouts("search", "crown jewels " * 5000)
    assert done.code == 0
    assert "10000 words" in done.json["notes"][0]
    assert done.json["moments"][0]["path"].endswith("friday.mp4")
    table = whenabouts("search", "crown jewels " * 5000, "--table")
    assert "note: only the first" in table.err
    assert "note:" not in table.out


@pytest.mark.parametrize("form", ["--table", "--json"])
def test_a_field_that_no_video_has_is_named_with_those_there_are(whenabouts: Whenabouts, form: str) -> None:
    done = whenabouts("search", "crown jewels", "--where", "speeker=ada", form)
    assert done.code == 1
    assert done.err.startswith("note: no video has a field 'speeker'; known fields: ")
    assert {"speaker", "year", "path", "name", "duration"} <= set(done.err.replace(",", "").split())
    if form == "--json":
        assert done.json["notes"] == [done.err.removeprefix("note: ").strip()]
    else:
        assert "Nothing like it in what the filters leave of this corpus." in done.out
    # All videos lack the field, so KEY!=VALUE keeps all of them; a note says so.
    differing = whenabouts("search", "crown jewels", "--where", "speeker!=ada", form)
    assert (differing.code, differing.err) == (0, done.err)


def test_a_word_that_is_said_everywhere_is_unsure_and_the_table_says_why(
    whenabouts: Whenabouts, monkeypatch: pytest.MonkeyPatch
) -> None:
    from whenabouts.confidence.probability import Probability

    monkeypatch.setattr(Probability, "of_first", lambda *given, **rest: 0.4)
    done = whenabouts("search", "jewels stolen crown", "--table")
    assert done.code == 0
    assert re.match(r"Maybe: its words are all said in \d+ of the \d+ places looked at", done.out)
    assert "an answer like this is right in 40 of 100 cases (" in done.out.splitlines()[0]
    assert "The best are:" in done.out.splitlines()[0]
    assert whenabouts("search", "jewels stolen crown", "--json").json["notes"][0] in done.out


def test_filters_that_leave_no_video_say_so(whenabouts: Whenabouts) -> None:
    done = whenabouts("search", "crown jewels", "--where", "speaker=nobody")
    assert done.code == 1
    assert "videos of this corpus passes the filters" in done.err
    assert whenabouts("search", "crown jewels", "--where", "speaker=ada").err == ""


@pytest.mark.parametrize(
    "query",
    [
        "🦁🎥🌋",
        "👨‍👩‍👧‍👦",
        "أين التلسكوب الفضائي",
        "איפה טלסקופ החלל",
        "太空望远镜在哪里",
        "宇宙望遠鏡はどこですか",
        "กล้องโทรทรรศน์อวกาศ",
        "AND OR NOT * ~ : ' \" ; --",
        "'; DROP TABLE clips_subtitle; --",
        'path:"x" AND (context:*) OR +must -not^2 ~1 [a TO b] {x} \\',
        "video_id = '' OR 1=1",
        "%s %d {0} ${HOME} `id`",
        "nul \x00 byte",
        "\x00",
        "lone \udcff surrogate \ud800",
        "\udcff",
        "a\u0301\u0327 \u202e reversed \u200b\u200b",
        "-",
        "*",
        "x" * 130_000,
        "word" + "é" * 5000,
    ],
    ids=lambda query: ascii(query)[:24],
)
def test_no_question_brings_it_down(whenabouts: Whenabouts, query: str) -> None:
    done = whenabouts("search", "--table", "-k", "2", "--", query)
    assert done.code in (0, 1)
    assert done.out
    assert "Traceback" not in done.err


@pytest.mark.slow
def test_all_lists_every_place_in_order_of_time(whenabouts: Whenabouts) -> None:
    answer = whenabouts("search", "the", "--all").json
    assert answer["places"] == {"total": len(answer["moments"]), "skipped": 0}
    assert len(answer["moments"]) > 3
    again = whenabouts("search", "the", "--all", "--skip", "1", "-k", "2").json
    assert again["moments"] == answer["moments"][1:3]
    assert again["places"] == {"total": len(answer["moments"]), "skipped": 1}
    table = whenabouts("search", '"crown jewels"', "--all", "--table").out
    assert re.match(r"Said in [1-9] places?, in order of time:", table) and "right" not in table
    exported = whenabouts("export", "the", "--all", "--format", "csv").out
    assert len(exported.splitlines()) == 1 + len(answer["moments"])
    none = whenabouts("search", '"jewels crown"')
    assert (none.code, none.json["answer"], none.json["notes"][0]) == (
        0,
        "unsure",
        "nobody says “jewels crown”",
    )
    listed = whenabouts("search", '"jewels crown"', "--all")
    assert (listed.code, listed.json["notes"]) == (1, ["nobody says “jewels crown”"])


def test_a_run_over_several_corpora_names_them_all(capsys: pytest.CaptureFixture[str]) -> None:
    options = argparse.Namespace(
        json=False, table=True, corpora=["a", "b"], corpus="b", queries="q.jsonl", out="run.jsonl"
    )
    queries = SimpleNamespace(queries=["x"], query=[], videos=["v"])
    search._tell(options, queries, {"answers": {}, "videos_named": 1}, Counter())
    assert "1 of the 1 videos that q.jsonl names are in a and b" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ("state", "a while; the next search is quicker"),
        ("file", "it cannot be kept, so each search measures again: set XDG_STATE_HOME to a writable folder"),
    ],
)
def test_measurements_of_several_corpora_that_cannot_be_kept_are_told(
    bare: Whenabouts,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    told: str,
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / state))
    monkeypatch.setattr("whenabouts.calibration.together.measure", lambda *_: None)
    shutil.copytree(corpus, tmp_path / "copy.corpus")
    done = bare("search", "crown jewels", "--corpus", str(corpus), "--corpus", str(tmp_path / "copy.corpus"))
    assert done.code == 0
    assert told in done.err
