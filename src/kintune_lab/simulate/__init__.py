"""Schedules in virtual time: the scheduler driven by planned stages instead of processes."""
