"""Index videos on a Ray cluster: workers read and encode files and recognise speech.

`whenabouts index --ray` loads this module through the entry point `ray` of `whenabouts.executors`, as
`executor`. Only the driver (this process) writes to the corpus, so an index run is as safe as on one machine.
Frames go from a reading worker directly to an encoding worker; the driver receives a file's metadata and its
clips. If a worker or a machine dies, other workers read its files again, in at most three attempts. Nothing
here compares the clocks of two machines.
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
# If the cluster started only readers or only encoders: how long until one of them is stopped, and how often.
_SWAP_SECONDS, _MAX_SWAPS = 10.0, 5
_MAX_ATTEMPTS = 3
_MAX_FAILED_STARTS = 5
# Holds the batches between workers on one machine; a batch of frames is 2 to 44 MB.
_OBJECT_STORE_BYTES = 512 << 20


class ClusterError(WhenaboutsError):
    """A cluster cannot be reached or used; the message gives the cause and the remedy."""


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
    """Raise ClusterError, after at most some 35 seconds, if no Ray cluster answers at "HOST:PORT".

    "local" and "auto" pass if Ray is installed.
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
    raise ClusterError(f"--ray {address}: the program that listens there is not a Ray cluster; {remedy}")


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray, connected to a cluster until the block ends; "local" starts one here. Raises ClusterError."""
    ray = _ray()
    if ray.is_initialized():  # by a Python caller: its cluster is used and its connection stays
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
            # Ray forks only to start its own programs, which do not use LanceDB.
            warnings.filterwarnings("ignore", "lancedb fork support")
            ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        head = address if ":" in address else "HOST:PORT"
        raise ClusterError(
            f"--ray {address}: {' '.join(str(error).split())}. This machine must belong to the cluster: run "
            f"`ray start --address={head}` here, with the same versions of Python and Ray"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


@dataclass(slots=True, eq=False)
class _Worker:
    """A worker of the cluster with `load` files; while it `is_exclusive` it gets no second file."""

    actor: Any
    is_reader: bool
    load: int = 0
    is_exclusive: bool = False
    is_dead: bool = False


@dataclass(slots=True, eq=False)
class _Job:
    """A call to a worker about one file: to read it (`reader` set), recognise its speech, or make its clips.

    A stream yields many messages, another call one.
    """

    work: Work
    encoder: _Worker
    reader: _Worker | None
    is_stream: bool = True


class RayExecutor:
    """Reads and encodes files on the workers of a cluster (see `whenabouts.index.executor.Executor`).

    `readers` 0 starts as many reading workers as the cluster has cores for. `speech` names the model for
    speech recognition, "" for none.
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
        self._failed_starts = self._swaps = 0

    def run(self, work: Sequence[Work], take: Take) -> None:
        """As `Executor.run`. Raises ClusterError if the cluster cannot do the work."""
        if not work:
            return
        self._queue = deque(work)
        with connected(self._address) as self._ray:
            try:
                self._start_workers()
                self._loop(take)
            finally:
                for worker in [*self._workers, *self._starting.values()]:
                    with contextlib.suppress(Exception):  # a lost cluster has no workers any more
                        self._ray.kill(worker.actor)

    def speech(self, work: Work, task: SpeechTask) -> None:
        """As `Executor.speech`."""
        encoder = self._by_number[work.task.number].encoder
        stream = encoder.actor.speech.options(num_returns="streaming").remote(work, task)
        self._jobs[stream] = _Job(work, encoder, None)

    def clips(self, work: Work, video: ReadVideo) -> None:
        """As `Executor.clips`."""
        encoder = self._by_number[work.task.number].encoder
        self._jobs[encoder.actor.clips.remote(work, video)] = _Job(work, encoder, None, is_stream=False)

    # Workers ----------------------------------------------------------------------------------------

    def _start_workers(self) -> None:
        resources = self._ray.cluster_resources()
        cores, gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
        self._gpus = 1 if gpus else 0
        encoders = min(gpus or max(1, cores // 2), len(self._queue))
        readers = min(self._wanted_readers or max(1, cores - encoders), len(self._queue))
        # If the cluster has one core, the reader and the encoder share it.
        self._cores = min(1.0, max(cores, 1) / (encoders + readers))
        self._files_per_encoder = math.ceil(readers / encoders)
        # One of each starts first: if the cluster has less room than it reports, these two do the work.
        for is_reader in (False, True, *[False] * (encoders - 1), *[True] * (readers - 1)):
            self._start(is_reader=is_reader)

    def _start(self, *, is_reader: bool) -> None:
        options: dict[str, Any] = {"num_cpus": self._cores, "scheduling_strategy": "SPREAD"}
        kind: type[Any] = ReadingWorker
        arguments: list[Any] = [self._environment]
        if not is_reader:
            options |= {"num_gpus": self._gpus, "max_concurrency": 2 * self._files_per_encoder + 2}
            shipped = [ShippedRun.of(run) for run in self._streams]
            kind, arguments = EncodingWorker, [shipped, self._environment, self._speech]
        actor = self._ray.remote(kind).options(**options).remote(*arguments)
        self._starting[actor.about.remote()] = _Worker(actor, is_reader)

    def _welcome(self, reference: Any) -> None:
        """Accept a started worker. Raises ClusterError if it would make other clips than this process."""
        worker = self._starting.pop(reference)
        try:
            answer = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            why = " ".join(str(error).split())
            # A start that failed because its node died is not the program's fault, and each node dies once.
            self._failed_starts += "node has died" not in why
            if "ModuleNotFoundError" in why or self._failed_starts >= _MAX_FAILED_STARTS:
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
        """If only readers or only encoders run, stop one, so that one of the other kind can start."""
        is_one_kind = len({worker.is_reader for worker in self._workers}) == 1
        if is_one_kind and len(self._workers) > 1 and self._swaps < _MAX_SWAPS:
            self._swaps += 1
            self._replace(self._workers[-1])

    def _replace(self, worker: _Worker) -> None:
        """Stop a worker and start another of its kind, on any machine with room."""
        if not worker.is_dead:
            worker.is_dead = True
            self._workers.remove(worker)
            self._ray.kill(worker.actor)
            self._start(is_reader=worker.is_reader)

    # Files ------------------------------------------------------------------------------------------

    def _loop(self, take: Take) -> None:
        idle_since = swapped_at = time.monotonic()
        while self._queue or self._jobs:
            for reference in (ready := self._next_messages()):
                if reference in self._starting:
                    self._welcome(reference)
                elif reference in self._jobs:
                    self._step(reference, take)
            now = time.monotonic()
            if ready or self._jobs:
                idle_since = swapped_at = now
            elif now - swapped_at > _SWAP_SECONDS:
                self._make_room()
                swapped_at = now
            if now - idle_since > _START_SECONDS:
                raise ClusterError(
                    f"the cluster {self._address} started no worker for {_START_SECONDS:.0f} s; it has "
                    f"{self._ray.available_resources().get('CPU', 0):g} cores free: add machines, or wait "
                    "until other jobs are done. Finished videos are kept"
                )

    def _next_messages(self) -> Sequence[Any]:
        """Give files to idle readers, and wait at most a second for messages. Raises ClusterError."""
        try:
            self._assign()
            waited = [*self._jobs, *self._starting]
            ready = self._ray.wait(waited, num_returns=1, timeout=1.0)[0] if waited else ()
            is_connected = ready or self._jobs or self._is_connected()
        except (OSError, self._ray.exceptions.RayError):
            ready, is_connected = (), False
        if not is_connected:
            raise ClusterError(
                f"the cluster {self._address}, or its node on this machine, was lost. Finished videos are "
                "kept; once `ray status` finds the cluster again, run the same command to continue"
            )
        return ready

    def _is_connected(self) -> bool:
        here = self._ray.get_runtime_context().get_node_id()
        return any(node["NodeID"] == here and node["Alive"] for node in self._ray.nodes())

    def _assign(self) -> None:
        """Give a file to each idle reader, together with the encoder that has the fewest files."""
        for reader in [worker for worker in self._workers if worker.is_reader and not worker.load]:
            if not self._queue:
                return
            # A file whose worker died may have killed it: the next attempt shares its encoder with no file.
            is_exclusive = self._losses[self._queue[0].task.number] > 0
            limit = 1 if is_exclusive else self._files_per_encoder
            free = [w for w in self._workers if not w.is_reader and not w.is_exclusive and w.load < limit]
            if not free:
                return
            encoder = min(free, key=lambda worker: worker.load)
            encoder.is_exclusive = is_exclusive
            work = self._queue.popleft()
            reader.load += 1
            encoder.load += 1
            job = _Job(work, encoder, reader)
            stream = encoder.actor.read.options(num_returns="streaming").remote(work, reader.actor)
            self._jobs[stream] = self._by_number[work.task.number] = job

    def _step(self, reference: Any, take: Take) -> None:
        """Handle one message about a file."""
        job = self._jobs[reference]
        try:
            message = self._ray.get(next(reference) if job.is_stream else reference)
        except StopIteration:
            self._jobs.pop(reference)
            if job.reader is not None:
                job.reader.load -= 1
            if job.work.task.number in self._by_number and not self._jobs_of(job.work):
                # The file would be neither finished nor failed.
                self._lose(reference, job, "the encoding worker: its messages broke off, it", take)
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
            take(message)  # this may ask for the file's speech or clips
            calls = [each for each in self._jobs_of(job.work).values() if each.reader is None]
            if isinstance(message.content, FileRead | CueTrack) and all(each is job for each in calls):
                self._end(job)
                take(Finished(message.number))

    def _jobs_of(self, work: Work) -> dict[Any, _Job]:
        """The calls about a file that are not answered yet."""
        return {reference: job for reference, job in self._jobs.items() if job.work is work}

    def _end(self, job: _Job) -> None:
        """Release the encoder after a file's last message; the reader is released when its stream ends."""
        self._by_number.pop(job.work.task.number, None)
        job.encoder.load -= 1
        job.encoder.is_exclusive = False
        for reference in [ref for ref, each in self._jobs.items() if each is job and job.reader is None]:
            self._jobs.pop(reference)

    def _lose(self, reference: Any, job: _Job, why: str, take: Take) -> None:
        """Queue a file again after its worker died, or fail it after `_MAX_ATTEMPTS`."""
        number = job.work.task.number
        _log.warning("%s died; reading %s again", why, job.work.task.path)
        for ref, each in self._jobs_of(job.work).items():
            self._jobs.pop(ref)
            if each.reader is not None:
                self._replace(each.reader)
        if why.startswith("the encoding"):
            self._replace(job.encoder)
        if number not in self._by_number:  # its last message came before the worker died
            return
        self._end(job)
        self._losses[number] += 1
        if self._losses[number] < _MAX_ATTEMPTS:
            self._queue.append(job.work)
        else:
            cause = f"{self._losses[number]} workers died while they had this file, the last was {why}"
            take(Failed(number, f"{cause}; it may need more memory than they have. --retry tries it again"))


executor = RayExecutor
"""The name that `whenabouts.executors` asks for."""
