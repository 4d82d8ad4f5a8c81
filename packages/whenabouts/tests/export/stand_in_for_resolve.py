"""A simulated scripting interface of DaVinci Resolve, with the names that its README.txt publishes.

It needs only the standard library, so a script can be run against it in a bare Python. It follows the README:
a second marker at a frame is refused, timelines have different names, settings of a timeline need
`useCustomSettings`, and properties of clips are texts. Where users measured different behaviour, the test
chooses: `shows_end` is whether a clip includes `endFrame`.
"""

# ruff: noqa: N802
from __future__ import annotations

from fractions import Fraction
from typing import Any


class Marked:
    """The base of clips and timelines: objects with markers."""

    def __init__(self) -> None:
        self.markers: dict[float, dict[str, Any]] = {}

    def AddMarker(self, frame: int, color: str, name: str, note: str, duration: int, data: str = "") -> bool:
        assert type(frame) is int and type(duration) is int and frame >= 0 and duration >= 1
        assert all(type(text) is str and text.isprintable() for text in (name, note, data))
        assert color in ("Blue", "Green", "Red", "Yellow") and name
        if float(frame) in self.markers:
            return False
        self.markers[float(frame)] = {
            "color": color, "duration": float(duration), "note": note, "name": name, "customData": data
        }  # fmt: skip
        return True

    def GetMarkers(self) -> dict[float, dict[str, Any]]:
        return dict(self.markers)

    def DeleteMarkerByCustomData(self, data: str) -> bool:
        for frame, facts in self.markers.items():
            if facts["customData"] == data:
                del self.markers[frame]
                return True
        return False


class MediaPoolItem(Marked):
    def __init__(self, path: str, rate: str, frames: int) -> None:
        super().__init__()
        self.properties = {"File Path": path, "FPS": rate, "Frames": str(frames)}

    def GetClipProperty(self, name: str) -> str:
        return self.properties.get(name, "")


class Folder:
    def __init__(self, name: str) -> None:
        self.name, self.clips, self.folders = name, [], []  # type: ignore[var-annotated]

    def GetName(self) -> str:
        return self.name

    def GetClipList(self) -> list[MediaPoolItem]:
        return list(self.clips)

    def GetSubFolderList(self) -> list[Folder]:
        return list(self.folders)


class TimelineItem:
    """Shows the source's frames [first, end) from `start` on."""

    def __init__(self, clip: MediaPoolItem, first: int, end: int, start: int, length: int) -> None:
        self.clip, self.first, self.end, self.start, self.length = clip, first, end, start, length

    def GetDuration(self) -> int:
        return self.length

    def GetStart(self) -> int:
        return self.start


class Timeline(Marked):
    def __init__(self, name: str, rate: str, start: int, rates: tuple[str, ...]) -> None:
        super().__init__()
        self.name, self.start, self.rates = name, start, rates
        self.settings = {"useCustomSettings": "0", "timelineFrameRate": rate}
        self.items: list[TimelineItem] = []

    def GetName(self) -> str:
        return self.name

    def GetStartFrame(self) -> int:
        return self.start

    def GetSetting(self, name: str) -> str:
        return self.settings[name]

    def SetSetting(self, name: str, value: str) -> bool:
        assert type(value) is str
        is_allowed = self.settings["useCustomSettings"] == "1" and not self.items and value in self.rates
        if name == "timelineFrameRate" and not is_allowed:
            return False
        self.settings[name] = value
        return True

    def GetTrackCount(self, kind: str) -> int:
        return {"video": 1, "audio": 1, "subtitle": 0}[kind]

    def GetItemListInTrack(self, kind: str, track: int) -> list[TimelineItem]:
        assert track == 1
        return list(self.items) if kind == "video" else []

    def DeleteClips(self, items: list[TimelineItem]) -> bool:
        assert items
        self.items = [item for item in self.items if item not in items]
        return True


def rate_of(text: str) -> Fraction:
    """The exact rate for a text in Resolve's format."""
    number = text.replace(" DF", "")
    exact = {"23.976": Fraction(24000, 1001), "29.97": Fraction(30000, 1001), "59.94": Fraction(60000, 1001)}
    return exact.get(number, Fraction(number))


class MediaPool:
    def __init__(self, resolve: Resolve) -> None:
        self.resolve = resolve
        self.root = self.current = Folder("Master")

    def GetRootFolder(self) -> Folder:
        return self.root

    def GetCurrentFolder(self) -> Folder:
        return self.current

    def SetCurrentFolder(self, folder: Folder) -> bool:
        assert isinstance(folder, Folder)
        self.current = folder
        return True

    def AddSubFolder(self, folder: Folder, name: str) -> Folder:
        folder.folders.append(Folder(name))
        return folder.folders[-1]  # type: ignore[no-any-return]

    def ImportMedia(self, paths: list[str]) -> list[MediaPoolItem]:
        clips = [
            MediaPoolItem(path, *self.resolve.media[path]) for path in paths if path in self.resolve.media
        ]
        self.current.clips += clips
        return clips

    def CreateEmptyTimeline(self, name: str) -> Timeline | None:
        assert name
        project = self.resolve.project
        if any(timeline.name == name for timeline in project.timelines):
            return None
        timeline = Timeline(name, project.rate, self.resolve.start, self.resolve.rates)
        project.timelines.append(timeline)
        return timeline

    def AppendToTimeline(self, infos: list[dict[str, Any]]) -> list[TimelineItem | None]:
        timeline = self.resolve.project.current
        assert timeline is not None
        self.resolve.appends += 1
        if self.resolve.appends == 1 and self.resolve.is_late:
            return [None]
        items: list[TimelineItem | None] = []
        for info in infos:
            assert set(info) <= {
                "mediaPoolItem", "startFrame", "endFrame", "mediaType", "trackIndex", "recordFrame"
            }  # fmt: skip
            clip, first, last = info["mediaPoolItem"], info["startFrame"], info["endFrame"]
            assert type(first) is int and type(last) is int
            end = last + (1 if self.resolve.shows_end else 0)
            if not 0 <= first < end <= int(clip.properties["Frames"]):
                return []
            ratio = rate_of(timeline.settings["timelineFrameRate"]) / rate_of(clip.properties["FPS"])
            length = max(1, int((end - first) * ratio + Fraction(1, 2)))
            start = timeline.start + sum(item.length for item in timeline.items)
            timeline.items.append(TimelineItem(clip, first, end, start, length))
            items.append(timeline.items[-1])
        return items


class Project:
    def __init__(self, resolve: Resolve, rate: str) -> None:
        self.pool, self.rate = MediaPool(resolve), rate
        self.timelines: list[Timeline] = []
        self.current: Timeline | None = None

    def GetMediaPool(self) -> MediaPool:
        return self.pool

    def GetSetting(self, name: str) -> str:
        return {"timelineFrameRate": self.rate}[name]

    def SetCurrentTimeline(self, timeline: Timeline) -> bool:
        assert timeline in self.timelines
        self.current = timeline
        return True


class Fusion:
    def __init__(self, answer: str | None) -> None:
        self.answer = answer

    def RequestFile(self, folder: str, name: str, options: dict[str, str]) -> str | None:
        assert "*.json" in options["FReqS_Filter"]
        return self.answer


class Resolve:
    """`media`: path -> rate and number of frames as Resolve sees them; `rates`: those a timeline may take."""

    def __init__(
        self,
        media: dict[str, tuple[str, int]],
        *,
        shows_end: bool = True,
        rate: str = "24",
        rates: tuple[str, ...] = ("23.976", "24", "25", "29.97 DF", "29.97", "30", "50"),
        start: int = 86400,
        is_late: bool = False,
        answer: str | None = None,
    ) -> None:
        self.media, self.shows_end, self.rates, self.start = media, shows_end, rates, start
        self.is_late, self.answer, self.appends = is_late, answer, 0
        self.project: Any = Project(self, rate)

    def GetProjectManager(self) -> Resolve:
        return self  # the manager's one method that is used is below

    def GetCurrentProject(self) -> Project | None:
        return self.project  # type: ignore[no-any-return]

    def Fusion(self) -> Fusion:
        return Fusion(self.answer)
