"""A package from another folder adds a stream, a system, a verb and an export format, in a file each."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from whenabouts import plugins

PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "stranger"
version = "1.0"

[project.entry-points."whenabouts.streams"]
light = "stranger.light:STREAM"

[project.entry-points."whenabouts.models"]
mine = "stranger.mine"

[project.entry-points."whenabouts.verbs"]
count = "stranger.count:COUNT"

[project.entry-points."whenabouts.exports"]
shots = "stranger.shots"
"""

STREAM = '''
"""How bright each second is, in a word."""

import numpy as np

from whenabouts.index.records import ClipColumns, StreamInfo
from whenabouts.index.sampling import FrameSettings
from whenabouts.index.stream import Cost, Reads, Stream, StreamRun


class Light(Stream):
    name = "light"
    title = "light"
    has_words = True

    def setup(self, setup):
        info = StreamInfo("light", "", "", 0, {})
        return StreamRun(self, info, None, Reads(frames=FrameSettings(1.0, 16)), Cost(60.0, 1e5))

    def encode(self, batch, run, kept):
        words = ["gloomy" if image.mean() < 80 else "luminous" for image in batch.images]
        return list(zip(batch.clips, words))

    def clips(self, video, batches, run):
        clips = [clip for batch in batches for clip in batch]
        start = np.array([float(number) for number, _ in clips])
        return ClipColumns(start, start + 1.0, [word for _, word in clips], None)


STREAM = Light()
'''

MODEL = '''
"""XML with a name of its own."""

from dataclasses import dataclass

from whenabouts_systems.models import xml


@dataclass(frozen=True)
class Config(xml.Config):
    pass


class Model(xml.Model):
    pass
'''

VERB = '''
"""`whenabouts count`: how many videos a corpus has."""

from whenabouts.cli.options import add_corpus, add_verb, open_corpus
from whenabouts.cli.verbs import Verb

COUNT = Verb("stranger.count", "how many videos a corpus has")


def add_parser(verbs):
    add_corpus(add_verb(verbs, "count", run, description="Count the videos of a corpus."))


def run(options):
    print(len(open_corpus(options).videos()))
    return 0
'''

EXPORT = '''
"""A line for each moment."""

NAME, SUFFIXES, MEDIA_TYPE = "shots", (".shots",), "text/plain"


def write(moments, out, options):
    for moment in moments:
        out.write(f"{moment.name} {moment.start:.1f} {moment.end:.1f}\\n".encode())
    return []
'''


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages with the stranger's, installed from a folder of its own by pip."""
    pytest.importorskip("hatchling", reason="the package is built with hatchling")
    folder = tmp_path_factory.mktemp("stranger")
    package = folder / "src" / "stranger"
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    files = {"__init__": "", "light": STREAM, "mine": MODEL, "count": VERB, "shots": EXPORT}
    for name, text in files.items():
        (package / f"{name}.py").write_text(text.lstrip(), encoding="utf-8")
    site = folder / "site"
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    (wheel,) = (folder / "dist").glob("*.whl")
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    return site


def _run(site: Path, *command: str) -> str:
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env=environment, check=False, cwd=site
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_stream_a_verb_and_an_export_format_work_from_another_package(site: Path, samples: Path) -> None:
    program = ("-m", "whenabouts")
    assert "how many videos a corpus has" in _run(site, *program, "--help")
    videos = [str(samples / "friday.mp4"), str(samples / "friday.vtt")]
    made = json.loads(_run(site, *program, "index", *videos, "--corpus", "c", "--processes", "1", "--json"))
    assert made["added"] == 1
    assert _run(site, *program, "count", "--corpus", "c").strip() == "1"
    found = json.loads(
        _run(site, *program, "search", "gloomy", "--corpus", "c", "--stream", "light", "--json")
    )
    assert found["moments"][0]["evidence"]["light"]["text"] == "gloomy"
    export = (*program, "export", "crown jewels", "--corpus", "c", "--all-moments")
    _run(site, *export, "--out", "list.shots")
    assert (site / "list.shots").read_text(encoding="utf-8").startswith("friday")


@pytest.mark.slow
def test_a_system_from_another_package_is_made_by_its_name(site: Path) -> None:
    code = (
        "from whenabouts_systems.models import config_of, model_names, new_model\n"
        "assert 'mine' in model_names()\n"
        "print(type(new_model('mine', config_of('mine', {'hidden': 8, 'heads': 2}))).__module__)\n"
    )
    assert _run(site, "-c", code).strip() == "stranger.mine"


def test_a_plugin_that_cannot_be_loaded_is_named_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = EntryPoint("broken", "whenabouts_nowhere.module", "whenabouts.exports")
    monkeypatch.setattr(plugins, "entries", lambda group: {"broken": broken})
    with pytest.raises(plugins.PluginError, match=r"its plugin broken .* cannot be loaded: .*pip uninstall"):
        plugins.load("exports", "broken")


def test_a_plugin_that_fails_in_its_own_code_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "divides_by_zero.py").write_text("COUNT = 1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    broken = EntryPoint("broken", "divides_by_zero:COUNT", "whenabouts.verbs")
    monkeypatch.setattr(plugins, "entries", lambda group: {"broken": broken})
    with pytest.raises(plugins.PluginError, match=r"its plugin broken .*: division by zero; .*pip uninstall"):
        plugins.load("verbs", "broken")


def test_a_plugin_that_refuses_to_start_is_quoted_and_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from whenabouts.cli.main import all_verbs

    refusal = "from whenabouts.types import UsageError\nraise UsageError('set STRANGER_KEY to your key')\n"
    (tmp_path / "needs_a_key.py").write_text(refusal)
    monkeypatch.syspath_prepend(tmp_path)
    broken = EntryPoint("broken", "needs_a_key:COUNT", "whenabouts.verbs")
    monkeypatch.setattr(plugins, "entries", lambda group: {"broken": broken} if group == "verbs" else {})
    assert {"search", "broken"} & all_verbs().keys() == {"search"}
    assert all_verbs()
    assert caplog.messages == ["left out: set STRANGER_KEY to your key"]


STRANGERS = """
from types import SimpleNamespace

from whenabouts.cli.verbs import Verb, VerbOptions
from whenabouts.encoders.protocol import EncoderStatus
from whenabouts.index.stream import Stream

PREFIX = "hashes"
STREAM = Stream("odd")
DATASET = SimpleNamespace(name="odd", title="odd", tasks=(), splits=(), to_json=dict)
TASKS = (SimpleNamespace(name="odd", title="odd", split="test", headline=(), to_json=dict),)
COUNT, OPTIONS = Verb("strangers_nowhere", "count"), VerbOptions("search", "strangers_nowhere")
recognises = "hashes".__eq__


def status():
    return EncoderStatus("hashes", ("text",), True, "")


def open_text(name, settings):
    return name


FAMILY = SimpleNamespace(PREFIX=PREFIX, recognises=recognises, status=status, open_text=open_text)
"""


@pytest.fixture()
def declared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Declares the entries of one group, in a module with `STRANGERS`."""
    (tmp_path / "strangers_module.py").write_text(STRANGERS)
    monkeypatch.syspath_prepend(tmp_path)

    def declare(group: str, **values: str) -> None:
        entries = {name: EntryPoint(name, value, f"whenabouts.{group}") for name, value in values.items()}
        monkeypatch.setattr(plugins, "entries", lambda asked: entries if asked == group else {})

    return declare


@pytest.mark.parametrize("group", ["datasets", "streams", "tasks"])
@pytest.mark.parametrize("is_module", [False, True])
def test_an_entry_is_the_constant_or_a_module_with_it(
    declared: Callable[..., None], group: str, is_module: bool
) -> None:
    from whenabouts_bench.datasets import dataset_names
    from whenabouts_bench.harness.task import tasks

    constant = {"datasets": ":DATASET", "streams": ":STREAM", "tasks": ":TASKS"}[group]
    declared(group, odd="strangers_module" + ("" if is_module else constant))
    streams = [stream.name for stream in plugins.loaded("streams").values()]
    found = {"datasets": dataset_names(), "streams": streams, "tasks": [task.name for task in tasks()]}
    assert [group for group, names in found.items() if "odd" in names] == [group]


def test_a_faulty_entry_is_left_out_with_one_warning(
    declared: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    declared("streams", good="strangers_module", bad="json", absent="strangers_nowhere")
    assert list(plugins.loaded("streams")) == ["good"]
    assert list(plugins.loaded("streams")) == ["good"]
    assert len(caplog.messages) == 2
    assert caplog.messages[0].startswith(
        "left out: json: its plugin bad (json) cannot be loaded: accepted: STREAM or a module with it; fix it"
    )


@pytest.mark.parametrize(
    ("group", "code", "fault"),
    [
        ("encoders", "PREFIX, recognises, status = 3, str.islower, dict", "its PREFIX is 3; accepted: str"),
        (
            "encoders",
            "PREFIX, recognises, status, ORDER = 'a', dict, dict, '9'",
            "its ORDER is '9'; accepted",
        ),
        ("exports", "NAME, SUFFIXES, MEDIA_TYPE, write = 3, ['.a'], 'text/plain', print", "its NAME is 3"),
        ("exports", "NAME, SUFFIXES, MEDIA_TYPE, write = 'a', '.a', 'a/a', print", "its SUFFIXES is '.a'"),
        (
            "streams",
            "STREAM.order = 'last'",
            "its order is 'last'; accepted: Real; fix it, or remove it: pip",
        ),
        (
            "streams",
            "STREAM.options = ('--light',)",
            "an item of its options lacks flag, keyword, help, type",
        ),
        ("datasets", "del DATASET.to_json", "it lacks to_json; fix it"),
        (
            "tasks",
            "TASKS = (1, 2)",
            "an item of it lacks name, title, split, headline, to_json; an item of it",
        ),
        ("tasks", "TASKS = 3", "it is 3; accepted: list"),
        ("routes", "class router: routes = 3", "its routes is 3; acc"),
        ("verbs", "raise SystemExit(0)", "it calls exit; fix it"),
    ],
)
def test_an_attribute_of_another_kind_is_named(
    declared: Callable[..., None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    group: str,
    code: str,
    fault: str,
) -> None:
    before = STRANGERS if group in ("datasets", "streams") else ""
    (tmp_path / "odd_module.py").write_text(f"{before}\n{code}\n")
    monkeypatch.delitem(sys.modules, "odd_module", raising=False)
    declared(group, odd="odd_module")
    assert not plugins.loaded(group)
    named = "left out: odd_module: its plugin odd (odd_module) cannot be loaded: "
    assert caplog.messages[0].startswith(named + fault)


def test_a_verb_or_options_whose_module_is_absent_stop_no_other_verb(
    declared: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    from whenabouts.cli.main import all_verbs, build_parser

    declared("verb_options", odd="strangers_module:OPTIONS")
    build_parser(["search"])
    absent = "cannot be loaded: No module named 'strangers_nowhere'; fix it, or remove it: pip uninstall"
    assert f"its plugin odd (strangers_module:OPTIONS) {absent}" in caplog.messages[0]
    declared("verbs", count="strangers_module:COUNT", search="strangers_module:COUNT")
    assert all_verbs()["search"].module == "whenabouts.cli.search"
    assert "its plugin search is named as a built-in verb; rename it" in caplog.messages[1]
    build_parser(["search"])
    with pytest.raises(plugins.PluginError, match=f"its plugin count .* {absent}"):
        build_parser(["count"])


def test_a_package_whose_entries_are_no_text_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from whenabouts.cli.failures import message_of

    folder = tmp_path / "strange-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: strange\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_bytes("[whenabouts.exports]\nodd = odd:münch\n".encode("latin-1"))
    monkeypatch.syspath_prepend(tmp_path)
    assert {entry.group for entry in plugins.declared()} >= {"whenabouts.verbs"}
    assert caplog.messages[0].startswith(
        "left out: strange: its entry_points.txt cannot be read: 'utf-8' codec"
    )
    assert message_of(KeyError("x")).startswith("a fault of the program")


def test_a_plugin_encoder_needs_no_order_and_a_broken_one_stops_no_other(
    declared: Callable[..., None],
) -> None:
    from whenabouts.encoders import encoder_report, open_text_encoder

    declared("encoders", hashes="strangers_module:FAMILY", nope="strangers_nowhere", odd="json")
    assert encoder_report()
    declared("encoders", hashes="strangers_module", nope="strangers_nowhere", odd="json")
    assert str(open_text_encoder("hashes")) == "hashes"
    assert open_text_encoder("minilm").name


def test_what_no_package_brings_is_refused_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plugins, "entries", lambda group: {})
    with pytest.raises(plugins.PackageMissing, match=r"--ray local .*pip install 'whenabouts\[cluster\]'"):
        plugins.only("executors", "--ray local", "cluster")


def test_every_group_that_is_read_is_on_the_page_of_seams() -> None:
    assert plugins.__doc__ is not None
    for group in ("verbs", "verb_options", "streams", "encoders", "moment_finders", "checkers", "executors"):
        assert f"`whenabouts.{group}`" in plugins.__doc__


def test_the_page_on_adding_names_only_groups_that_are_read() -> None:
    page = (Path(__file__).resolve().parents[1] / "docs" / "adding.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| a")]
    named = re.findall(
        r"`(whenabouts[\w.]*)` \||`(whenabouts\.\w+)`, `(whenabouts\.\w+)` \|", "\n".join(rows)
    )
    groups = {group for row in named for group in row if group}
    listed = re.findall(r"`(?:whenabouts)?\.(\w+)`", plugins.__doc__ or "")
    assert len(groups) > 8
    assert groups <= {f"whenabouts.{name}" for name in listed}
