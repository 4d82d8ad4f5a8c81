"""Collections of moments and saved searches, kept with a corpus; and the guests of a server.

Collections lie in one file of the corpus, apart from the index. So two people can change them at the same
time, also while an index run holds the corpus. Guests lie in a file of the owner's, apart from any corpus.
"""
