"""How sure an answer is: scores of unrelated queries on a corpus, and outcomes of questions with known
answers.
"""
