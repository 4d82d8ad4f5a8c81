from __future__ import annotations

import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from whenabouts.index.estimate import Estimate
from whenabouts.index.plan import Plan
from whenabouts.index.progress import Heartbeat, Meter, Progress, Summary
from whenabouts.index.reading import Reached, ReadTask
from whenabouts.index.work import Work
from whenabouts.index.workers import Failed, Finished, Message, Part
from whenabouts.video.files import SourceFile


def plan_of(*sizes: int, seconds: tuple[float, ...] = ()) -> Plan:
    """A plan of files of these sizes; without `seconds` each is estimated to take as long as it is large."""
    work = tuple(
        Work(
            ReadTask(number, Path(f"/v/{number}.mp4"), "media"),
            ("new",),
            SourceFile(Path(f"/v/{number}.mp4"), "media", (), size, 0),
            {},
        )
        for number, size in enumerate(sizes)
    )
    return Plan(work, estimate=Estimate(files=seconds or tuple(map(float, sizes))))


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
    meter = Meter(plan_of(1_500_000_000, 30_000, seconds=(30.0, 40.0)), seen.append, lambda: 0.0)
    meter.take(Part(0, Reached(1.0)))
    assert seen[-1].fraction == pytest.approx(0.95 * 30 / 70)
    meter.take(Finished(0))
    assert seen[-1].fraction == pytest.approx(30 / 70)
    meter = Meter(plan_of(100), seen.append, lambda: 0.0)
    meter.take(Part(0, Reached(1.0)))
    assert seen[-1].fraction < 0.99
    assert Progress(0, 1, 0.99, 0.0, 0.2, "a").left_text == ""


def test_a_file_whose_speech_is_yet_to_be_recognised_counts_for_what_is_read() -> None:
    seen = list[Progress]()
    plan = plan_of(1, seconds=(100.0,))
    plan = replace(plan, estimate=replace(plan.estimate, speech=(80.0,)))
    meter = Meter(plan, seen.append, lambda: 0.0)
    meter.take(Part(0, Reached(1.0)))
    assert seen[-1].fraction == pytest.approx(0.2)
    meter.recognise(0, duration=60.0, seconds=30.0)
    assert seen[-1].fraction == pytest.approx(0.6)
    meter.recognise(0, duration=60.0, seconds=60.0)
    assert seen[-1].fraction == pytest.approx(0.95)


class Beats:
    """A heartbeat with its clocks in hand, in whose hands the meter of a run is."""

    def __init__(self, plan: Plan) -> None:
        self.seen = list[Progress]()
        self.clock, self.processor = Clock(), Clock()
        self.heart = Heartbeat(self.seen.append, self.clock, self.processor)
        self.meter = Meter(plan, self.heart.report, self.clock)

    def pass_by(self, seconds: float, worked: float) -> Progress:
        """Time goes on in which nothing is reported, in steps of half a second."""
        for _ in range(round(2 * seconds)):
            self.clock.now += 0.5
            self.processor.now += worked / seconds / 2
            self.heart.beat()
        return self.seen[-1]


def test_between_reports_the_bar_moves_each_second_by_what_the_processor_works() -> None:
    beats = Beats(plan_of(1, 1, seconds=(30.0, 70.0)))
    beats.meter.take(Part(0, Reached(0.0)))
    told = len(beats.seen)
    beats.pass_by(20, worked=10)
    between = [progress.fraction for progress in beats.seen[told:]]
    assert len(between) == 20, "once a second"
    assert all(later > earlier for earlier, later in pairwise(between))
    assert between[-1] == pytest.approx(0.1), "10 of the 100 processor seconds of the plan"


def test_a_file_that_takes_longer_than_planned_never_runs_past_what_is_under_way() -> None:
    beats = Beats(plan_of(1, 1, seconds=(30.0, 70.0)))
    beats.meter.take(Part(0, Reached(0.0)))
    early, late, later = (beats.pass_by(30, worked=30).fraction for _ in range(3))
    assert early < late < later < 0.95 * 0.3


def test_the_bar_never_goes_back_and_goes_on_from_what_it_has_told() -> None:
    beats = Beats(plan_of(1, seconds=(100.0,)))
    beats.meter.take(Part(0, Reached(0.0)))
    ahead = beats.pass_by(20, worked=40).fraction
    assert ahead == pytest.approx(0.4)
    beats.meter.take(Part(0, Reached(0.3)))
    assert beats.seen[-1].fraction == ahead
    slower = beats.pass_by(10, worked=10).fraction
    assert ahead < slower < ahead + 0.1
    beats.meter.take(Finished(0))
    assert beats.seen[-1].fraction == 1.0
    beats.heart.report(Progress.after_files("merging", 0.0, 1))
    assert beats.seen[-1].fraction == 0.0, "a step of its own begins anew"


def test_the_time_left_counts_down_between_reports() -> None:
    beats = Beats(plan_of(1, 1, seconds=(50.0, 50.0)))
    beats.meter.take(Part(0, Reached(0.0)))
    beats.clock.now += 10
    beats.meter.take(Finished(0))
    assert beats.seen[-1].seconds_left == pytest.approx(10)
    assert beats.pass_by(4, worked=0).seconds_left == pytest.approx(6)
    assert beats.pass_by(10, worked=0).seconds_left == 0.0


def test_a_heart_beats_by_itself_until_it_is_left() -> None:
    beaten = threading.Event()
    with Heartbeat(lambda progress: beaten.set() if progress.seconds_left == 0.0 else None) as report:
        assert report is not None
        report(Progress(0, 1, 0.0, 0.0, 0.1, "a"))
        assert beaten.wait(10)
    beaten.clear()
    assert not beaten.wait(1.6)
    with Heartbeat(None) as report:
        assert report is None


def test_what_fails_between_reports_is_raised_at_the_next_one() -> None:
    failed = threading.Event()

    def show(progress: Progress) -> None:
        if progress.seconds_left == 0.0:
            failed.set()
            raise OSError("the pipe is closed")

    with Heartbeat(show) as report:
        assert report is not None
        report(Progress(0, 1, 0.0, 0.0, 0.1, "a"))
        assert failed.wait(10)
        with pytest.raises(OSError, match="the pipe is closed"):
            for _ in range(100):
                report(Progress(0, 1, 0.0, 0.0, 9.0, "a"))
                threading.Event().wait(0.05)


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
        again=[Path("/v/a.mp4")],
    )
    lines = summary.lines()
    assert "  /v/a.mp4: is empty" in lines
    assert "  /v/two\\nlines.mp4: no such codec" in lines
    assert "  /v/c.mp4: cut off" in lines
    assert "  /v/d.mp4: no permission" in lines
    told = summary.to_json()
    assert told["failed"][1] == {"path": "/v/two\nlines.mp4", "error": "no such codec", "again": False}
    assert told["failed"][0]["again"] and "1 not read, through no fault of the file" in "\n".join(lines)
    assert told["left_out"] == [{"path": "/v/d.mp4", "why": "/v/d.mp4: no permission"}]
