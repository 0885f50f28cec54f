"""Values that all subpackages share: candidates, workloads, outcomes, devices, configurations, stages, reports."""
