"""Saved searches: a question with its filters, and the moments the user has seen."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from whenabouts.index.records import StoreError
from whenabouts.types import UsageError
from whenabouts.workplace.collections import checked_name
from whenabouts.workplace.database import Database

MOST_SEARCHES = 1_000
_MOST_MOMENTS = 1_000
LONGEST_QUESTION = 20_000


class NoSuchSearch(UsageError):
    """No saved search has that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no saved search is called {name[:200]!r}")


@dataclass(frozen=True, slots=True)
class SavedSearch:
    """A named question, saved at a Unix time. `moments` are the names of those that the user has seen.

    `problem` says why an invalid one, which someone else may have written, cannot be repeated; "" if valid.
    """

    name: str
    question: Mapping[str, Any]
    saved: float
    moments: frozenset[str]
    problem: str = ""


class SavedSearches:
    """The saved searches of a corpus. All methods raise StoreError if their file cannot be used."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def listed(self) -> list[SavedSearch]:
        """All saved searches, by name. Invalid ones have a `problem`."""
        with self._database.reading() as connection:
            if connection is None:
                return []
            return [_search_of(row) for row in connection.execute("SELECT * FROM searches ORDER BY name")]

    def get(self, name: str) -> SavedSearch:
        """A saved search. Raises NoSuchSearch, and StoreError for an invalid one."""
        search = {each.name: each for each in self.listed()}.get(name.strip())
        if search is None:
            raise NoSuchSearch(name)
        if search.problem:
            raise StoreError(search.problem)
        return search

    def save(self, name: str, question: Mapping[str, Any], moments: Iterable[str]) -> None:
        """Save a question with the names of its first 1,000 moments; replaces a search of the same name."""
        text = json.dumps(dict(question), ensure_ascii=False)
        if len(text) > LONGEST_QUESTION:
            raise UsageError(
                f"the question has {len(text)} characters; at most {LONGEST_QUESTION} are allowed"
            )
        kept = json.dumps(list(moments)[:_MOST_MOMENTS], ensure_ascii=False)
        with self._database.changing() as connection:
            name = checked_name(name)
            count = connection.execute("SELECT COUNT(*) FROM searches WHERE name != ?", (name,)).fetchone()[0]
            if count >= MOST_SEARCHES:
                raise UsageError(f"there are {MOST_SEARCHES} saved searches; delete one first")
            connection.execute(
                "INSERT OR REPLACE INTO searches VALUES (?, ?, ?, ?)", (name, text, time.time(), kept)
            )

    def delete(self, name: str) -> None:
        """Delete a saved search. Raises NoSuchSearch."""
        with self._database.changing() as connection:
            rows = connection.execute("SELECT rowid, name FROM searches").fetchall()
            # Shown names are compared: SQLite cannot find a name that is not UTF-8 by its shown form.
            matching = [(row["rowid"],) for row in rows if row["name"] == name.strip()]
            if not matching:
                raise NoSuchSearch(name)
            connection.executemany("DELETE FROM searches WHERE rowid = ?", matching)


def _search_of(row: sqlite3.Row) -> SavedSearch:
    try:
        question, moments = json.loads(row["question"]), json.loads(row["moments"])
        "".join((*question, *question.values(), *moments)).encode()  # JSON may hold half of a character
    except (ValueError, TypeError, AttributeError, RecursionError):
        problem = f"the saved search {row['name'][:100]!r} is invalid; delete it"
        return SavedSearch(row["name"], {}, row["saved"], frozenset(), problem)
    return SavedSearch(row["name"], question, row["saved"], frozenset(moments))
