"""The script behind `make installs`, and the sizes that the README takes from it."""

from __future__ import annotations

import json
import re
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from release.minilm import ReleaseError
from tests.server.conftest import listening

from release import installs

ROOT = Path(__file__).resolve().parents[2]
MEASURED = installs.Install(12.5, 700, 15, 0, "2026-01-01", {"cores": 2})


def test_the_tables_name_extras_of_the_package() -> None:
    assert set(installs.LONG) | set(installs.ASKED) <= set(installs.extras())


def test_the_base_and_the_page_are_tried_first_and_never_skipped() -> None:
    for quick, everything in ((True, False), (False, False), (False, True)):
        names, skipped = installs.chosen(Namespace(only=None, quick=quick, all=everything))
        assert names[:2] == [installs.BASE, installs.PAGE]
        assert {*names, *skipped} == {installs.BASE, *installs.extras()}
        assert not set(names) & set(skipped)
        assert everything == (not skipped)


def test_an_environment_that_is_not_there_is_refused() -> None:
    with pytest.raises(ReleaseError, match=r"--only sever: there is none; there are base, server"):
        installs.chosen(Namespace(only=["sever"], quick=False, all=False))


def test_results_are_read_as_they_were_written_and_others_stay(tmp_path: Path) -> None:
    path = tmp_path / "results" / "installs.json"
    installs.write_results(path, {"base": MEASURED})
    installs.write_results(path, {"server": MEASURED})
    assert installs.read_results(path) == {"base": MEASURED, "server": MEASURED}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"environments": {"base": {"megabytes": 3}}}'])
def test_results_of_something_else_are_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "installs.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ReleaseError, match=r"installs\.json: no results of `make installs`"):
        installs.read_results(path)


def test_a_refusal_that_names_an_extra_passes() -> None:
    assert installs.refusal(2, "run needs torch: pip install 'whenabouts[research]'") == "research"
    assert installs.refusal(2, "needs them: pip install 'whenabouts[cluster,server]'") == "cluster,server"


@pytest.mark.parametrize(
    ("code", "output"),
    [
        (2, "whenabouts: a fault of the program: ModuleNotFoundError; pip install 'whenabouts[research]'"),
        (1, "run needs torch: pip install 'whenabouts[research]'"),
        (2, "run needs torch: pip install torch"),
        (2, "run needs torch: pip install 'whenabouts[trains]'"),
        (2, ""),
    ],
)
def test_any_other_end_of_a_verb_fails(code: int, output: str) -> None:
    with pytest.raises(installs.Failed):
        installs.refusal(code, output)


def test_checks_are_counted_and_shown_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    checks = installs.Checks()
    with checks.one("base: index") as said:
        said.append("8 videos")
    with checks.one("base: cut"):
        installs.refusal(1, "no file\n\nat all\n")
    checks.skip("vision", "long")
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"passed   base: index \(0\.\d s; 8 videos\)", lines[0])
    assert lines[1:] == [
        "FAILED   base: cut: exit code 1 and no `pip install 'whenabouts[EXTRA]'`: at all",
        "not tried  vision: long",
    ]
    assert str(checks) == "1 passed, 1 failed, 1 not tried"


def test_an_environment_knows_nothing_of_the_developers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "packages" / "whenabouts" / "src"))
    monkeypatch.setenv("WHENABOUTS_CORPUS", "mine.corpus")
    here = installs.Environment(installs.PAGE, tmp_path, installs.Checks())
    here.bin.mkdir(parents=True)
    program = here.bin / "whenabouts"
    program.write_text(
        f"#!{sys.executable}\nimport json, os\nprint(json.dumps([os.getcwd(), *sorted(os.environ)]))\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    folder, *names = json.loads(here.whenabouts().stdout)
    assert folder == str(tmp_path / "Müller & Söhne videos")
    assert not {"PYTHONPATH", "WHENABOUTS_CORPUS", "VIRTUAL_ENV"} & set(names)


@pytest.mark.slow
def test_the_page_is_asked_by_http_where_there_is_no_browser(samples_corpus: Path, tmp_path: Path) -> None:
    with listening(samples_corpus, tmp_path) as server:
        installs._search_by_http(f"http://127.0.0.1:{server.port}/")


def test_each_extra_has_a_size_or_the_reason_why_it_was_not_tried(tmp_path: Path) -> None:
    installs.write_results(tmp_path / "installs.json", {"base": MEASURED, "vision": MEASURED})
    for path in (tmp_path / "installs.json", installs.RESULTS):
        written = json.loads(path.read_text(encoding="utf-8"))
        assert not written["environments"].keys() & written["not_tried"].keys()
        assert {installs.BASE, *installs.extras()} <= written["environments"].keys() | written["not_tried"]
        for name, reason in written["not_tried"].items():
            assert re.fullmatch(r"not tried: \w.+", reason) and installs.LONG.get(name, "no run") in reason


def sizes_by_words() -> dict[str, int]:
    """The megabytes that the README may name, by the words before them."""
    measured = {name: one.megabytes for name, one in installs.read_results(installs.RESULTS).items()}
    encoder = measured[installs.ENCODER] - measured[installs.BASE]
    return {
        r"`make demo` makes `\.venv-demo` \(": measured[installs.PAGE] + encoder,
        r"`make test` `\.venv` \(": measured[installs.DEVELOPER],
        r"offers the offline sentence encoder; both take ": measured[installs.ENCODER],
    }


def test_the_sizes_that_the_readme_names_are_within_5_percent_of_those_that_were_measured() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    sections = "".join(
        readme.partition(f"\n## {heading}\n")[2].partition("\n## ")[0] for heading in ("Try it", "Install")
    )
    sizes = sizes_by_words()
    assert len(re.findall(r"\d (?:GB|MB)\b", sections)) == len(sizes), "a size is named that is not checked"
    for words, megabytes in sizes.items():
        [(number, unit)] = re.findall(words + r"([\d.]+) (GB|MB)", sections)
        named = float(number) * (1000 if unit == "GB" else 1)
        assert named == pytest.approx(megabytes, rel=0.05), f"README: {number} {unit}, and {megabytes} MB"
