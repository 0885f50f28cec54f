"""Specs that people write in TOML: read so that whatever is wrong can be named with its line."""
