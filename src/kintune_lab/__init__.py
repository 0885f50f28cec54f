"""The laboratory of Kintune: benchmarks, races against the stock tuner, pools of measurements, a simulator.

Tuning never reaches this package, and `kintune` never imports it; its commands are added by the entry point in
pyproject.toml.
"""
