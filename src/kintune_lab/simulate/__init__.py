"""Schedules in virtual time: the scheduler's own machine, driven by planned stages instead of processes."""
