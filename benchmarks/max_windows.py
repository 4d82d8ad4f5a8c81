"""Count what the DETR programs' limit of windows changes in the targets of QVHighlights.

    python -m benchmarks.max_windows DIR      # DIR has highlight_val_release.jsonl

The programs learn at most 5 windows of a query, drawn anew in each epoch (`data.max_windows`). Printed are
the number of queries with more, the share of windows that an epoch leaves out, and the share of all learned
windows that belong to these queries, without and with the limit: the span losses are means over windows.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from whenabouts_bench.datasets import open_dataset

LIMIT, PREDICTED = 5, 10
"""Windows that the programs learn of a query, and windows that their models predict."""


def told(folder: Path) -> dict[str, float]:
    """Numbers of queries and windows; shares in percent."""
    counts = np.bincount(open_dataset("qvhighlights", folder).annotations("val").query)
    many, kept = counts > LIMIT, np.minimum(counts, LIMIT)
    return {
        "queries": len(counts),
        "windows": int(counts.sum()),
        "queries with more windows": int(many.sum()),
        "queries with more windows than predicted": int((counts > PREDICTED).sum()),
        "windows left out": round(100 * float(1 - kept.sum() / counts.sum()), 1),
        "windows of these queries": round(100 * float(counts[many].sum() / counts.sum()), 1),
        "the same with the limit": round(100 * float(kept[many].sum() / kept.sum()), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    print(json.dumps(told(parser.parse_args().folder), indent=1))


if __name__ == "__main__":
    main()
