"""Two tuners on the same work: what a race between the stock tuner and ours needs of the compiler."""
