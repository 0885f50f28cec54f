"""Values that every room knows: candidates, workloads, outcomes, devices, configurations, stages, messages, reports."""
