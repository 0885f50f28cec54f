"""Search spaces: candidates as values, and the way from a candidate to a program."""
