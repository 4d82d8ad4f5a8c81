"""Search a corpus with a trained system: keep its search keys in the index, and answer queries from them."""
