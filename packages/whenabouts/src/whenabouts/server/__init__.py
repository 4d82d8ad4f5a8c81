"""A corpus over HTTP: REST routes and the page. They parse requests, ask the corpus and show the answers."""
