"""From judgements and a run to numbers: metrics by named protocols, significance, reports."""
