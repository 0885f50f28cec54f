"""Conformance suites, a synthetic search space and test services, for this project's tests and for users' tests."""
