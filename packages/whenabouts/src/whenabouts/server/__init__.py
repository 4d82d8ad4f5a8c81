"""Serves a corpus over HTTP: the page, and REST routes that parse requests, ask the corpus and answer."""
