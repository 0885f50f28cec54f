"""One tuning job, from the request to the report."""
