"""A corpus on disk and the search of its nearest neighbours."""
