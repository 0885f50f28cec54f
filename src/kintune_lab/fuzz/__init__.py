"""A fuzzer of models: draws valid graphs, compiles them, compares with references, and reduces those that fail."""
