"""Streams are known by name in their own files only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from whenabouts.streams import all_streams

PACKAGES = Path(__file__).resolve().parents[1] / "packages"
SOURCE = PACKAGES / "whenabouts" / "src" / "whenabouts"

# Files that use these words for something else than a stream of a corpus, and what that is.
EXCEPTIONS = {
    "whenabouts/extras.py": "the extras of the package",
    "whenabouts/diagnosis.py": "the extras of the package",
    "whenabouts/index/stream.py": "the kinds of encoders",
    "whenabouts_bench/datasets/declaration.py": "whose features a published file holds",
    "whenabouts_bench/datasets/tvr.py": "whose features a published file holds",
    "whenabouts_bench/datasets/activitynet_two_annotators.py": "whose features its file holds",
    "whenabouts_bench/datasets/titled_transcripts.py": "whose features its file holds",
    "whenabouts_bench/systems/whenabouts.py": "options of `Corpus.add`",
    "whenabouts/encoders/clip.py": "an extra of the package: pip install 'whenabouts[vision]'",
    "whenabouts/encoders/clap.py": "that extra, and what the encoder takes",
    "whenabouts/encoders/diarization.py": "an extra of the package",
    "whenabouts/encoders/efficientnet.py": "an extra of the package",
    "whenabouts/encoders/onnx_voices.py": "what a model takes",
    "whenabouts/encoders/x_vector.py": "an extra of the package",
    "whenabouts/encoders/protocol.py": "what an encoder takes",
    "whenabouts/checkers/vision_language.py": "an extra of the package",
    "whenabouts/search/sounds_alike.py": "the name of a rewriter",
}
# Rooms in which the names are those of a model's own inputs, or of a kind of track in a file.
EXCEPTED_ROOMS = (
    "whenabouts_systems/models/",
    "whenabouts_systems/released/",
    "whenabouts_systems/training/",
    "whenabouts_systems/features/",
    "whenabouts/video/",
    "whenabouts_bench/formats/",
)


def _named(path: Path, names: frozenset[str]) -> Iterator[int]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return (node.lineno for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value in names)


def test_no_file_outside_the_folder_names_a_stream() -> None:
    names = frozenset(all_streams())
    wrong = [
        f"{relative}:{line}"
        for path in sorted(PACKAGES.glob("*/src/**/*.py"))
        if not (relative := "/".join(path.relative_to(PACKAGES).parts[2:])).startswith(
            ("whenabouts/streams/", *EXCEPTED_ROOMS)
        )
        if relative not in EXCEPTIONS
        for line in _named(path, names)
    ]
    assert not wrong


def test_the_page_names_no_stream() -> None:
    scripts = sorted((SOURCE / "server" / "page").glob("*.js"))
    assert len(scripts) > 5
    for path in scripts:
        text = path.read_text(encoding="utf-8").replace('byId("subtitle")', "")
        assert not [name for name in all_streams() if f'"{name}"' in text], path
