"""Who speaks and who is seen, across the videos of a corpus."""
