"""Processes here and on other machines, and what carries the scheduler's decisions out."""
