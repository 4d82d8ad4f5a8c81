"""A corpus over HTTP: REST routes and the page. Parses, asks the corpus, shows; no logic of its own."""
