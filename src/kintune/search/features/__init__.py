"""Analytic features: arithmetic on the decisions of many candidates at once.  Does not need TVM."""
