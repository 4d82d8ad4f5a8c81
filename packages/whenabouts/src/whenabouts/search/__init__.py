"""From a query to ranked moments of one corpus."""
