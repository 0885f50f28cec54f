"""Programs of our own: other ways to compute a workload than MetaSchedule's sketches of it can express."""
