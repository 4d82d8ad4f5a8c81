"""An agent adds videos while the page of the same corpus is served."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the extra server is not installed")

from tests.server.conftest import wait_until

from whenabouts.agents.adding import AddingTools
from whenabouts.corpus import Corpus
from whenabouts.server.jobs_runner import Runner


@pytest.mark.slow
def test_page_and_agent_share_a_queue_whose_runner_must_be_allowed_the_folder(tmp_path: Path) -> None:
    for name in ("films", "talks"):
        (tmp_path / name).mkdir()
        words = f"WEBVTT\n\n00:00.000 --> 00:04.000\nwords of {name}\n"
        (tmp_path / name / "a.vtt").write_text(words, encoding="utf-8")
    corpus = Corpus(tmp_path / "c.corpus", create=True)
    page = Runner(corpus, [tmp_path / "films"])
    agent = AddingTools(corpus, [tmp_path / "films", tmp_path / "talks"])
    page.start()
    assert wait_until(lambda: (tmp_path / "c.corpus" / "jobs" / "queue.lock").exists())
    agent.runner.start()
    try:
        planned = agent.add_videos(["films"])
        assert (planned["state"], planned["plan"]["new"]) == ("planned", 1)
        refused = agent.add_videos(["talks"])
        assert (refused["state"], refused["places"]) == ("failed", ["talks"])
        assert "give both the same --allow" in refused["outcome"]["message"]
        page.close()
        assert agent.add_videos(["talks"])["state"] == "planned"
    finally:
        page.close()
        agent.runner.close()


def test_a_job_of_a_strangers_corpus_is_shown(tmp_path: Path) -> None:
    (tmp_path / "films").mkdir()
    agent = AddingTools(Corpus(tmp_path / "c.corpus", create=True), [tmp_path / "films"])
    agent.runner.jobs.queue("index", {"paths": 7})
    assert agent.job(wait=0)["places"] == []
    agent.runner.jobs.queue("index", {"paths": ["/etc", str(tmp_path / "films")]})
    assert agent.job(wait=0)["places"] == ["a folder outside --allow", "films"]


def test_calls_that_wait_for_a_job_leave_threads_to_the_others(tmp_path: Path) -> None:
    (tmp_path / "films").mkdir()
    agent = AddingTools(Corpus(tmp_path / "c.corpus", create=True), [tmp_path / "films"])
    agent.runner.jobs.queue("index", {"paths": [str(tmp_path / "films")]})  # no server runs the queue
    with ThreadPoolExecutor(30) as pool:
        began = time.monotonic()
        calls = [pool.submit(agent.job, wait=3) for _ in range(30)]
        done, _ = wait(calls, timeout=2)
        assert len(done) == 30 - 8
        assert {call.result()["state"] for call in calls} == {"waiting"}
        assert time.monotonic() - began > 2.5
