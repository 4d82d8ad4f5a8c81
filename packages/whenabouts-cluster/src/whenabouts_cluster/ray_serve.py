"""Serve a corpus by replicas of Ray Serve, on one machine or many; each runs the app of `whenabouts serve`.

Replicas share no state: each opens the corpus itself and follows the writes to it. Ray's proxy sends each
request to a replica with room, and Ray replaces a replica that dies. A request to a dying replica ends with
status 500 or 503, and the client must repeat it. `whenabouts deploy` calls this module; a configuration file
for `serve deploy` names its function `application`.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import whenabouts
from whenabouts.corpus import Corpus
from whenabouts.server.settings import DEFAULT_PORT, TOKEN_VARIABLE, Limits, Settings, named_models
from whenabouts.times import whole_number
from whenabouts.types import UsageError, WhenaboutsError

NAME = "whenabouts"
# Requests that a replica handles at a time: enough to encode queries together, few enough to share the load.
_MAX_REQUESTS = 32
_HEALTH_SECONDS = 10.0
_CONNECT_SECONDS = 5.0


class NoCluster(WhenaboutsError):
    """A Ray cluster cannot be reached or used."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """Which corpus is served, and by how many replicas, as plain values that a configuration file can hold.

    The number of replicas is fixed (`replicas`), or follows the load between `least` and `most` (both 0: it
    is fixed). Each replica has `cpus` processors and `memory_mb` of memory (0: three quarters of its
    machine's) and must have the same `version` of whenabouts. `time_limit` is in seconds a request; `models`
    and `files` are those of `Settings`. The token is not a field: replicas take it from $WHENABOUTS_TOKEN, or
    from the process that deploys. Raises UsageError for wrong numbers of replicas or processors.
    """

    corpus: str
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    replicas: int = 1
    least: int = 0
    most: int = 0
    cpus: float = 1.0
    memory_mb: int = 0
    time_limit: float = 60.0
    models: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    version: str = whenabouts.__version__

    def __post_init__(self) -> None:
        if self.replicas < 1:
            raise UsageError(f"--replicas {self.replicas}: give 1 or more")
        if not 0 <= self.cpus < math.inf:
            raise UsageError(f"--cpus {self.cpus:g}: accepted: a number, 0 or more")
        if (self.least, self.most) != (0, 0) and not 1 <= self.least <= self.most:
            raise UsageError(
                f"--autoscale {self.least}-{self.most}: give a minimum of 1 or more, and a maximum not below"
            )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Deployment:
        """A deployment from the values of a configuration file. Raises UsageError for an unknown field."""
        names = {field.name for field in fields(cls)}
        if unknown := sorted(values.keys() - names):
            raise UsageError(
                f"{', '.join(unknown)}: not a setting of a deployment; accepted: {', '.join(sorted(names))}"
            )
        given = dict(values)
        for name in ("models", "files"):
            named = given.get(name, ())
            given[name] = (named,) if isinstance(named, str) else tuple(named)
        return cls(**given)

    def settings(self, token: str) -> Settings:
        """The settings of each replica's server. Raises UsageError."""
        memory = {"memory_bytes": self.memory_mb << 20} if self.memory_mb else {}
        return Settings(
            host=self.host,
            port=self.port,
            token=token,
            models=named_models(self.models),
            files=tuple(map(Path, self.files)),
            limits=Limits(job_seconds=self.time_limit, **memory),
        )

    @property
    def scale(self) -> dict[str, Any]:
        """The number of replicas as options of a Ray Serve deployment."""
        if not self.most:
            return {"num_replicas": self.replicas}
        autoscaling = {
            "min_replicas": self.least,
            "max_replicas": self.most,
            "target_ongoing_requests": _MAX_REQUESTS // 4,
        }
        return {"num_replicas": None, "autoscaling_config": autoscaling}


def application(values: Mapping[str, Any]) -> Any:
    """The Ray Serve application. Configuration files name this function as their `import_path`.

    `values` are fields of `Deployment`, and optionally a `token` (default: $WHENABOUTS_TOKEN).
    """
    from ray import serve

    given = dict(values)
    token = given.pop("token", None)
    deployment = Deployment.of(given)

    @serve.deployment(
        name=NAME,
        max_ongoing_requests=_MAX_REQUESTS,
        health_check_period_s=_HEALTH_SECONDS,
        ray_actor_options={"num_cpus": deployment.cpus},
        **deployment.scale,
    )
    @serve.ingress(lambda: _application_here(deployment, token))
    class Replica:
        """One server of the corpus."""

        def __init__(self) -> None:
            self._corpus = Corpus(deployment.corpus)

        def check_health(self) -> None:
            """Raise if the corpus cannot be read; Ray then replaces this replica."""
            self._corpus.refresh()
            self._corpus.check_filled()

    replica: Any = Replica  # the decorators made it a Ray Serve deployment
    return replica.bind()


def _application_here(deployment: Deployment, token: str | None) -> Any:
    """The server of one replica, made on the replica's machine. Raises WhenaboutsError, UsageError."""
    from whenabouts.server.app import Application

    if deployment.version != whenabouts.__version__:
        raise WhenaboutsError(
            f"this machine has whenabouts {whenabouts.__version__}, but {deployment.version} started the "
            "deployment; install the same version on all machines of the cluster"
        )
    settings = deployment.settings(os.environ.get(TOKEN_VARIABLE, "") if token is None else token)
    served = Application(Corpus(deployment.corpus), settings)
    served.service.divide(served.service.measured_parts())
    return served


def deploy(deployment: Deployment, token: str, address: str | None) -> None:
    """Deploy on the cluster at `address` (None: start one on this machine) and wait until replicas answer.

    Raises UsageError for wrong settings, an empty corpus or missing packages, and NoCluster if the cluster
    cannot be reached or starts no replica.
    """
    deployment.settings(token)  # wrong settings fail here rather than on each machine
    Corpus(deployment.corpus).check_filled()
    _check_reachable(address)
    ray, serve = _ray()
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise NoCluster(
            f"cannot connect to a Ray cluster at {address or 'this machine'}: {error}; "
            "start one with `ray start --head`, or leave out --address"
        ) from error
    options = serve.config.HTTPOptions(host=deployment.host, port=deployment.port)
    serve.start(proxy_location="EveryNode", http_options=options)
    try:
        serve.run(application({**asdict(deployment), "token": token}), name=NAME, route_prefix="/")
    except RuntimeError as error:
        with contextlib.suppress(Exception):
            serve.delete(NAME)
        raise NoCluster(f"the replicas did not start: {error}; see `serve status` and Ray's logs") from error


def stop() -> None:
    """Shut down Ray Serve with all its applications, and the cluster if `deploy` started it."""
    ray, serve = _ray()
    serve.shutdown()
    ray.shutdown()


def configuration(deployment: Deployment) -> str:
    """The configuration as YAML, for `serve deploy` or Kubernetes (`serveConfigV2` of a RayService)."""
    import yaml

    served = {"name": NAME, "route_prefix": "/", "import_path": f"{__name__}:application"}
    file = {
        "proxy_location": "EveryNode",
        "http_options": {"host": deployment.host, "port": deployment.port},
        "applications": [{**served, "args": asdict(deployment)}],
    }
    return str(yaml.safe_dump(file, sort_keys=False))


def _check_reachable(address: str | None) -> None:
    """Raise NoCluster if nothing listens at HOST:PORT; Ray itself would try for minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon or (number := whole_number(port)) is None:
        return
    try:
        socket.create_connection((host.strip("[]"), number), _CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise NoCluster(
            f"no Ray cluster at {address}: {error}; check the address, or start one with `ray start --head`"
        ) from error


def _ray() -> tuple[Any, Any]:
    """The modules Ray and Ray Serve, with usage reports off. Raises UsageError if they are not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        from ray import serve
    except ModuleNotFoundError as error:
        raise UsageError(
            f"replicas need {error.name}, which is not installed: pip install 'whenabouts[cluster,server]'"
        ) from error
    return ray, serve
