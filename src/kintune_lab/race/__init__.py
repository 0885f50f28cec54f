"""Races between the stock tuner and Kintune: turns, re-measurement of their programs, and analysis."""
