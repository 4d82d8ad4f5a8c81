"""What people keep with a corpus while they work in it: collections of moments and saved searches.

It lies in one file of the corpus, apart from the index, so that two people change it at once and while an
index run holds the corpus.
"""
