"""From a query to ranked moments of one corpus, in five steps (`searcher.py`)."""
