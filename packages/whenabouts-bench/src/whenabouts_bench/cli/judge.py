"""`whenabouts judge`: the page on which people judge the moments of a task set."""

from __future__ import annotations

import argparse
import getpass
import os
from pathlib import Path
from typing import Any

from whenabouts.cli.options import add_verb
from whenabouts.export.text import one_line
from whenabouts.types import UsageError

_EPILOG = """\
examples:
  whenabouts judge my.set                                   # you alone
  whenabouts judge my.set --annotator Ada --annotator Bo    # a link for each, and one for you, who leads
  WHENABOUTS_TOKEN=$(openssl rand -hex 16) whenabouts judge my.set --host 0.0.0.0 --annotator Ada"""


def add_parser(verbs: Any) -> None:
    """Declare the verb."""
    parser = add_verb(
        verbs,
        "judge",
        run,
        description="Judge the moments of a task set in a browser: a query, its moment in a loop, a key from "
        "0 to 4. Nobody sees what others said, or where a candidate came from. Every answer is on the disk "
        "before the next moment comes.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "folder", metavar="FOLDER", help="the task set, as `whenabouts build judging` wrote it"
    )
    parser.add_argument(
        "--annotator",
        metavar="NAME",
        action="append",
        default=[],
        help="give this person a link of their own (repeat for more; default: you judge, as your login name)",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen at (default 127.0.0.1: this machine only)",
    )
    parser.add_argument("--port", type=int, default=8766, help="port (default 8766; 0: any that is free)")
    parser.add_argument(
        "--cache",
        metavar="DIR",
        type=Path,
        help="folder for moments cut to MP4 (default: ~/.cache/whenabouts/serve)",
    )


def run(options: argparse.Namespace) -> int:
    """Serve until stopped."""
    from whenabouts.server.settings import TOKEN_VARIABLE, Settings, default_cache
    from whenabouts_bench.judging.server import serve
    from whenabouts_bench.judging.server_people import People
    from whenabouts_bench.judging.tasks import EXAM, VIDEOS, TaskSet

    tasks = TaskSet.open(options.folder)
    people = People.of(options.annotator, _login(), os.environ.get(TOKEN_VARIABLE, ""))
    settings = Settings(
        host=options.host, port=options.port, token=people.lead_token, cache=options.cache or default_cache()
    )
    missing = tasks.missing_videos()
    for item in tasks.exam:
        if (video_id := item.task.moment.video_id) in missing:
            raise UsageError(
                f"{tasks.folder / EXAM}: task {item.task.id}: the recording of {video_id!r} is not there, so "
                f"that nobody could pass; write its path into {tasks.folder / VIDEOS}, or take the line out"
            )
    lines = [f"{tasks.name}: {len(tasks.tasks)} moments, {len(tasks.exam)} in the exam"]
    if missing:
        lines.append(f"{len(missing)} of {len(tasks.videos)} videos are missing, {missing[0]} first")
    # Names in a task set may be a stranger's: none may pass for a line of ours or command the terminal.
    for line in lines:
        print(one_line(line), flush=True)
    serve(tasks, people, settings, lambda line: print(line, flush=True))
    return 0


def _login() -> str:
    """The name of who runs this; containers may have none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "annotator"
