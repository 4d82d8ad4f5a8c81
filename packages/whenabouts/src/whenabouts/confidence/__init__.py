"""How sure an answer is: chance scores of unrelated queries, probabilities, and measured error rates."""
