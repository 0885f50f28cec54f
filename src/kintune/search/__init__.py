"""The search: decides which candidates to measure next.  It has no side effects and does not need the compiler."""
