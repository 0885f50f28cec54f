"""Drivers that carry the scheduler's decisions out."""
