"""`whenabouts deploy`: serve a corpus by replicas of Ray Serve, on one machine or many."""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path
from typing import Any

from whenabouts.cli.options import add_access, add_corpus, add_verb, corpus_name
from whenabouts.cli.terminal import for_terminal
from whenabouts.intake.files import write_atomically
from whenabouts.times import whole_number
from whenabouts.video.files import with_home

_EPILOG = """\
examples:
  whenabouts deploy ray --corpus s3://videos/my.corpus --replicas 4 --address auto
  whenabouts deploy ray --corpus my.corpus --autoscale 1-8 --write serve.yaml && serve deploy serve.yaml"""


def _bounds(text: str) -> tuple[int, int]:
    """Parse "1-8"."""
    low, dash, high = text.partition("-")
    least, most = whole_number(low), whole_number(high)
    if not dash or least is None or not most:
        raise argparse.ArgumentTypeError(f"{text!r}: give a minimum and a maximum, such as 1-8")
    return least, most


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "deploy",
        run,
        description="Serve a corpus by replicas on a Ray cluster. Without --address a cluster starts on this "
        "machine and ends with the command.",
        epilog=_EPILOG,
    )
    parser.add_argument("on", metavar="ray", choices=["ray"], help="what the replicas run on")
    add_corpus(parser)
    parser.add_argument(
        "--address", help="the cluster: auto, HOST:PORT or ray://HOST:PORT (default: one on this machine)"
    )
    many = parser.add_mutually_exclusive_group()
    many.add_argument("--replicas", metavar="N", type=int, default=1, help="how many servers (default 1)")
    many.add_argument(
        "--autoscale",
        metavar="MIN-MAX",
        type=_bounds,
        help="as many servers as the load needs, such as 1-8",
    )
    add_access(parser)
    parser.add_argument("--port", type=int, default=8765, help="port of each machine (default 8765)")
    parser.add_argument("--cpus", type=float, default=1.0, help="processors of each replica (default 1)")
    parser.add_argument(
        "--memory",
        metavar="MB",
        type=int,
        default=0,
        help="memory of each replica (default: three quarters of its machine's)",
    )
    parser.add_argument(
        "--model", metavar="RUN", action="append", default=[], help="a trained system to search with"
    )
    parser.add_argument(
        "--files", metavar="PATH", action="append", default=[], help="serve only videos under this folder"
    )
    parser.add_argument(
        "--write", metavar="FILE", type=Path, help="write a configuration for `serve deploy`; deploy nothing"
    )


def _absolute(place: str) -> str:
    """A path made absolute, because replicas run in another folder; a URI is unchanged."""
    return place if "://" in place else str(with_home(place).resolve())


def run(options: argparse.Namespace) -> int:
    """Deploy. A cluster started here is served until the command is interrupted."""
    from whenabouts_cluster import ray_serve

    least, most = options.autoscale or (0, 0)
    deployment = ray_serve.Deployment(
        _absolute(corpus_name(options)),
        host=options.host,
        port=options.port,
        replicas=options.replicas,
        least=least,
        most=most,
        cpus=options.cpus,
        memory_mb=options.memory,
        time_limit=options.time_limit,
        models=tuple(_absolute(run) if with_home(run).is_dir() else run for run in options.model),
        files=tuple(map(_absolute, options.files)),
    )
    if options.write is not None:
        deployment.settings("0" * 32)  # wrong settings fail here; the replicas have a token of their own
        with write_atomically(options.write) as stream:
            stream.write(ray_serve.configuration(deployment).encode())
        written = f"`serve deploy {options.write}` deploys it; replicas take the token from $WHENABOUTS_TOKEN"
        print(for_terminal(written))
        return 0
    token = os.environ.get("WHENABOUTS_TOKEN", "") if options.token is None else options.token
    ray_serve.deploy(deployment, token, options.address)
    print(for_terminal(f"serving at http://{options.host}:{options.port}/"), flush=True)
    if options.address is not None:
        print(f"it stays until `serve delete {ray_serve.NAME}`")
        return 0
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    try:
        signal.pause()
    except KeyboardInterrupt:
        ray_serve.stop()
    return 0
