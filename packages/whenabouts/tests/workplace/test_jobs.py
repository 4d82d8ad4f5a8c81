"""The queue of a corpus: requests that a job allows, its order, and recovery after a dead runner."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from whenabouts.index.records import StoreError
from whenabouts.types import UsageError
from whenabouts.workplace.collections import Collections
from whenabouts.workplace.database import _COLLECTIONS, FILE, Database
from whenabouts.workplace.jobs import MOST_KEPT, MOST_OPEN, MOST_TRIES, Job, Jobs, NoSuchJob, NotPossible


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(Database(str(tmp_path)))


def states(jobs: Jobs) -> list[str]:
    return [job.state for job in jobs.listed()]


def taken(jobs: Jobs) -> Job:
    job = jobs.take()
    assert job is not None
    return job


def test_a_job_is_planned_started_run_and_ended(jobs: Jobs) -> None:
    job = jobs.plan({"paths": ["/videos"]})
    assert (job.state, job.kind, job.task) == ("planning", "index", {"paths": ["/videos"]})
    assert jobs.take() is None
    assert jobs.next_plan() == job
    jobs.planned(job.id, {"files": 3})
    assert jobs.next_plan() is None and jobs.get(job.id).plan == {"files": 3}
    assert jobs.ask(job.id, "start").state == "waiting"
    running = taken(jobs)
    assert (running.id, running.state, running.tries) == (job.id, "running", 1)
    jobs.note(job.id, {"fraction": 0.5})
    assert jobs.get(job.id).progress == {"fraction": 0.5}
    jobs.end(job.id, "done", {"added": 3})
    assert (jobs.get(job.id).state, jobs.get(job.id).outcome) == ("done", {"added": 3})


def test_jobs_are_taken_in_the_order_in_which_they_came(jobs: Jobs) -> None:
    ids = [jobs.queue("remove", {"videos": [str(number)]}).id for number in range(3)]
    assert [taken(jobs).id for _ in ids] == ids
    assert jobs.take() is None


@pytest.mark.parametrize(
    ("wish", "state"), [("pause", "paused"), ("stop", "stopped"), ("continue", "waiting")]
)
def test_a_running_job_that_is_interrupted_has_the_state_that_was_wished(
    jobs: Jobs, wish: str, state: str
) -> None:
    job = jobs.queue("index", {"paths": ["/videos"]})
    taken(jobs)
    assert jobs.ask(job.id, wish).wish == wish  # type: ignore[arg-type]
    jobs.end(job.id, "interrupted", {})
    assert (jobs.get(job.id).state, jobs.get(job.id).wish) == (state, "")


def test_a_job_that_is_done_before_it_could_stop_is_done(jobs: Jobs) -> None:
    job = jobs.queue("index", {"paths": ["/videos"]})
    taken(jobs)
    jobs.ask(job.id, "stop")
    jobs.end(job.id, "done", {})
    assert states(jobs) == ["done"]


def test_what_cannot_be_asked_of_a_job_is_refused_and_changes_nothing(jobs: Jobs) -> None:
    job = jobs.plan({"paths": ["/videos"]})
    with pytest.raises(NotPossible, match="this job is planning, so it cannot be paused"):
        jobs.ask(job.id, "pause")
    jobs.ask(job.id, "stop")
    with pytest.raises(NotPossible, match="stopped, so it cannot be continued"):
        jobs.ask(job.id, "continue")
    jobs.planned(job.id, {"files": 3})  # the planner was still at it
    jobs.end(job.id, "failed", {})
    assert (states(jobs), jobs.get(job.id).plan) == (["stopped"], {})
    for refused in (lambda: jobs.get("nobody"), lambda: jobs.forget("nobody")):
        with pytest.raises(NoSuchJob, match="no job 'nobody'"):
            refused()
    with pytest.raises(NoSuchJob):
        jobs.ask("nobody", "stop")


@pytest.mark.parametrize("state", ["failed", "interrupted"])
def test_a_job_that_could_not_be_planned_is_planned_again_and_not_run(jobs: Jobs, state: str) -> None:
    job = jobs.plan({"paths": ["/videos"]})
    jobs.end(job.id, state, {"message": "the disk is gone"})
    again = jobs.ask(job.id, "continue")
    assert (again.state, again.outcome, jobs.take()) == ("planning", {}, None)
    jobs.planned(job.id, {"files": 3})
    jobs.ask(job.id, "start")
    jobs.end(taken(jobs).id, "failed", {})
    assert jobs.ask(job.id, "continue").state == "waiting"


def test_a_job_that_waits_or_runs_is_not_forgotten(jobs: Jobs) -> None:
    job = jobs.queue("index", {"paths": ["/videos"]})
    with pytest.raises(NotPossible, match="stop it first"):
        jobs.forget(job.id)
    jobs.ask(job.id, "pause")
    jobs.forget(job.id)
    assert jobs.listed() == []


def test_what_a_dead_runner_leaves_waits_again_but_not_for_ever(jobs: Jobs) -> None:
    jobs.recover()
    assert jobs.listed() == []
    job = jobs.queue("index", {"paths": ["/videos"]})
    for tries in range(1, MOST_TRIES + 1):
        assert taken(jobs).tries == tries
        jobs.recover()
    assert jobs.get(job.id).state == "interrupted" and "several times" in jobs.get(job.id).outcome["message"]
    again = jobs.ask(job.id, "continue")
    assert (again.state, again.tries, again.outcome) == ("waiting", 0, {})
    taken(jobs)
    jobs.ask(job.id, "pause")
    jobs.recover()
    assert states(jobs) == ["paused"]


def test_the_counts_of_a_job_that_ran_in_parts_add_up(jobs: Jobs) -> None:
    job = jobs.queue("index", {"paths": ["/videos"]})
    taken(jobs)
    jobs.end(job.id, "waiting", {"added": 250, "updated": 1, "unchanged": 9, "seconds": 2.5, "failed": []})
    assert (states(jobs), jobs.get(job.id).outcome["added"]) == (["waiting"], 250)
    taken(jobs)
    jobs.ask(job.id, "pause")
    jobs.end(job.id, "interrupted", {"added": 50, "updated": 0, "unchanged": 260, "seconds": 0.5})
    assert states(jobs) == ["paused"]
    jobs.ask(job.id, "continue")
    taken(jobs)
    jobs.end(job.id, "waiting", {})  # killed before it could report
    taken(jobs)
    jobs.end(job.id, "done", {"added": 100, "updated": 0, "unchanged": 310, "seconds": 1.0})
    counts = jobs.get(job.id).outcome
    assert counts == {"added": 400, "updated": 1, "unchanged": 9, "seconds": 4.0}


def test_a_server_that_ends_leaves_a_job_to_the_next_unless_a_user_paused_it(jobs: Jobs) -> None:
    job = jobs.queue("index", {"paths": ["/videos"]})
    taken(jobs)
    jobs.ask(job.id, "pause")
    jobs.end(job.id, "waiting", {})
    assert states(jobs) == ["paused"]


def test_counts_that_a_stranger_wrote_into_a_queue_are_ignored(jobs: Jobs, tmp_path: Path) -> None:
    job = jobs.queue("index", {"paths": ["/videos"]})
    taken(jobs)
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute(
            "UPDATE jobs SET outcome = ?", ('{"added": "many", "failed": {}, "seconds": null}',)
        )
    jobs.end(job.id, "done", {"added": 2, "unchanged": 0})
    assert jobs.get(job.id).outcome == {"added": 2, "unchanged": 0}


@pytest.mark.slow
def test_the_queue_has_bounds(jobs: Jobs) -> None:
    for _ in range(MOST_KEPT + 3):
        jobs.ask(jobs.plan({"paths": ["/videos"]}).id, "stop")
    assert len(jobs.listed()) == MOST_KEPT + 1  # older ones are forgotten when a new job comes
    for _ in range(MOST_OPEN):
        jobs.plan({"paths": ["/videos"]})
    with pytest.raises(UsageError, match="stop one first"):
        jobs.plan({"paths": ["/videos"]})
    with pytest.raises(UsageError, match="choose fewer files"):
        jobs.plan({"paths": ["x" * 600_000]})


def test_folders_are_watched_whatever_bytes_their_names_have(jobs: Jobs) -> None:
    strange = b"/films/\xff".decode("utf-8", "surrogateescape")
    jobs.watch(strange)
    jobs.watch("/films/new")
    jobs.watch(strange)
    assert [each.path for each in jobs.watched()] == ["/films/new", strange]
    jobs.note_watched([strange], {"added": 2})
    assert [each.last for each in jobs.watched()] == [{}, {"added": 2}]
    jobs.unwatch(strange)
    assert [each.path for each in jobs.watched()] == ["/films/new"]


def test_a_file_of_the_version_before_gets_a_queue_and_keeps_its_collections(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE) as connection:
        for statement in (*_COLLECTIONS, "PRAGMA user_version = 1"):
            connection.execute(statement)
        connection.execute("INSERT INTO collections VALUES ('1', 'film', '', 0.0)")
    connection.close()
    jobs, collections = Jobs(Database(str(tmp_path))), Collections(Database(str(tmp_path)))
    assert jobs.listed() == [] and jobs.watched() == []
    jobs.recover()
    assert [each.name for each in collections.listed()] == ["film"]
    jobs.queue("remove", {"videos": ["a"]})
    assert states(jobs) == ["waiting"]
    assert [each.name for each in collections.listed()] == ["film"]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE jobs SET kind = 'shell'",
        "UPDATE jobs SET state = 'anything'",
        "UPDATE jobs SET task = '['",
        "UPDATE jobs SET plan = '[1]'",
        f"UPDATE jobs SET outcome = '{'[' * 50_000}'",
        "INSERT INTO watched VALUES ('/films', 0.0, '{}')",
        "INSERT INTO watched VALUES ('\"/films\"', 0.0, 'null')",
    ],
)
def test_a_queue_that_a_stranger_wrote_is_refused(jobs: Jobs, tmp_path: Path, statement: str) -> None:
    jobs.queue("index", {"paths": ["/videos"]})
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute(statement)
    connection.close()
    with pytest.raises(StoreError, match="of this corpus is invalid"):
        jobs.listed(), jobs.watched()
