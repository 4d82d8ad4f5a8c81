"""`whenabouts judge`: serve the page on which people grade a task set, or let a model grade it."""

from __future__ import annotations

import argparse
import getpass
import os
from typing import Any

from whenabouts.cli.options import add_cache, add_guests, add_host, add_proxy, add_verb, proxy_settings
from whenabouts.cli.terminal import for_terminal
from whenabouts.intake.chat import Chat, Endpoint
from whenabouts.lines import one_line
from whenabouts.server.settings import TOKEN_VARIABLE, Settings
from whenabouts.types import UsageError
from whenabouts.workplace.cached import default_cache
from whenabouts_bench.judging.journal import Journal
from whenabouts_bench.judging.model_judge import grade_with_model
from whenabouts_bench.judging.model_study import model_studies
from whenabouts_bench.judging.qrels import Judged
from whenabouts_bench.judging.server_people import People
from whenabouts_bench.judging.tasks import EXAM, VIDEOS, TaskSet

_EPILOG = """\
examples:
  whenabouts judge my.set                                   # you alone
  whenabouts judge my.set --annotator Ada --annotator Bo    # a link for each, and one for you, who leads
  whenabouts judge my.set --model http://127.0.0.1:8000/v1#MODEL --frames 4    # a model judges, too
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
        "--model",
        metavar="ADDRESS#MODEL",
        help="instead of people: a model at a chat endpoint grades each task, by query and what is said; its "
        "grades are kept apart",
    )
    parser.add_argument(
        "--frames",
        type=int,
        default=0,
        metavar="N",
        help="with --model: also send N pictures of each moment to the endpoint (default: none)",
    )
    add_guests(parser)
    add_host(parser)
    parser.add_argument("--port", type=int, default=8766, help="port (default 8766; 0: any that is free)")
    add_proxy(parser)
    add_cache(parser, "folder for moments cut to MP4")


def run(options: argparse.Namespace) -> int:
    """Serve until stopped."""
    from whenabouts_bench.judging.server import serve

    tasks = TaskSet.open(options.folder)
    if options.model:
        return _run_model(options, tasks)
    if options.frames:
        raise UsageError("--frames goes with --model")
    people = People.of(options.annotator, _login(), os.environ.get(TOKEN_VARIABLE, ""))
    settings = Settings(
        host=options.host,
        port=options.port,
        token=people.lead_token,
        cache=options.cache or default_cache(),
        guests=options.guests,
        **proxy_settings(options),
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
        remedy = f"their moments can only be skipped; write their paths into {tasks.folder / VIDEOS}"
        count = f"{len(missing)} of {len(tasks.videos)} videos are missing, {missing[0]} first"
        lines.append(f"{count}: {remedy}")
    # A task set may come from a stranger: its names must not forge lines or control the terminal.
    for line in lines:
        print(one_line(line), flush=True)
    serve(tasks, people, settings, lambda line: print(for_terminal(line), flush=True))
    return 0


def _run_model(options: argparse.Namespace, tasks: TaskSet) -> int:
    """Let a model grade the tasks, and print how its grades compare with people's."""
    if options.annotator or options.guests:
        raise UsageError("--model judges alone; leave out --annotator and --guests")
    judged = Judged.of(tasks, Journal.open(tasks).state())
    done = grade_with_model(tasks, judged.state, Chat(Endpoint.parse(options.model)), options.frames)
    lines = [f"{done.graded:,} tasks graded now, {done.before:,} before"]
    if done.silent:
        hint = "" if options.frames else "; --frames N sends pictures"
        lines.append(f"{done.silent:,} moments have nothing to show: no words are known{hint}")
    lines += done.faults
    for line in [*lines, *(line for study in model_studies(judged) for line in study.lines())]:
        print(one_line(line), flush=True)
    return 0


def _login() -> str:
    """The user's login name; "annotator" if the system has no name for the user, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "annotator"
