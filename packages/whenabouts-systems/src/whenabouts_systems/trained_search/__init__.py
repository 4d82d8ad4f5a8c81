"""A corpus searched with a trained system: its search keys in the index, and the way of a query."""
