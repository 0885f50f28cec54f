"""One tuning job: its stages, and the process that holds its state."""
