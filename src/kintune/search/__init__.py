"""The search: which candidates to measure next.  Pure, and free of the compiler."""
