"""Which ready stage runs where: a pure state machine, its values and its policies."""
