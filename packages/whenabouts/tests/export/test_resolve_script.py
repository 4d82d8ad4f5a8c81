"""The script for DaVinci Resolve, run against a simulated interface: frames, markers, refusals."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.export import stand_in_for_resolve as stand_in
from tests.export.test_round_trip import RATES, SPANS, Film, named

from whenabouts.cli.main import main
from whenabouts.confidence.probability import PROBABLE
from whenabouts.export import render, resolve_script
from whenabouts.export.moments import FileMoment

Make = Callable[..., FileMoment]
TEXTS = {"23.976": "23.976", "25": "25", "29.97": "29.97", "varying": "25"}


def resolve_with(films: dict[str, Film], **options: Any) -> stand_in.Resolve:
    return stand_in.Resolve(
        {str(film.path): (TEXTS[name], len(film.times) + 60) for name, film in films.items()}, **options
    )


def written(place: Path, document: Any) -> str:
    place.write_text(json.dumps(document), encoding="utf-8")
    return str(place)


def exported(place: Path, moments: list[FileMoment]) -> str:
    place.write_bytes(render(moments, "json")[0])
    return str(place)


def ran(resolve: stand_in.Resolve, path: str) -> tuple[int, list[str]]:
    lines: list[str] = []
    title, moments = resolve_script.read_list(path, lines.append)
    return resolve_script.Work(resolve, lines.append).run(title, moments), lines


@pytest.mark.parametrize("shows_end", [True, False])
@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("name", RATES)
def test_the_timeline_shows_exactly_the_frames_of_the_moment(
    films: dict[str, Film],
    make: Make,
    tmp_path: Path,
    name: str,
    span: tuple[float, float],
    shows_end: bool,
) -> None:
    film, rate = films[name], RATES[name]
    resolve = resolve_with(films, shows_end=shows_end)
    path = exported(tmp_path / "film.json", [make(film.path, *span), make(film.path, *span)])
    assert ran(resolve, path)[0] == 2
    (timeline,) = resolve.project.timelines
    assert timeline.settings["timelineFrameRate"] == ("29.97 DF" if name == "29.97" else TEXTS[name])
    first, second = timeline.items
    for item in (first, second):
        assert named(film, rate, item.first, item.end) == film.inside(*span)
    assert (first.start, second.start) == (86400, 86400 + first.length)
    assert sorted(timeline.markers) == [0.0, float(first.length)]
    assert timeline.markers[0.0]["duration"] == first.length


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("name", ["23.976", "25", "29.97"])
def test_seconds_of_a_search_give_the_same_frames(
    films: dict[str, Film], tmp_path: Path, name: str, span: tuple[float, float]
) -> None:
    film = films[name]
    moment = {"path": str(film.path), "start": span[0], "end": span[1]}
    resolve = resolve_with(films)
    ran(resolve, written(tmp_path / "film.json", {"moments": [moment]}))
    (item,) = resolve.project.timelines[0].items
    assert named(film, RATES[name], item.first, item.end) == film.inside(*span)


def test_a_moment_between_two_frames_is_the_one_on_the_screen(films: dict[str, Film], tmp_path: Path) -> None:
    film = films["25"]
    resolve = resolve_with(films)
    moment = {"path": str(film.path), "start": 1.005, "end": 1.01}
    ran(resolve, written(tmp_path / "film.json", {"moments": [moment]}))
    (item,) = resolve.project.timelines[0].items
    assert (item.first, item.end) == (25, 26)


def test_frames_at_another_rate_than_resolves_are_placed_by_time(
    films: dict[str, Film], make: Make, tmp_path: Path
) -> None:
    film = films["varying"]
    resolve = resolve_with(films)
    resolve.media[str(film.path)] = ("29.97", 500)
    path = exported(tmp_path / "film.json", [make(film.path, 2.0, 3.0)])
    (listed,) = json.loads(Path(path).read_text())["moments"]
    _, lines = ran(resolve, path)
    (item,) = resolve.project.timelines[0].items
    for frame, at in ((item.first, listed["first_frame"]), (item.end, listed["end_frame"])):
        assert abs(Fraction(frame) / Fraction(30000, 1001) - Fraction(at, 25)) <= Fraction(1001, 60000)
    assert any("counts 25 frames a second, Resolve 29.97; placed by time" in line for line in lines)


def test_several_rates_are_fitted_to_the_first(films: dict[str, Film], make: Make, tmp_path: Path) -> None:
    moments = [make(films[name].path, 1, 2) for name in ("25", "23.976", "29.97")]
    resolve = resolve_with(films, shows_end=False, is_late=True)
    placed, lines = ran(resolve, exported(tmp_path / "film.json", moments))
    (timeline,) = resolve.project.timelines
    assert placed == 3 and [item.length for item in timeline.items] == [25, 25, 25]
    assert not [line for line in lines if "were meant" in line]
    assert sorted(timeline.markers) == [0.0, 25.0, 50.0]


def test_a_project_that_keeps_its_rate_is_reported(
    films: dict[str, Film], make: Make, tmp_path: Path
) -> None:
    resolve = resolve_with(films, rates=())
    _, lines = ran(resolve, exported(tmp_path / "film.json", [make(films["25"].path, 1, 2)]))
    assert any("runs at 24 frames a second" in line for line in lines)
    assert any("check the ends" in line for line in lines)
    assert resolve.project.timelines[0].items[0].length == 24


def test_clips_are_marked_once_and_trimmed_moments_move(
    films: dict[str, Film], make: Make, tmp_path: Path
) -> None:
    film = films["25"]
    resolve = resolve_with(films)
    collected: dict[str, Any] = {"note": "the applause", "tags": ("opening",)}
    path = exported(tmp_path / "opening film.json", [make(film.path, 1, 2, query="", **collected)])
    ran(resolve, path)
    (bin_,) = resolve.project.pool.root.folders
    (clip,) = bin_.clips
    assert resolve.project.pool.current is resolve.project.pool.root
    assert clip.markers[25.0] == {
        "color": "Green",
        "duration": 25.0,
        "name": "the applause",
        "note": "Hello there. | #opening",
        "customData": "whenabouts:opening film:25-50",
    }
    clip.AddMarker(75, "Red", "of the editor", "", 1)
    moments = [make(film.path, 2, 3, query=""), make(film.path, 3, 4, query="")]
    _, lines = ran(resolve, exported(Path(path), moments))
    assert {frame: facts["name"] for frame, facts in clip.markers.items()} == {
        50.0: "Hello there.",
        75.0: "of the editor",
    }
    assert any("frame 75 has a marker already" in line for line in lines)
    assert bin_.clips == [clip]
    assert [timeline.name for timeline in resolve.project.timelines] == ["opening film", "opening film 2"]


def test_a_clip_that_the_pool_has_in_any_bin_is_used(
    films: dict[str, Film], make: Make, tmp_path: Path
) -> None:
    resolve = resolve_with(films)
    day = resolve.project.pool.AddSubFolder(resolve.project.pool.root, "Day 1")
    clip = stand_in.MediaPoolItem(str(films["25"].path), "25", 150)
    resolve.project.pool.AddSubFolder(day, "Camera A").clips.append(clip)
    ran(resolve, exported(tmp_path / "film.json", [make(films["25"].path, 1, 2)]))
    assert 25.0 in clip.markers
    assert [folder.name for folder in resolve.project.pool.root.folders] == ["Day 1"]


def test_a_collection_as_it_is_shown_is_read(films: dict[str, Film], tmp_path: Path) -> None:
    item = {"id": "1", "start": 1.0, "end": 2.0, "note": "", "tags": ["a"], "query": "somebody greets"}
    items = [item | {"path": None}, item | {"path": str(films["25"].path)}]
    resolve = resolve_with(films)
    count, lines = ran(resolve, written(tmp_path / "x.json", {"name": "opening", "items": items}))
    assert count == 1 and lines[0] == "left out: moment 1, because its video was removed"
    (timeline,) = resolve.project.timelines
    assert timeline.name == "opening"
    assert timeline.markers[0.0]["name"] == "somebody greets"


def test_of_a_search_it_takes_what_an_export_takes(films: dict[str, Film], tmp_path: Path) -> None:
    assert resolve_script.LEAST["match"] == PROBABLE.match_at
    assert resolve_script.LEAST["unsure"] == PROBABLE.no_match_below
    row = {"path": str(films["25"].path), "end": 5.0}
    moments = [row | {"start": start, "confidence": sure} for start, sure in ((1, 0.2), (2, 0.9), (3, 0.7))]
    document = {"query": "a greeting", "answer": "match", "moments": moments}
    title, taken = resolve_script.read_list(written(tmp_path / "a.json", document))
    assert (title, [int(moment.start) for moment in taken]) == ("a greeting", [1, 2])
    with pytest.raises(resolve_script.Problem, match="no moment matched"):
        resolve_script.read_list(written(tmp_path / "a.json", document | {"answer": "no_match"}))


GOOD = {"path": "/films/a.mp4", "start": 1, "end": 2}


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ([GOOD], "has no list of moments"),
        ({"moments": "x"}, "has no list of moments"),
        ({"moments": []}, "no moment matched"),
        ({"moments": [GOOD] * 10_001}, "10001 moments; at most 10000"),
        ({"moments": [3]}, "moment 1: '3' is not an object"),
        ({"items": [GOOD | {"path": "a.mp4"}]}, "moment 1: path 'a.mp4' is not the absolute path"),
        ({"items": [{"start": 1, "end": 2}]}, "moment 1: path 'None'"),
        ({"moments": [GOOD, GOOD | {"start": True}]}, "moment 2: start 'True' is not a number"),
        ({"moments": [GOOD | {"end": 1e300}]}, "moment 1: end '1e"),
        ({"moments": [GOOD | {"start": 3}]}, "wanted: 0 <= start < end"),
        ({"moments": [GOOD | {"first_frame": 5, "end_frame": 5, "frame_rate": "25"}]}, "frames 5 to 5"),
        ({"moments": [GOOD | {"first_frame": 5, "end_frame": 6, "frame_rate": "0/1"}]}, "at '0/1'"),
        ({"moments": [GOOD | {"first_frame": "5", "end_frame": 6, "frame_rate": "25"}]}, "frames '5'"),
    ],
)
def test_a_list_that_is_wrong_is_refused_by_place_and_value(
    tmp_path: Path, document: Any, reason: str
) -> None:
    with pytest.raises(resolve_script.Problem, match=re.escape(reason)):
        resolve_script.read_list(written(tmp_path / "a.json", document))


@pytest.mark.parametrize("text", ["", "{", '{"moments": [NaN]}', "[" * 100_000, "\xff"])
def test_what_is_no_json_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(resolve_script.Problem, match="is not JSON"):
        resolve_script.read_list(str(tmp_path / "a.json"))
    with pytest.raises(resolve_script.Problem, match="cannot be read"):
        resolve_script.read_list(str(tmp_path / "none.json"))


def test_a_file_that_is_gone_or_shorter_is_left_out_and_reported(
    films: dict[str, Film], tmp_path: Path
) -> None:
    film = films["25"]
    gone = GOOD | {"path": str(tmp_path / "gone.mp4")}
    late = {"path": str(film.path), "start": 100, "end": 101}
    resolve = resolve_with(films)
    path = written(tmp_path / "a.json", {"moments": [gone, late, GOOD | {"path": str(film.path)}]})
    count, lines = ran(resolve, path)
    assert count == 1
    assert any("gone.mp4: there is no such file" in line for line in lines)
    assert any("begins at frame 2500 of 210" in line for line in lines)
    assert lines[-1] == "1 of 3 moments are on the timeline 'a'; 1 markers on clips"
    with pytest.raises(resolve_script.Problem, match="no clip of the list is on this machine"):
        ran(resolve, written(tmp_path / "a.json", {"moments": [gone]}))


def test_hostile_words_stay_on_one_line(films: dict[str, Film], tmp_path: Path) -> None:
    hostile = "x\n\x1b[31m\x00\u2028" + "y" * 5000
    moment = GOOD | {"path": str(films["25"].path), "text": hostile, "tags": [hostile, 3]}
    resolve = resolve_with(films)
    ran(resolve, written(tmp_path / "a.json", {"query": hostile, "moments": [moment]}))
    facts = resolve.project.timelines[0].markers[0.0]
    assert len(facts["name"]) == 100 and len(facts["note"]) == 1000


def test_without_a_project_or_resolve_it_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    resolve = stand_in.Resolve({})
    resolve.project = None
    with pytest.raises(resolve_script.Problem, match="no project is open"):
        resolve_script.Work(resolve)
    assert resolve_script.main(["a.json"]) == 1
    assert "Workspace, Scripts" in capsys.readouterr().out
    monkeypatch.setattr(resolve_script, "resolve", stand_in.Resolve({}, answer=None), raising=False)
    assert resolve_script.main([]) == 0  # the dialogue was closed
    assert capsys.readouterr().out == ""


def test_the_command_writes_a_script_that_runs_as_resolves_menu_runs_it(
    films: dict[str, Film], make: Make, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    script = tmp_path / "Fusion" / "Scripts" / "Utility" / "whenabouts.py"
    command = ["--no-config", "export", "--format", "resolve-script"]
    assert main([*command, "--out", str(script)]) == 0
    assert main([*command, "--out", str(script)]) == 2  # nothing is replaced unasked
    capsysbinary.readouterr()
    assert main(command) == 0
    assert capsysbinary.readouterr().out == script.read_bytes()
    film = films["25"].path
    answer = exported(tmp_path / "film.json", [make(film, 1, 2)])
    driver = tmp_path / "driver.py"
    driver.write_text(
        "import runpy, sys\n"
        f"stand_in = runpy.run_path({stand_in.__file__!r})\n"
        f"resolve = stand_in['Resolve']({{{str(film)!r}: ('25', 150)}}, answer={answer!r})\n"
        f"sys.argv = [{str(script)!r}]\n"
        f"runpy.run_path({str(script)!r}, {{'resolve': resolve}}, '__main__')\n"
        "print(resolve.project.timelines[0].markers)\n"
    )
    done = subprocess.run([sys.executable, "-I", "-S", str(driver)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 of 1 moments are on the timeline 'somebody greets'; 1 markers on clips" in done.stdout
    assert "'duration': 25.0" in done.stdout


def test_the_script_takes_no_moments_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--no-config", "export", "a greeting", "--format", "resolve-script"]) == 2
    assert "and takes none" in capsys.readouterr().err


def test_the_script_is_python_3_7_and_imports_the_standard_library_alone() -> None:
    tree = ast.parse(Path(resolve_script.__file__).read_text(encoding="utf-8"), feature_version=(3, 7))
    names = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [alias.name for alias in node.names] if isinstance(node, ast.Import) else [str(node.module)]
        )
    }
    assert names - {"DaVinciResolveScript"} <= sys.stdlib_module_names
