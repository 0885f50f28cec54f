"""The race between the stock tuner and ours: turns, the judge of what they found, and the reckoning."""
