"""Hosts and devices elsewhere: what runs on them, and how the front reaches it."""
