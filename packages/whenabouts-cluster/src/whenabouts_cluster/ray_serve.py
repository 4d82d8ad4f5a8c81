"""A corpus served by replicas of Ray Serve: the application of `whenabouts serve`, on one machine or many.

Replicas keep nothing that others need: each opens the corpus by itself and follows what is written to it.
Ray's proxy gives each request to a replica that has room, and starts another where one dies. A request that a
dying replica was answering ends with status 500 or 503: whoever asked asks again.
"""

from __future__ import annotations

import contextlib
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
# What a replica is given at a time: queries are encoded together, and no other replica idles.
_AT_A_TIME = 32
_HEALTH_SECONDS = 10.0
_REACHED_SECONDS = 5.0


class NoCluster(WhenaboutsError):
    """A Ray cluster that cannot be reached, or used."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """What is served, and by how many replicas: plain values, so that a configuration file can hold them.

    `replicas` at all times, or from `least` to `most` of them by how much is asked at once (both 0: not).
    Each has `cpus` processors and `memory_mb` (0: three quarters of its machine). The token is no part of it:
    replicas take it from $WHENABOUTS_TOKEN, or from whoever deploys. `version` is that of whenabouts that
    deploys: replicas are of the same. Raises UsageError.
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
        if (self.least, self.most) != (0, 0) and not 1 <= self.least <= self.most:
            raise UsageError(f"--autoscale {self.least}-{self.most}: give 1 or more, and no fewer than that")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Deployment:
        """From the values of a configuration file. Raises UsageError for one that is not known."""
        names = {field.name for field in fields(cls)}
        if unknown := sorted(values.keys() - names):
            raise UsageError(
                f"{', '.join(unknown)}: no setting of a deployment; there is {', '.join(sorted(names))}"
            )
        given = dict(values)
        for name in ("models", "files"):
            given[name] = tuple(given.get(name, ()))
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
        """How many replicas, as Ray Serve takes it."""
        if not self.most:
            return {"num_replicas": self.replicas}
        own = {
            "min_replicas": self.least,
            "max_replicas": self.most,
            "target_ongoing_requests": _AT_A_TIME // 4,
        }
        return {"num_replicas": None, "autoscaling_config": own}


def application(values: Mapping[str, Any]) -> Any:
    """The application for `serve.run`, and what a configuration file names as its `import_path`.

    `values` are fields of `Deployment`, with or without a `token` (default: $WHENABOUTS_TOKEN).
    """
    from ray import serve

    given = dict(values)
    token = given.pop("token", None)
    deployment = Deployment.of(given)

    def opened() -> Any:
        return _application_here(deployment, token)

    @serve.deployment(
        name=NAME,
        max_ongoing_requests=_AT_A_TIME,
        health_check_period_s=_HEALTH_SECONDS,
        ray_actor_options={"num_cpus": deployment.cpus},
        **deployment.scale,
    )
    @serve.ingress(opened)
    class Replica:
        """One of several servers of a corpus."""

        def __init__(self) -> None:
            self._corpus = Corpus(deployment.corpus)

        def check_health(self) -> None:
            """Raise where the corpus cannot be read: Ray then starts another replica instead."""
            self._corpus.refresh()
            self._corpus.check_filled()

    replica: Any = Replica  # a deployment by now
    return replica.bind()


def _application_here(deployment: Deployment, token: str | None) -> Any:
    """The server of one replica, on the machine where that runs."""
    from whenabouts.server.app import Application

    if deployment.version != whenabouts.__version__:
        raise WhenaboutsError(
            f"this machine has whenabouts {whenabouts.__version__}, and {deployment.version} deploys; "
            "install the same version on all machines of the cluster"
        )
    settings = deployment.settings(os.environ.get(TOKEN_VARIABLE, "") if token is None else token)
    served = Application(Corpus(deployment.corpus), settings)
    served.service.divide(served.service.measured_parts())
    return served


def deploy(deployment: Deployment, token: str, address: str | None) -> None:
    """Deploy on a cluster (None: one that is started on this machine) and wait until replicas answer.

    Raises UsageError for settings that cannot be kept, NoCluster where the cluster cannot be had.
    """
    deployment.settings(token)  # refused here, not on each machine
    Corpus(deployment.corpus).check_filled()
    _check_reachable(address)
    ray, serve = _ray()
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise NoCluster(
            f"no Ray cluster could be had at {address or 'this machine'}: {error}; "
            "start one with `ray start --head`, or leave out --address"
        ) from error
    options = serve.config.HTTPOptions(host=deployment.host, port=deployment.port)
    serve.start(proxy_location="EveryNode", http_options=options)
    try:
        serve.run(application({**asdict(deployment), "token": token}), name=NAME, route_prefix="/")
    except RuntimeError as error:
        with contextlib.suppress(Exception):
            serve.delete(NAME)
        raise NoCluster(
            f"the replicas did not start: {error}; `serve status` and the logs of Ray say more"
        ) from error


def stop() -> None:
    """Take the application away, and the cluster with it where `deploy` started it."""
    ray, serve = _ray()
    serve.shutdown()
    ray.shutdown()


def configuration(deployment: Deployment) -> str:
    """A configuration file for `serve deploy`, and for Kubernetes (`serveConfigV2` of a RayService)."""
    import yaml

    arguments = {
        name: list(value) if isinstance(value, tuple) else value for name, value in asdict(deployment).items()
    }
    whole = {
        "proxy_location": "EveryNode",
        "http_options": {"host": deployment.host, "port": deployment.port},
        "applications": [
            {
                "name": NAME,
                "route_prefix": "/",
                "import_path": f"{__name__}:application",
                "args": arguments,
            }
        ],
    }
    return str(yaml.safe_dump(whole, sort_keys=False))


def _check_reachable(address: str | None) -> None:
    """Raise NoCluster where nobody listens at HOST:PORT: Ray itself would look for minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon or (number := whole_number(port)) is None:
        return
    try:
        socket.create_connection((host.strip("[]"), number), _REACHED_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise NoCluster(
            f"no Ray cluster at {address}: {error}; check the address, or start one with `ray start --head`"
        ) from error


def _ray() -> tuple[Any, Any]:
    """Ray and Ray Serve, without their reports of usage. Raises UsageError where they are not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
        from ray import serve
    except ModuleNotFoundError as error:
        raise UsageError(
            f"replicas need {error.name}, which is not installed: pip install 'whenabouts[cluster,server]'"
        ) from error
    return ray, serve
