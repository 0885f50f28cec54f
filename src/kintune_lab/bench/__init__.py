"""Runs a matrix of experiments unattended, collects their observations, and renders a report."""
