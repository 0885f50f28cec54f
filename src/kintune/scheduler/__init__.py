"""The scheduler: a pure state machine that decides which ready stage runs where, and its policies."""
