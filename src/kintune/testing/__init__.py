"""Fakes, scripted processes and conformance suites, for this project's tests and for users'."""
