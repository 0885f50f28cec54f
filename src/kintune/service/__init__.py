"""Autotuning as a service: what `kintune serve` is made of.  See docs/design/service.md."""
