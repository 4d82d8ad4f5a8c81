"""From a query to ranked moments of one corpus, in six steps (`searcher.py`)."""
