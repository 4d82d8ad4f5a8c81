"""`cuepoint build`: benchmarks made of annotated data sets, and people's check of them."""
