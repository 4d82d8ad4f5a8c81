"""What lies at a place, in a few lines by which a layout is recognised."""

from __future__ import annotations

from whenabouts_systems.features.layouts._hdf5 import outline as hdf5_outline
from whenabouts_systems.features.layouts._numpy_files import array_names
from whenabouts_systems.features.location import STORE_INDEX, STORE_ROWS, FeatureLocation


def outline_of(location: FeatureLocation) -> str:
    """A kind, and names within it, a line each; `Layout.OUTLINE` recognises a layout by it.

    "hdf5" with the first entry, or "hdf5 group" with that and the names within; "lmdb" with the data file;
    "store" with the index of our own; "npy" with the first file of a folder, or "npz" with the names of its
    arrays; "folder" with file names; "file" with its first bytes. Raises ReaderMissing where only a package
    could tell, FormatError.
    """
    return "\n".join(name.replace("\n", " ") for name in _lines_of(location))


def _lines_of(location: FeatureLocation) -> tuple[str, ...]:
    if location.is_hdf5:
        return hdf5_outline(location.path)
    if location.lmdb_file is not None:
        return ("lmdb", location.lmdb_file.name)
    if not location.is_folder:
        return ("file", location.head.decode("latin-1"))
    if {STORE_ROWS, STORE_INDEX} <= set(location.names):
        return ("store", STORE_INDEX)
    first = next((name for name in location.names if name.endswith((".npy", ".npz"))), None)
    if first is None or STORE_INDEX in location.names:
        return ("folder", *location.names)
    if first.endswith(".npy"):
        return ("npy", first)
    return ("npz", *array_names(location.path / first))
