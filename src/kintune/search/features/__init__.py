"""What can be said of candidates without making them: arithmetic on their decisions, many at once; free of TVM."""
