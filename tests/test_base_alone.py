"""The package without its extras: what needs none of them works, and the rest says which one it needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from whenabouts.cli.main import all_verbs

_HEAVY = ("torch", "ray", "matplotlib", "h5py", "scipy", "transformers")
_SERVER = ("fastapi", "starlette", "uvicorn", "prometheus_client", "jinja2")
_EXTRAS = (*_HEAVY, *_SERVER, "mcp", "watchfiles")

# Python runs it in every process, those of workers, too; the packages are then not found.
_SITECUSTOMIZE = """
import sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in {packages!r} else self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
if {alone!r}:
    import importlib.metadata
    importlib.metadata.entry_points = lambda **_: ()  # what other packages of the repository declare
"""

_IMPORTS = """
import importlib, pkgutil, whenabouts, whenabouts.cli.main

for room in "index search export calibration streams confidence moments people video".split():
    module = importlib.import_module(f"whenabouts.{room}")
    for part in pkgutil.iter_modules(getattr(module, "__path__", ())):
        importlib.import_module(f"{module.__name__}.{part.name}")
"""

_COMMANDS = """
import contextlib, io, json, sys
from whenabouts.cli.main import main

done = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            code = main(words)
        except SystemExit as end:
            code = end.code or 0
    done.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(done))
"""

_SERVED = """
import asyncio, json
from pathlib import Path
import httpx
from whenabouts.corpus import Corpus
from whenabouts.server import run
from whenabouts.server.app import Application
from whenabouts.server.settings import Settings

application = Application(Corpus("c", create=False), Settings(cache=Path("cache"), models={"run": "run"}))

async def ask():
    transport = httpx.ASGITransport(application, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        found = await client.get("/api/search", params={"query": "lighthouse"})
        first = found.json()["data"][0]
        moment = f"{first['video_id']}@{first['start']:.3f}-{first['end']:.3f}"
        asked = {"query": "lighthouse", "model": "run"}
        return [
            found,
            await client.get("/api/search", params=asked),
            await client.get("/api/explain", params={**asked, "moment": moment}),
        ]

print(json.dumps([(answer.status_code, answer.json()) for answer in asyncio.run(ask())]))
application.service.close()
"""


def _without(packages: tuple[str, ...], folder: Path, script: str, *words: str, alone: bool = True) -> str:
    """What a script prints, run in `folder` by a Python without some packages, and plugins if `alone`."""
    (folder / "site").mkdir(exist_ok=True)
    text = _SITECUSTOMIZE.replace("{packages!r}", repr(set(packages))).replace("{alone!r}", repr(alone))
    (folder / "site" / "sitecustomize.py").write_text(text, encoding="utf-8")
    sources = str(Path(__file__).parents[1] / "packages" / "whenabouts" / "src")
    path = os.pathsep.join([str(folder / "site"), sources, os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", script, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _run(folder: Path, *commands: list[str]) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of commands without any extra."""
    return [tuple(done) for done in json.loads(_without(_EXTRAS, folder, _COMMANDS, json.dumps(commands)))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus of one transcript, which was made without any extra."""
    folder = tmp_path_factory.mktemp("base")
    (folder / "talk.vtt").write_text(
        "WEBVTT\n\n00:00.500 --> 00:04.000\nThe lighthouse keeper polishes the great lens.\n",
        encoding="utf-8",
    )
    (folder / "x.toml").write_text('system = "xml"\n', encoding="utf-8")
    ((code, _, err),) = _run(folder, ["index", "talk.vtt", "--corpus", "c", "--processes", "1"])
    assert code == 0, err
    return folder


@pytest.mark.slow
def test_the_rooms_that_need_no_extra_import_none(tmp_path: Path) -> None:
    _without(_EXTRAS, tmp_path, _IMPORTS)


@pytest.mark.slow
def test_a_corpus_is_searched_without_any_extra(folder: Path) -> None:
    (code, out, _), (found, answer, err) = _run(folder, ["--help"], ["search", "lighthouse", "--corpus", "c"])
    assert (code, found) == (0, 0), err
    assert "search my videos:" in out
    assert json.loads(answer)["moments"]


@pytest.mark.slow
def test_the_help_of_every_verb_comes_without_any_extra(tmp_path: Path) -> None:
    commands = json.dumps([[verb, "--help"] for verb in all_verbs()])
    answers = json.loads(_without(_EXTRAS, tmp_path, _COMMANDS, commands, alone=False))
    assert len(answers) > 20
    for verb, (code, out, err) in zip(all_verbs(), answers, strict=True):
        assert (code, err) == (0, ""), f"{verb}: {err}"
        assert out.startswith(f"usage: whenabouts {verb} ")


NEEDS: dict[str, list[str]] = {
    "train": ["train", "x.toml", "--features", "f", "--out", "o"],
    "run": ["run", "--checkpoint", "run", "--features", "f", "--out", "o.jsonl"],
    "serve": ["serve", "--corpus", "c", "--port", "0"],
    "deploy": ["deploy", "ray", "--corpus", "c"],
    "report": ["report", "--truth", "t", "--run", "r", "--out", "o"],
    "explain": ["explain", "lighthouse", "--corpus", "c", "--checkpoint", "run"],
    "search": ["search", "lighthouse", "--corpus", "c", "--model", "run"],
    "import-checkpoint": ["import-checkpoint", "xml", "x.toml", "--out", "o"],
    "judge": ["judge", "tasks"],
    "mcp": ["mcp", "--corpus", "c"],
    "watch": ["watch", ".", "--corpus", "c"],
}


@pytest.mark.slow
def test_a_verb_that_needs_an_extra_names_it_in_one_line(folder: Path) -> None:
    for verb, (code, out, err) in zip(NEEDS, _run(folder, *NEEDS.values()), strict=True):
        assert (code, out) == (2, ""), f"{verb}: {err}"
        assert err.count("\n") == 1, f"{verb}: {err}"
        assert "a fault of the program" not in err, verb
        assert "pip install 'whenabouts[" in err, f"{verb}: {err}"


@pytest.mark.slow
def test_the_server_answers_without_pytorch_and_says_what_a_model_needs(folder: Path) -> None:
    found, *others = json.loads(_without(_HEAVY, folder, _SERVED, alone=False))
    assert found[0] == 200
    assert found[1]["data"][0]["video_id"]
    for status, body in others:
        assert (status, body["error"]["code"]) == (503, "not_installed")
        assert "torch" in body["error"]["message"]
        assert "pip install 'whenabouts[research]'" in body["error"]["message"]
