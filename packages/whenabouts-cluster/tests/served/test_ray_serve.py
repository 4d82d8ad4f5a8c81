"""Replicas of Ray Serve give the answers of one server, and clients that retry survive a replica's death."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import urlopen

import psutil
import pytest
import yaml
from tests.server.conftest import Open

from whenabouts.types import UsageError
from whenabouts_cluster.ray_serve import Deployment, NoCluster, application, configuration, deploy

WORDS = ("crown jewels", "telescope", "clean room", "humor", "lighthouse")


def test_settings_that_cannot_be_kept_are_refused() -> None:
    with pytest.raises(UsageError, match="--replicas 0: give 1 or more"):
        Deployment("a.corpus", replicas=0)
    with pytest.raises(UsageError, match="--autoscale 4-2"):
        Deployment("a.corpus", least=4, most=2)
    with pytest.raises(UsageError, match=r"replica: not a setting of a deployment; accepted: .*replicas"):
        Deployment.of({"corpus": "a.corpus", "replica": 2})
    assert Deployment.of({"corpus": "a.corpus", "models": "runs/xml"}).models == ("runs/xml",)
    with pytest.raises(UsageError, match="can be reached from other machines"):
        Deployment("a.corpus", host="0.0.0.0").settings("")


def test_a_configuration_file_says_the_same_and_no_token() -> None:
    deployment = Deployment("s3://b/my.corpus", least=1, most=8, models=("xml",), host="0.0.0.0", port=80)
    whole = yaml.safe_load(configuration(deployment))
    [own] = whole["applications"]
    assert own["import_path"] == f"{application.__module__}:application"
    assert Deployment.of(own["args"]) == deployment
    assert whole["http_options"] == {"host": "0.0.0.0", "port": 80}
    assert "token" not in str(own["args"])


@pytest.mark.slow  # importing Ray takes seconds
def test_a_cluster_that_is_not_there_is_said_at_once(indexed: Path) -> None:
    with pytest.raises(NoCluster, match=r"no Ray cluster at 127\.0\.0\.1:1: .*ray start --head"):
        deploy(Deployment(str(indexed)), "", "127.0.0.1:1")


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


@pytest.fixture
def deployed(indexed: Path, tmp_path: Path) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    port = free_port()
    command = [sys.executable, "-m", "whenabouts", "deploy", "ray", "--corpus", str(indexed)]
    command += ["--replicas", "2", "--cpus", "0.5", "--port", str(port), "--memory", "4000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert "serving at" in line, f"it did not start: {line!r}"
            yield port, process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                process.kill()


def asked(port: int, words: str, tries: int) -> tuple[dict[str, Any], int]:
    """The answer and the number of tries, with the retries that docs/scaling.md recommends."""
    for number in range(1, tries + 1):
        try:
            with urlopen(
                f"http://127.0.0.1:{port}/api/search?query={quote(words)}&k=5", timeout=60
            ) as answer:
                return json.loads(answer.read()), number
        except HTTPError as error:
            assert error.code >= 500, error.read()
        except (URLError, ConnectionError):
            pass
        time.sleep(0.3 * number)
    raise AssertionError(f"no answer after {tries} tries")


def replicas_of(process: subprocess.Popen[str]) -> list[int]:
    names = ((child.pid, " ".join(child.cmdline())) for child in psutil.Process(process.pid).children(True))
    return [pid for pid, name in names if name.startswith("ray::ServeReplica")]


@pytest.mark.slow
def test_two_replicas_answer_as_serve_does_and_one_may_die(
    opened: Open, indexed: Path, deployed: tuple[int, subprocess.Popen[str]]
) -> None:
    port, process = deployed
    client = opened(indexed)
    alone = {words: client.json("/api/search", query=words, k=5) for words in WORDS}
    for words in WORDS * 3:
        assert asked(port, words, 1)[0] == alone[words]
    before, stop = replicas_of(process), time.monotonic() + 20
    assert len(before) == 2
    tries, wrong = list[int](), list[Any]()

    def ask_on(number: int) -> None:
        turn = number
        while time.monotonic() < stop:
            words = WORDS[turn % len(WORDS)]
            try:
                answer, count = asked(port, words, 6)
                tries.append(count)
                if answer != alone[words]:
                    wrong.append(answer)
            except Exception as error:
                wrong.append(error)
            turn += 1

    threads = [threading.Thread(target=ask_on, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    time.sleep(3)
    os.kill(before[0], signal.SIGKILL)
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:3]
    assert len(tries) > 20
    deadline = time.monotonic() + 90
    while len(set(replicas_of(process)) - {before[0]}) < 2:
        assert time.monotonic() < deadline, "no other replica took its place"
        time.sleep(1)
