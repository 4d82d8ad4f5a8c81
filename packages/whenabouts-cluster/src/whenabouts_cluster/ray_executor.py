"""Files read and encoded on a Ray cluster, speech too. The driver alone writes: a run is as safe as without.

Frames go from a reading worker straight to an encoding worker; the driver sees what a file is, and its clips.
A worker or a machine that dies costs nothing but time: its files are read again by others, at most three
times. Nothing here compares the clocks of two machines.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import socket
import subprocess
import sys
import time
import warnings
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from whenabouts.index.executor import SpeechTask, Take
from whenabouts.index.reading import FileRead, ReadVideo
from whenabouts.index.work import Work
from whenabouts.index.workers import Failed, Finished, available_cores
from whenabouts.times import whole_number
from whenabouts.types import WhenaboutsError
from whenabouts.video.cues import CueTrack
from whenabouts.video.opened import MAX_PIXELS
from whenabouts_cluster.ray_workers import EncodingWorker, Lost, ReadingWorker, ShippedRun, about, reason

if TYPE_CHECKING:
    from whenabouts.index.stream import StreamRun

_log = logging.getLogger(__name__)

_REACH_SECONDS, _HEALTH_SECONDS = 5.0, 30.0
_START_SECONDS = 120.0
# How long workers of one kind alone wait for one of the other before one of them makes room, and how often.
_ROOM_SECONDS, _MOST_ROOMS = 10.0, 5
_MOST_ATTEMPTS = 3
_MOST_FAILED_STARTS = 5
# What waits between workers on one machine; a batch of frames has 2 to 44 MB.
_OBJECT_STORE_BYTES = 512 << 20


class ClusterError(WhenaboutsError):
    """A cluster that cannot be reached or used; the message says why, and the remedy."""


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise ClusterError(
            "a cluster needs Ray, which is not installed: pip install 'whenabouts[cluster]'"
        ) from None
    return ray


def check_address(address: str) -> None:
    """Raise ClusterError, within some 30 seconds, where no Ray cluster is reached at "HOST:PORT".

    "local" and "auto" are not looked for.
    """
    _ray()
    if address in ("local", "auto"):
        return
    host, colon, port = address.rpartition(":")
    number = whole_number(port)
    if "://" in address or not (colon and host) or number is None or number >= 1 << 16:
        raise ClusterError(
            f"--ray {address}: give local, auto, or HOST:PORT of the cluster's head (usually port 6379)"
        )
    remedy = "start it there with `ray start --head`, and check the address"
    try:
        socket.create_connection((host, number), _REACH_SECONDS).close()
    except OSError as error:
        raise ClusterError(f"--ray {address}: the cluster cannot be reached ({error}); {remedy}") from None
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", "--address", address]
    with contextlib.suppress(subprocess.TimeoutExpired):
        if not subprocess.run(command, capture_output=True, timeout=_HEALTH_SECONDS, check=False).returncode:
            return
    raise ClusterError(f"--ray {address}: what listens there does not answer as a Ray cluster; {remedy}")


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray, connected to the cluster: one that is started here for "local", and ends with the block."""
    ray = _ray()
    if ray.is_initialized():  # by whoever calls this from Python
        yield ray
        return
    check_address(address)
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == "local":
        options |= {"address": "local", "num_cpus": max(2, available_cores()), "include_dashboard": False}
        options |= {"object_store_memory": _OBJECT_STORE_BYTES}
    else:
        options |= {"address": address}
    try:
        with warnings.catch_warnings():
            # Ray forks only to start its own programs, which have nothing of LanceDB.
            warnings.filterwarnings("ignore", "lancedb fork support")
            ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise ClusterError(
            f"--ray {address}: {' '.join(str(error).split())}. This machine must be one of the cluster's: "
            f"`ray start --address={address}` here, with the same versions of Python and Ray"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


@dataclass(slots=True, eq=False)
class _Worker:
    """A worker of the cluster: `load` files are with it; one that is `alone` gets no others."""

    actor: Any
    is_reader: bool
    load: int = 0
    alone: bool = False
    is_dead: bool = False


@dataclass(slots=True, eq=False)
class _Job:
    """A file under way. `reader` is None once it was read; a stream has many messages."""

    work: Work
    encoder: _Worker
    reader: _Worker | None
    is_stream: bool = True


class RayExecutor:
    """Reads and encodes on the workers of a cluster; `readers` 0: as many as it has room for.

    `speech` is the model by which they recognise speech, "" where there is none to recognise.
    """

    def __init__(
        self, streams: Sequence[StreamRun], address: str, readers: int = 0, speech: str = ""
    ) -> None:
        self._streams, self._address, self._wanted_readers = streams, address, readers
        self._speech = speech
        self._environment = {key: os.environ[key] for key in (MAX_PIXELS,) if key in os.environ}
        self._ray: Any = None
        self._starting: dict[Any, _Worker] = {}
        self._workers: list[_Worker] = []
        self._jobs: dict[Any, _Job] = {}
        self._by_number: dict[int, _Job] = {}
        self._queue: deque[Work] = deque()
        self._losses = Counter[int]()
        self._failed_starts = self._rooms_made = 0

    def run(self, work: Sequence[Work], take: Take) -> None:
        """As `Executor` says. Raises ClusterError for a cluster that cannot do it."""
        if not work:
            return
        self._queue = deque(work)
        with connected(self._address) as self._ray:
            try:
                self._start_workers()
                self._loop(take)
            finally:
                for worker in [*self._workers, *self._starting.values()]:
                    with contextlib.suppress(Exception):  # a cluster that went away took them along
                        self._ray.kill(worker.actor)

    def speech(self, work: Work, task: SpeechTask) -> None:
        """As `Executor` says."""
        encoder = self._by_number[work.task.number].encoder
        stream = encoder.actor.speech.options(num_returns="streaming").remote(work, task)
        self._jobs[stream] = _Job(work, encoder, None)

    def clips(self, work: Work, video: ReadVideo) -> None:
        """As `Executor` says."""
        encoder = self._by_number[work.task.number].encoder
        self._jobs[encoder.actor.clips.remote(work, video)] = _Job(work, encoder, None, is_stream=False)

    # Workers ----------------------------------------------------------------------------------------

    def _start_workers(self) -> None:
        resources = self._ray.cluster_resources()
        cores, gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
        self._gpus = 1 if gpus else 0
        encoders = min(gpus or max(1, cores // 2), len(self._queue))
        readers = min(self._wanted_readers or max(1, cores - encoders), len(self._queue))
        # On a cluster of one core a reader and an encoder share it.
        self._cores = min(1.0, max(cores, 1) / (encoders + readers))
        self._a_worker = math.ceil(readers / encoders)
        # One of each comes first: where there is less room than there seemed, these two do the work.
        for is_reader in (False, True, *[False] * (encoders - 1), *[True] * (readers - 1)):
            self._start(is_reader=is_reader)

    def _start(self, *, is_reader: bool) -> None:
        options: dict[str, Any] = {"num_cpus": self._cores, "scheduling_strategy": "SPREAD"}
        if is_reader:
            actor = self._ray.remote(ReadingWorker).options(**options).remote(self._environment)
        else:
            options |= {"num_gpus": self._gpus, "max_concurrency": 2 * self._a_worker + 2}
            shipped = [ShippedRun.of(run) for run in self._streams]
            actor = (
                self._ray.remote(EncodingWorker)
                .options(**options)
                .remote(shipped, self._environment, self._speech)
            )
        self._starting[actor.about.remote()] = _Worker(actor, is_reader)

    def _welcome(self, reference: Any) -> None:
        """A worker that started; refused where it would make other clips than this process."""
        worker = self._starting.pop(reference)
        try:
            answer = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            why = " ".join(str(error).split())
            # A start that died with its node says nothing about the program; each node dies once.
            self._failed_starts += "node has died" not in why
            if "ModuleNotFoundError" in why or self._failed_starts >= _MOST_FAILED_STARTS:
                raise ClusterError(
                    f"a worker of the cluster {self._address} cannot start; install the same version of "
                    f"whenabouts on all machines: {why[-600:]}"
                ) from None
            self._start(is_reader=worker.is_reader)
            return
        ours = about()
        if (answer.version, answer.python) != (ours.version, ours.python):
            self._ray.kill(worker.actor)
            raise ClusterError(
                f"node {answer.node} has whenabouts {answer.version} on Python {answer.python}, this machine "
                f"{ours.version} on {ours.python}; install the same versions on all machines"
            )
        if answer.problem:
            self._ray.kill(worker.actor)
            raise ClusterError(f"node {answer.node} is not ready: {answer.problem}")
        self._failed_starts = 0
        self._workers.append(worker)

    def _make_room(self) -> None:
        """Where only readers found room, or only encoders, let one of them wait behind those of the other."""
        is_apart = len({worker.is_reader for worker in self._workers}) == 1
        if is_apart and len(self._workers) > 1 and self._rooms_made < _MOST_ROOMS:
            self._rooms_made += 1
            self._replace(self._workers[-1])

    def _replace(self, worker: _Worker) -> None:
        """Another worker for one that is gone, wherever there is room now."""
        if not worker.is_dead:
            worker.is_dead = True
            self._workers.remove(worker)
            self._ray.kill(worker.actor)
            self._start(is_reader=worker.is_reader)

    # Files ------------------------------------------------------------------------------------------

    def _loop(self, take: Take) -> None:
        idle_since = room_made = time.monotonic()
        while self._queue or self._jobs:
            for reference in (ready := self._next_messages()):
                if reference in self._starting:
                    self._welcome(reference)
                elif reference in self._jobs:
                    self._step(reference, take)
            now = time.monotonic()
            if ready or self._jobs:
                idle_since = room_made = now
            elif now - room_made > _ROOM_SECONDS:
                self._make_room()
                room_made = now
            if now - idle_since > _START_SECONDS:
                raise ClusterError(
                    f"the cluster {self._address} started no worker for {_START_SECONDS:.0f} s; it has "
                    f"{self._ray.available_resources().get('CPU', 0):g} cores free: add machines, or wait "
                    "until other jobs are done. What is finished is kept"
                )

    def _next_messages(self) -> Sequence[Any]:
        """Give work to workers that have none, and wait a second for messages."""
        try:
            self._assign()
            waited = [*self._jobs, *self._starting]
            ready = self._ray.wait(waited, num_returns=1, timeout=1.0)[0] if waited else ()
            is_connected = ready or self._jobs or self._is_connected()
        except (OSError, self._ray.exceptions.RayError):
            ready, is_connected = (), False
        if not is_connected:
            raise ClusterError(
                f"the cluster {self._address} went away, or the part of it on this machine. What is finished "
                "is kept; once `ray status` finds it again, the same command goes on from there"
            )
        return ready

    def _is_connected(self) -> bool:
        here = self._ray.get_runtime_context().get_node_id()
        return any(node["NodeID"] == here and node["Alive"] for node in self._ray.nodes())

    def _assign(self) -> None:
        """Give files to readers that have none, each with the encoder that has the fewest."""
        for reader in [worker for worker in self._workers if worker.is_reader and not worker.load]:
            if not self._queue:
                return
            # What was with a worker that died may have killed it: it is tried again by itself.
            alone = self._losses[self._queue[0].task.number] > 0
            most = 1 if alone else self._a_worker
            free = [w for w in self._workers if not w.is_reader and not w.alone and w.load < most]
            if not free:
                return
            encoder = min(free, key=lambda worker: worker.load)
            encoder.alone = alone
            work = self._queue.popleft()
            reader.load += 1
            encoder.load += 1
            job = _Job(work, encoder, reader)
            stream = encoder.actor.read.options(num_returns="streaming").remote(work, reader.actor)
            self._jobs[stream] = self._by_number[work.task.number] = job

    def _step(self, reference: Any, take: Take) -> None:
        """One message of a file."""
        job = self._jobs[reference]
        try:
            message = self._ray.get(next(reference) if job.is_stream else reference)
        except StopIteration:
            self._jobs.pop(reference)
            if job.reader is not None:
                job.reader.load -= 1
            return
        except self._ray.exceptions.RayError as error:
            self._lose(reference, job, f"the encoding worker: {reason(error)}", take)
            return
        if isinstance(message, Lost):
            self._lose(reference, job, f"the reading worker: {message.why}", take)
        elif isinstance(message, Failed):
            self._end(job)
            take(message)
        elif not job.is_stream:
            self._jobs.pop(reference)
            self._end(job)
            take(message)
            take(Finished(message.number))
        else:
            take(message)
            if isinstance(message.content, FileRead | CueTrack) and not self._is_asked_for(job):
                self._end(job)
                take(Finished(message.number))

    def _is_asked_for(self, job: _Job) -> bool:
        of_file = [each for each in self._jobs.values() if each.work is job.work and each is not job]
        return any(each.reader is None for each in of_file)

    def _end(self, job: _Job) -> None:
        """A file has its last message; its reader is free when its stream ends."""
        self._by_number.pop(job.work.task.number, None)
        job.encoder.load -= 1
        job.encoder.alone = False
        for reference in [ref for ref, each in self._jobs.items() if each is job and job.reader is None]:
            self._jobs.pop(reference)

    def _lose(self, reference: Any, job: _Job, why: str, take: Take) -> None:
        """A file whose worker is gone: to be read again, unless that has happened too often."""
        number = job.work.task.number
        _log.warning("%s is gone; reading %s again", why, job.work.task.path)
        of_file = [(ref, each) for ref, each in self._jobs.items() if each.work is job.work]
        for ref, each in of_file:
            self._jobs.pop(ref)
            if each.reader is not None:
                self._replace(each.reader)
        if why.startswith("the encoding"):
            self._replace(job.encoder)
        if number not in self._by_number:  # it had its last message before
            return
        self._end(job)
        self._losses[number] += 1
        if self._losses[number] < _MOST_ATTEMPTS:
            self._queue.append(job.work)
        else:
            reason = f"{self._losses[number]} workers died while they had this file, the last was {why}"
            take(Failed(number, f"{reason}; it may need more memory than they have. --retry tries it again"))


executor = RayExecutor
"""As the seam `whenabouts.executors` names it."""
