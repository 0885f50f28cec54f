"""The process that tunes: the scheduler, its engine, and every job's way from queued to its end."""
