"""Keeps tables fast: decides when to merge and index, makes indices, and deletes old versions.

Indices are stored with the corpus, so an older corpus keeps the settings that its indices were made with.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from whenabouts.index.lance import is_remote, refuse_links
from whenabouts.index.lookup import has_index
from whenabouts.index.vector_index import Distance, VectorIndex

INDEX_ROWS = 50_000
"""Streams get a vector index from this many vectors on; an exact search takes about 1 ms per thousand."""

PARTITION_ROWS = 1_000
"""Clips per partition. With 1 M clips, a search with recall@200 of 0.98 takes 6 ms; with 2,500, 12 ms."""

# An index is trained again when the stream has grown by this factor; until then its partitions grow.
_RETRAIN_GROWTH = 2
# The age from which versions are deleted. Readers hold no lock: if their version is deleted, they read again
# from the newest. An age of zero would do the same, but LanceDB warns of it.
_OLD_VERSIONS_KEPT = timedelta(milliseconds=1)
_CONFLICT = "Retryable commit conflict"  # in LanceDB's error after a concurrent write
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class TableState:
    """The numbers of rows, of fragments, and of rows that the id index does not cover yet."""

    rows: int
    fragments: int
    unindexed: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """When upkeep is due: at `fragments` fragments, or when enough rows are outside the id index.

    These must be at least `rows` in number and a share of `share` of the table. Compaction rewrites a table
    of up to a million rows whole. So during an index run (`WHILE_WRITING`) new rows make upkeep due only when
    they are a quarter of the table, which keeps the work proportional to the size of the corpus. A thousand
    rows outside the word index cost each search 0.2 s of processor time (`benchmarks/upkeep.py`).
    """

    fragments: int
    rows: int
    share: float

    def is_due(self, state: TableState) -> bool:
        """Whether a table in this state needs upkeep."""
        has_many_new = state.unindexed >= self.rows and state.unindexed >= self.share * state.rows
        return state.fragments >= self.fragments or has_many_new


WHILE_WRITING = Schedule(fragments=256, rows=1_000, share=0.25)
LEDGER_WHILE_WRITING = Schedule(fragments=32, rows=50_000, share=0.5)
"""The ledger is small, so merging it costs less than writing to many fragments."""

AFTER_RUN = Schedule(fragments=16, rows=1, share=0.0)
ALWAYS = Schedule(fragments=0, rows=0, share=0.0)


def state_of(table: Any) -> TableState:
    """The state of a table; if its column `video_id` has no index, all rows count as unindexed."""
    stats = table.stats()
    indexed = table.index_stats("video_id_idx")
    unindexed = stats["num_rows"] if indexed is None else indexed.num_unindexed_rows
    return TableState(stats["num_rows"], stats["fragment_stats"]["num_fragments"], unindexed)


def index_ids(table: Any) -> None:
    """Index the column `video_id`, unless it is indexed."""
    if not has_index(table, "video_id"):
        from lancedb.index import BTree

        table.create_index("video_id", config=BTree())


def index_kinds(table: Any) -> None:
    """Index the column `kind`, which has few values; an existing index is replaced."""
    from lancedb.index import Bitmap

    table.create_index("kind", config=Bitmap())


def index_words(table: Any) -> None:
    """Index the words of clips (the column `context`), unless they are indexed.

    ICU segments text without spaces (Chinese, Japanese, Thai). Stop words are kept, because "to be or not to
    be" is a question too.
    """
    if not has_index(table, "context"):
        from lancedb.index import FTS

        config = FTS(base_tokenizer="icu/split", stem=True, remove_stop_words=False, ascii_folding=True)
        table.create_index("context", config=config)


def index_vectors(
    table: Any, trained: VectorIndex | None, distance: Distance = "cosine"
) -> VectorIndex | None:
    """Train the vector index and return its facts; None if it is too early (`INDEX_ROWS`, `trained`)."""
    rows = table.count_rows()
    if rows < INDEX_ROWS or (trained is not None and rows < _RETRAIN_GROWTH * trained.rows):
        return None
    filled = table.count_rows("vector IS NOT NULL")
    if filled < INDEX_ROWS:
        return None
    from lancedb.index import IvfSq

    # With a target size, updates keep partitions between 1/4 and 4 times that size. With `num_partitions`
    # there is no target: updates merged 60 partitions of 1,000 into 4.
    config = IvfSq(
        distance_type=distance, target_partition_size=PARTITION_ROWS, sample_rate=64, max_iterations=15
    )
    table.create_index("vector", config=config, replace=True)
    return VectorIndex(rows, max(1, filled // PARTITION_ROWS), distance)  # partitions: an estimate


def rewrite(table: Any, place: str) -> None:
    """Rewrite a table and its id index, and delete older versions, so that deleted rows leave the disk.

    All other indices are lost; the caller makes them again. Compaction alone keeps a file if less than a
    tenth of its rows was deleted. Raises as `tidy`.
    """
    import pyarrow as pa

    refuse_links(place)
    rows = table.search().limit(None).to_batches()
    table.add(pa.RecordBatchReader.from_batches(table.schema, rows), mode="overwrite", on_bad_vectors="null")
    table.checkout_latest()
    index_ids(table)
    tidy(table, place)


def tidy(table: Any, place: str) -> None:
    """Merge fragments, update indices, delete older versions and files that no version needs.

    Files of an interrupted write belong to no version. They are deleted at once only in a folder, whose lock
    cannot be lost; on an object store LanceDB keeps them for seven days. Raises NotACorpus for a folder with
    links, because one may have been added since the corpus was opened.

    A renewal of the writer's lease changes table `corpus` and may conflict with its merge, which is then
    tried again, as LanceDB asks; the fifth conflict is raised as RuntimeError.
    """
    refuse_links(place)
    for attempts_left in reversed(range(_ATTEMPTS)):
        try:
            table.optimize(cleanup_older_than=_OLD_VERSIONS_KEPT, delete_unverified=not is_remote(place))
            return
        except RuntimeError as error:
            if _CONFLICT not in str(error) or not attempts_left:
                raise
            table.checkout_latest()
