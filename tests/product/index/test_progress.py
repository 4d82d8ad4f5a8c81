from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from whenabouts.product.index.plan import Plan, Work
from whenabouts.product.index.progress import Meter, Progress, Summary
from whenabouts.product.index.reading import Reached, ReadTask
from whenabouts.product.index.workers import Failed, Finished, Message, Part
from whenabouts.product.streams.protocol import Cost, StreamRun
from whenabouts.video.files import SourceFile


def plan_of(*sizes: int) -> Plan:
    work = tuple(
        Work(
            ReadTask(number, Path(f"/v/{number}.mp4"), "media"),
            ("new",),
            SourceFile(Path(f"/v/{number}.mp4"), "media", (), size, 0),
            {},
        )
        for number, size in enumerate(sizes)
    )
    return Plan(work, bytes=sum(sizes))


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_rate_and_time_left_are_those_of_the_bytes_that_were_read() -> None:
    clock, seen = Clock(), list[Progress]()
    meter = Meter(plan_of(40_000_000, 60_000_000), seen.append, clock)

    def after(seconds: float, message: Message) -> Progress:
        clock.now = 100.0 + seconds
        meter.take(message)
        return seen[-1]

    at_first = after(0.5, Part(0, Reached(0.0)))
    assert (at_first.seconds_left, at_first.left_text, at_first.rate_text) == (None, "", "")
    half = after(10, Part(0, Reached(0.5)))
    assert half.fraction == pytest.approx(0.2)
    assert half.bytes_per_second == pytest.approx(2e6)
    assert half.seconds_left == pytest.approx(40)
    assert (half.rate_text, half.left_text) == ("2.0 MB/s", "40 s left")
    both = after(20, Part(1, Reached(0.5)))
    assert both.fraction == pytest.approx(0.5)
    assert both.seconds_left == pytest.approx(20)
    first_done = after(25, Finished(0))
    assert (first_done.files_done, first_done.files_total) == (1, 2)
    assert first_done.fraction == pytest.approx(0.7)
    # A file that fails has been dealt with all the same.
    end = after(30, Failed(1, "broken"))
    assert (end.files_done, end.fraction, end.seconds_left) == (2, 1.0, 0.0)


def test_files_count_by_what_they_cost_and_nothing_is_done_before_it_is_encoded() -> None:
    seen = list[Progress]()
    media, talk = plan_of(1_500_000_000, 30_000).work
    talk = replace(talk, file=replace(talk.file, kind="transcript"))
    # 100 s of reading for the film, whose words cost as much an hour as those of the talk's two hours.
    run = cast(StreamRun, SimpleNamespace(name="subtitle", cost=Cost(seconds=20.0, bytes=0)))
    work = tuple(replace(one, streams=("subtitle",)) for one in (media, talk))
    plan = Plan(work, hours=3.0, transcript_hours=2.0, streams=(run,))
    assert plan.weights == pytest.approx((10 + 20, 40), rel=1e-3)
    meter = Meter(plan, seen.append, lambda: 0.0)
    meter.take(Part(0, Reached(1.0)))
    assert seen[-1].fraction == pytest.approx(0.95 * 30 / 70, rel=1e-3)
    meter.take(Finished(0))
    assert seen[-1].fraction == pytest.approx(30 / 70, rel=1e-3)
    (only,) = plan_of(100).work
    meter = Meter(Plan((only,), bytes=100), seen.append, lambda: 0.0)
    meter.take(Part(0, Reached(1.0)))
    assert seen[-1].fraction < 0.99
    assert Progress(0, 1, 0.99, 0.0, 0.2, "a").left_text == ""


def test_a_step_after_the_files_tells_its_own_time_left() -> None:
    assert Progress.after_files("measuring", 0.25, 9, 30.0).left_text == "1 min 30 s left"
    assert Progress.after_files("merging", 0.0, 9, 300.0).left_text == ""


def test_a_long_time_left_is_told_in_hours() -> None:
    progress = Progress(0, 1, 0.1, 1.0, 3 * 3600 + 300, "a")
    assert progress.left_text == "3 h 05 min left"


def test_empty_files_alone_are_no_division_by_zero() -> None:
    seen = list[Progress]()
    meter = Meter(plan_of(0, 0), seen.append)
    meter.take(Failed(0, "empty"))
    assert seen[-1].fraction == 0.0


def test_the_summary_names_each_failed_file_once_and_why() -> None:
    summary = Summary(
        failed=[(Path("/v/a.mp4"), "/v/a.mp4: is empty"), (Path("/v/two\nlines.mp4"), "no such codec")],
        damaged=[(Path("/v/c.mp4"), "cut off")],
        left_out=[(Path("/v/d.mp4"), "/v/d.mp4: no permission")],
    )
    lines = summary.lines()
    assert "  /v/a.mp4: is empty" in lines
    assert "  /v/two\\nlines.mp4: no such codec" in lines
    assert "  /v/c.mp4: cut off" in lines
    assert "  /v/d.mp4: no permission" in lines
    told = summary.to_json()
    assert told["failed"][1] == {"path": "/v/two\nlines.mp4", "error": "no such codec"}
    assert told["left_out"] == [{"path": "/v/d.mp4", "why": "/v/d.mp4: no permission"}]
