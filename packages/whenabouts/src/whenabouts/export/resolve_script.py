#!/usr/bin/env python3
"""A script for DaVinci Resolve's menu: markers and a timeline from moments that whenabouts gave.

Put this file into Resolve's folder Fusion/Scripts/Utility and call it from Workspace, Scripts. It asks for
a JSON file, written by `whenabouts export --format json` (exact frames), `whenabouts search --json` or
`whenabouts collection show NAME --json` (seconds). Each moment gets a marker on its clip; a new timeline
has the moments in order. Called again with the same list, it replaces its markers and makes another
timeline. To run it outside of Resolve, while Resolve runs: python3 whenabouts.py moments.json

It needs only Python 3.7. The interface's names are from README.txt in Resolve's folder Developer/Scripting.
The script was tested with a stand-in for that interface, not in Resolve itself.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

MOST_BYTES = 64 << 20
MOST_MOMENTS = 10_000
LONGEST_NAME = 100
LONGEST_NOTE = 1000
COLOR = "Green"
# By answer, the probability from which a moment is taken. The first moment is always taken.
LEAST = {"match": 0.75, "unsure": 0.15}
RATES = (
    *(Fraction(rate * 1000, 1001) for rate in (24, 30, 48, 60, 120)),
    *map(Fraction, (24, 25, 30, 48, 50, 60, 100, 120)),
)


class Problem(Exception):
    """An error, with its remedy."""


class Moment(NamedTuple):
    """A moment of a file, [start, end) in seconds; `frames` are first, end and rate, or None."""

    path: str
    start: Fraction
    end: Fraction
    name: str
    note: str
    frames: tuple[int, int, Fraction] | None


def read_list(path: str, say: Any = print) -> tuple[str, list[Moment]]:
    """The title and the moments of a JSON file. Raises Problem, naming the place."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise Problem(f"{path}: has more than {MOST_BYTES} bytes; take fewer moments")
        document = json.loads(data.decode("utf-8-sig"), parse_constant=_no_constant)
    except OSError as error:
        raise Problem(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise Problem(f"{path}: is not JSON ({error}); give what whenabouts printed with --json") from None
    rows = None
    if isinstance(document, dict):
        rows = document.get("moments", document.get("items"))
    if not isinstance(rows, list):
        raise Problem(
            f"{path}: has no list of moments; give what `whenabouts export --format json`, "
            "`search --json` or `collection show NAME --json` printed"
        )
    if len(rows) > MOST_MOMENTS:
        raise Problem(f"{path}: has {len(rows)} moments; at most {MOST_MOMENTS} are taken")
    query = document.get("query")
    answer, moments = document.get("answer"), []
    for place, row in enumerate(rows, 1):
        if isinstance(row, dict) and row.get("path", "") is None:
            say(f"left out: moment {place}, because its video was removed")
            continue
        moment = _moment(row, f"{path}: moment {place}", query)
        if answer is None or _is_matched(answer, row, is_first=place == 1):
            moments.append(moment)
    if not moments:
        raise Problem(f"{path}: no moment matched, so nothing was done")
    name = _line(document.get("name") or query, LONGEST_NAME)
    return name or Path(path).stem, moments


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _is_matched(answer: object, row: dict[str, Any], *, is_first: bool) -> bool:
    least = LEAST.get(str(answer))
    if least is None:
        return False
    confidence = row.get("confidence")
    return is_first or not isinstance(confidence, (int, float)) or confidence >= least


def _moment(row: Any, where: str, query: object) -> Moment:
    if not isinstance(row, dict):
        raise Problem(f"{where}: {str(row)[:80]!r} is not an object")
    path = row.get("path")
    if not isinstance(path, str) or not Path(path).is_absolute() or "\0" in path:
        raise Problem(f"{where}: path {str(path)[:80]!r} is not the absolute path of a video")
    start, end = (_seconds(row.get(key), f"{where}: {key}") for key in ("start", "end"))
    if not 0 <= start < end:
        raise Problem(f"{where}: start {float(start)} and end {float(end)}; wanted: 0 <= start < end")
    note, spoken = _line(row.get("note"), LONGEST_NOTE), _line(row.get("text"), LONGEST_NOTE)
    question = _line(row.get("query") or query, LONGEST_NOTE)
    tags = row.get("tags")
    texts = [
        question,
        spoken,
        " ".join("#" + _line(tag, LONGEST_NAME) for tag in (tags if isinstance(tags, list) else [])),
    ]
    names = (note, question, spoken, Path(path).name)
    return Moment(
        path,
        start,
        end,
        next(filter(None, (_line(name, LONGEST_NAME) for name in names)), "moment"),
        _line(" | ".join(filter(None, texts)), LONGEST_NOTE),
        _frames(row, where),
    )


def _seconds(value: object, where: str) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e9:
        raise Problem(f"{where} {str(value)[:80]!r} is not a number of seconds")
    return Fraction(round(value * 1_000_000), 1_000_000)


def _frames(row: dict[str, Any], where: str) -> tuple[int, int, Fraction] | None:
    first, end, text = (row.get(key) for key in ("first_frame", "end_frame", "frame_rate"))
    if first is None:
        return None
    rate = rate_of(text) if isinstance(text, str) else None
    if type(first) is not int or type(end) is not int or not 0 <= first < end or rate is None:
        raise Problem(f"{where}: frames {first!r} to {end!r} at {text!r}; wanted: 0 <= first < end")
    return first, end, rate


def _line(text: object, longest: int) -> str:
    """Text on one line without control characters; "" for anything else."""
    if not isinstance(text, str):
        return ""
    spaced = "".join(letter if letter.isprintable() else " " for letter in text)
    line = " ".join(spaced.split())
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "…"


def rate_of(text: object) -> Fraction | None:
    """Frames a second as Resolve and whenabouts write them: 25.0, 23.976, "29.97 DF", "30000/1001"."""
    match = re.match(r"\d+/[1-9]\d*|\d+(\.\d+)?", str(text).strip())
    rate = Fraction(match.group()) if match else Fraction(0)
    if not 1 <= rate <= 1000:
        return None
    nearest_rate = min(RATES, key=lambda standard: abs(standard - rate))
    return nearest_rate if abs(nearest_rate - rate) <= nearest_rate / 2000 else rate


def nearest(value: Fraction) -> int:
    """The nearest whole number, halves up."""
    return math.floor(value + Fraction(1, 2))


def span(moment: Moment, rate: Fraction, count: int | None) -> tuple[int, int]:
    """The frames [first, end) of a clip with `count` frames at a rate, from its first frame; never empty.

    Uses the list's frame numbers if it has them. Otherwise, the frames shown in [start, end), within half
    a millisecond, of a clip whose first frame is at 0. Raises Problem for a moment after the end.
    """
    if moment.frames is None:
        early = Fraction(1, 2000)
        first, end = (math.ceil((at - early) * rate) for at in (moment.start, moment.end))
        if first == end:  # no frame begins here: take the one on the screen
            first, end = max(0, first - 1), max(1, end)
    elif moment.frames[2] == rate:
        first, end = moment.frames[:2]
    else:
        first, end = (nearest(frame / moment.frames[2] * rate) for frame in moment.frames[:2])
    if count is not None:
        if first >= count:
            raise Problem(f"{moment.path}: begins at frame {first} of {count}; was the file replaced?")
        end = min(end, count)
    return first, max(first + 1, end)


class Placed(NamedTuple):
    """A moment with its clip in the media pool, at the clip's rate."""

    moment: Moment
    clip: Any
    rate: Fraction
    first: int
    end: int


class Work:
    """Markers and a timeline in the open project; `say` prints a line for the user."""

    def __init__(self, resolve: Any, say: Any = print) -> None:
        self.project = resolve.GetProjectManager().GetCurrentProject()
        if self.project is None:
            raise Problem("no project is open; open one and call the script again")
        self.pool = self.project.GetMediaPool()
        self.say = say

    def run(self, title: str, moments: list[Moment]) -> int:
        """Do the work; returns the number of moments on the timeline."""
        placed = self.placed(moments)
        if not placed:
            raise Problem("no clip of the list is on this machine, so nothing was done")
        marked = self.mark_clips(title, placed)
        timeline = self.new_timeline(title, placed[0].rate)
        shown = self.fill(timeline, placed)
        self.say(
            f"{shown} of {len(moments)} moments are on the timeline {timeline.GetName()!r}; "
            f"{marked} markers on clips"
        )
        return shown

    def placed(self, moments: list[Moment]) -> list[Placed]:
        """The moments with their clips. Clips missing in the pool are imported into a bin `whenabouts`."""
        clips, before = self._clips(), self.pool.GetCurrentFolder()
        placed = []
        for moment in moments:
            clip = clips.get(_key(moment.path))
            try:
                if clip is None:
                    clip = clips[_key(moment.path)] = self._imported(moment.path)
                rate = rate_of(clip.GetClipProperty("FPS")) or self._project_rate()
                frames = str(clip.GetClipProperty("Frames") or "")
                first, end = span(moment, rate, int(frames) if frames.isdigit() and int(frames) else None)
            except Problem as problem:
                self.say(f"left out: {problem}")
                continue
            if moment.frames is not None and moment.frames[2] != rate:
                self.say(
                    f"{moment.path}: the list counts {_written(moment.frames[2])} frames a second, Resolve "
                    f"{_written(rate)}; placed by time, to the nearest frame"
                )
            placed.append(Placed(moment, clip, rate, first, end))
        self.pool.SetCurrentFolder(before)
        return placed

    def _clips(self) -> dict[str, Any]:
        clips: dict[str, Any] = {}
        folders = [self.pool.GetRootFolder()]
        while folders:
            folder = folders.pop()
            folders += folder.GetSubFolderList() or []
            for clip in folder.GetClipList() or []:
                path = clip.GetClipProperty("File Path")
                if path:
                    clips.setdefault(_key(path), clip)
        return clips

    def _imported(self, path: str) -> Any:
        if not Path(path).is_file():
            raise Problem(f"{path}: there is no such file on this machine")
        root = self.pool.GetRootFolder()
        bins = [folder for folder in root.GetSubFolderList() or [] if folder.GetName() == "whenabouts"]
        self.pool.SetCurrentFolder(bins[0] if bins else self.pool.AddSubFolder(root, "whenabouts"))
        clips = [clip for clip in self.pool.ImportMedia([path]) or [] if clip]
        if not clips:
            raise Problem(f"{path}: Resolve does not import this file")
        return clips[0]

    def _project_rate(self) -> Fraction:
        return rate_of(self.project.GetSetting("timelineFrameRate")) or Fraction(24)

    def mark_clips(self, title: str, placed: list[Placed]) -> int:
        """Set a marker for each moment on its clip, replacing those of an earlier run; returns the number."""
        mine = f"whenabouts:{title}:"
        for each in placed:
            for facts in (each.clip.GetMarkers() or {}).values():
                if str(facts.get("customData", "")).startswith(mine):
                    each.clip.DeleteMarkerByCustomData(facts["customData"])
        count = 0
        for each in placed:
            moment, length = each.moment, each.end - each.first
            data = f"{mine}{each.first}-{each.end}"
            if each.clip.AddMarker(each.first, COLOR, moment.name, moment.note, length, data):
                count += 1
            else:
                self.say(f"{moment.path}: frame {each.first} has a marker already, which stays")
        return count

    def new_timeline(self, title: str, rate: Fraction) -> Any:
        """Create a timeline at a rate and make it current; a number is appended to a name in use."""
        for number in range(1, 1000):
            timeline = self.pool.CreateEmptyTimeline(title if number == 1 else f"{title} {number}")
            if timeline:
                break
        else:
            raise Problem(f"Resolve makes no timeline called {title!r}")
        self.project.SetCurrentTimeline(timeline)
        if rate_of(timeline.GetSetting("timelineFrameRate")) != rate:
            timeline.SetSetting("useCustomSettings", "1")
            can_drop = rate.denominator == 1001 and rate.numerator % 30_000 == 0
            for text in ([f"{_written(rate)} DF"] if can_drop else []) + [_written(rate)]:
                if timeline.SetSetting("timelineFrameRate", text):
                    break
        return timeline

    def fill(self, timeline: Any, placed: list[Placed]) -> int:
        """Append the moments and mark them on the ruler; returns how many the timeline has."""
        rate = rate_of(timeline.GetSetting("timelineFrameRate")) or self._project_rate()
        if rate != placed[0].rate:
            self.say(f"the timeline runs at {_written(rate)} frames a second; Resolve fits the clips to it")
        last = self._last_frame(timeline, placed, rate)
        count = 0
        for each in placed:
            item = self._appended(each.clip, each.first, each.end + last)
            if item is None:
                self.say(f"left out: Resolve appends nothing of {each.moment.path} from frame {each.first}")
                continue
            count += 1
            expected = max(1, nearest((each.end - each.first) / each.rate * rate))
            length = int(item.GetDuration())
            if abs(length - expected) > (0 if each.rate == rate else 1):
                self.say(f"{each.moment.path}: {length} frames on the timeline, where {expected} were meant")
            at = int(item.GetStart()) - int(timeline.GetStartFrame())
            timeline.AddMarker(at, COLOR, each.moment.name, each.moment.note, length, f"whenabouts:{count}")
        return count

    def _last_frame(self, timeline: Any, placed: list[Placed], rate: Fraction) -> int:
        """What to add to an end for clipInfo's `endFrame`: -1 if Resolve shows that frame, otherwise 0.

        Resolve's own example treats `endFrame` as shown; users measured in version 21 that it is not.
        So this appends the first frames of a clip, counts them and removes them.
        """
        for each in placed:
            if each.rate == rate:
                item = self._appended(each.clip, 0, 1)
                length = int(item.GetDuration()) if item is not None else 0
                for kind in ("video", "audio"):
                    for track in range(1, int(timeline.GetTrackCount(kind)) + 1):
                        items = timeline.GetItemListInTrack(kind, track)
                        if items:
                            timeline.DeleteClips(items)
                if length in (1, 2):
                    return 1 - length
        self.say("how Resolve counts the last frame could not be measured: check the ends of the clips")
        return -1

    def _appended(self, clip: Any, first: int, end_frame: int) -> Any:
        info = {"mediaPoolItem": clip, "startFrame": first, "endFrame": end_frame, "trackIndex": 1}
        for _ in range(2):  # the first call on a new timeline may return nothing
            items = [item for item in self.pool.AppendToTimeline([info]) or [] if item]
            if items:
                return items[0]
        return None


def _key(path: str) -> str:
    return os.path.normcase(os.path.normpath(path))


def _written(rate: Fraction) -> str:
    """A rate as Resolve's settings write it: 23.976, 29.97, 25."""
    return f"{float(rate):.3f}".rstrip("0").rstrip(".")


def _resolve() -> Any:
    """Resolve, from its menu or its module."""
    given = globals().get("resolve")
    if given is None and globals().get("app") is not None:
        given = globals()["app"].GetResolve()
    if given is None:
        try:
            import DaVinciResolveScript  # type: ignore[import-not-found]
        except ImportError:
            raise Problem(
                "there is no Resolve: call this script by Workspace, Scripts, or put Resolve's folder "
                "Developer/Scripting/Modules on PYTHONPATH"
            ) from None
        given = DaVinciResolveScript.scriptapp("Resolve")
    if given is None:
        raise Problem("Resolve does not answer; is it running, and is scripting allowed in its preferences?")
    return given


def main(arguments: list[str]) -> int:
    """Ask for the list if none is given, and do the work; returns 0, or 1 with a message."""
    try:
        resolve = _resolve()
        path = arguments[0] if arguments else None
        if path is None:
            dialogue = {"FReqS_Title": "Moments of whenabouts", "FReqS_Filter": "JSON files (*.json)|*.json"}
            path = resolve.Fusion().RequestFile("", "", dialogue)
        if not path:
            return 0  # the user closed the dialogue
        title, moments = read_list(str(path))
        return 0 if Work(resolve).run(title, moments) else 1
    except Problem as problem:
        print(f"whenabouts: {problem}")
        return 1


if __name__ == "__main__":
    main(sys.argv[1:])
