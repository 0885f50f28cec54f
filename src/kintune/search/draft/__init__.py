"""Draft, then verify: candidates are evolved and ranked in bulk as numbers, and only the best are replayed."""
