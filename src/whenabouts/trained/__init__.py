"""One's own videos through a trained system: what it keeps of them, and the ways from a query to moments."""
