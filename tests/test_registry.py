"""A new format, layout or data set is one file, put into its folder; nothing else is touched."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from whenabouts.plugins import modules_declaring
from whenabouts_bench import datasets, formats
from whenabouts_systems import features
from whenabouts_systems.features import layouts

FORMAT = '''
"""Lines `QUERY|VIDEO|START|END`."""

from whenabouts_bench.formats.annotations import AnnotationBuilder
from whenabouts.intake.files import Sign

NAME, SUMMARY, KEEPS = "bars", "QUERY|VIDEO|START|END", frozenset()
SIGNS = {"read_annotations": (Sign(line=r"(?:[^|]*[|]){3}[^|]*$"),)}


def read_annotations(path):
    builder = AnnotationBuilder(str(path))
    for line in path.read_text().splitlines():
        query_id, video_id, start, end = line.split("|")
        builder.add_query(query_id, query_id)
        builder.judge(query_id, video_id, float(start), float(end))
    return builder.annotations()
'''

LAYOUT = '''
"""One text file: a line an item, its id and its numbers."""

import numpy as np

from whenabouts_systems.features.source import FeatureSource, UnreadArray

NAME, SUMMARY, OUTLINE = "text", "id: numbers", "(?s)file.*: .*"


class Source(FeatureSource):
    layout = NAME

    def _items_by_id(self):
        return dict(line.split(":") for line in self.path.read_text().splitlines())

    def _inspect(self, item, where):
        row = np.array(where.split(), np.float32)
        return UnreadArray(row.shape, row.dtype, lambda: row)


def open_source(location, options):
    return Source(location.path, options)
'''

DATASET = '''
"""A data set in the new format."""

from whenabouts_bench.datasets.declaration import AnnotationFile, Declaration, Split

DATASET = Declaration(
    name="barred",
    title="Barred",
    tasks=("VCMR",),
    citation="",
    licence="",
    how="",
    mark=rb"[|]",
    splits=(Split("test", (AnnotationFile("barred.txt", "bars"),)),),
)
'''


@pytest.fixture()
def dropped_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for files; three packages have a new module each."""
    added: list[tuple[ModuleType, str, str]] = [
        (formats, "bars", FORMAT),
        (layouts, "text", LAYOUT),
        (datasets, "barred", DATASET),
    ]
    for package, name, source in added:
        folder = tmp_path / package.__name__
        folder.mkdir()
        (folder / f"{name}.py").write_text(source)
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder)])
    return tmp_path


def test_one_file_is_a_format_a_layout_and_a_data_set(dropped_in: Path) -> None:
    (dropped_in / "barred.txt").write_text("a man laughs|v1|2|5\na dog|v2|0|1.5\n")
    assert "bars" in formats.format_names("read_annotations")
    assert formats.read_annotations(dropped_in / "barred.txt").start.tolist() == [2.0, 0.0]
    dataset = datasets.open_dataset("barred", dropped_in)
    assert [query.text for query in dataset.annotations("test").queries] == ["a man laughs", "a dog"]
    assert "barred" in datasets.dataset_names()
    (dropped_in / "features.txt").write_text("v1: 1 2 3\nv2: 4 5 6\n")
    with features.open_features(dropped_in / "features.txt") as source:
        assert source.layout == "text"
        np.testing.assert_array_equal(source.get("v2"), [[4, 5, 6]])


def test_a_helper_file_in_a_registry_is_no_entry() -> None:
    names = {module.__name__.rpartition(".")[2] for module in modules_declaring(formats.__name__, "NAME")}
    assert {"jsonl", "trec"} <= names
    assert not names & {"files", "runs", "annotations"}
