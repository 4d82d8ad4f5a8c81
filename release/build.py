"""All that a release publishes, built from the commit that is checked out, and checked.

    python -m release.build [--out dist] [--with-encoder]

Writes the wheels and the sdists of the four packages, the wheel of whenabouts-minilm, and SHA256SUMS of all.
Each wheel is built from the unpacked sdist, everything is built twice and has to come out the same, and
`twine check --strict` reads what an index will show. `--with-encoder` makes whenabouts-minilm a plain
dependency: it is for after that distribution is on the index.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from release.minilm import ReleaseError, hatch

from release import minilm

ROOT = Path(__file__).resolve().parents[1]
SUMS = "SHA256SUMS"
_OFF, _ON = '  # "whenabouts-minilm', '  "whenabouts-minilm'


def build_all(out: Path, *, with_encoder: bool = False) -> list[Path]:
    """Build into an empty or new folder; the files. Raises ReleaseError where a check fails."""
    if out.is_dir() and any(out.iterdir()):
        raise ReleaseError(f"{out} is not empty; what lies there would be published too")
    files = [*build_package(out, with_encoder=with_encoder), minilm.build(out)]
    sums = checksums(files)
    with tempfile.TemporaryDirectory() as place:
        again = [*build_package(Path(place), with_encoder=with_encoder), minilm.build(Path(place))]
        if checksums(again) != sums:
            raise ReleaseError(f"built twice, the files differ:\n{sums}{checksums(again)}")
    check(files)
    (out / SUMS).write_text(sums, encoding="ascii")
    return files


def build_package(out: Path, *, with_encoder: bool) -> list[Path]:
    """The sdists of the checked-out commit and the wheels built from them; those of whenabouts come first."""
    with tempfile.TemporaryDirectory() as place:
        tree, unpacked = Path(place) / "tree", Path(place) / "unpacked"
        commit = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True)
        with tarfile.open(fileobj=io.BytesIO(commit.stdout)) as archive:
            archive.extractall(tree, filter="data")
        if with_encoder:
            depend_on_encoder(tree / "pyproject.toml")
        made = []
        for project in (tree, *sorted(tree.glob("packages/*/pyproject.toml"))):
            sdist = hatch(project if project.is_dir() else project.parent, "sdist", out)
            with tarfile.open(sdist) as archive:
                archive.extractall(unpacked, filter="data")
            made += [sdist, hatch(unpacked / sdist.name.removesuffix(".tar.gz"), "wheel", out)]
        return made


def depend_on_encoder(pyproject: Path) -> None:
    """Take the comment sign from the dependency on whenabouts-minilm."""
    text = pyproject.read_text(encoding="utf-8")
    if text.count(_OFF) != 1:
        raise ReleaseError(f"{pyproject}: the line {_OFF.strip()}…, does not stand there exactly once")
    pyproject.write_text(text.replace(_OFF, _ON), encoding="utf-8")


def check(files: list[Path]) -> None:
    """What an index will show reads without a warning."""
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ReleaseError(f"twine check: {done.stdout}{done.stderr}")


def checksums(files: list[Path]) -> str:
    """Lines that `sha256sum --check` reads."""
    return "".join(
        f"{hashlib.sha256(f.read_bytes()).hexdigest()}  {f.name}\n"
        for f in sorted(files, key=lambda f: f.name)
    )


def main() -> None:
    """Build, check, and show what there is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("dist"))
    parser.add_argument("--with-encoder", action="store_true", help="depend on whenabouts-minilm")
    options = parser.parse_args()
    try:
        files = build_all(options.out, with_encoder=options.with_encoder)
    except ReleaseError as error:
        sys.exit(f"release: {error}")
    for file in files:
        print(f"{file.stat().st_size / 1e6:7.1f} MB  {file}")
    print((options.out / SUMS).read_text(encoding="ascii"), end="")


if __name__ == "__main__":
    main()
