"""The tuners that a race compares: the stock tuner and Kintune's search, each in a process of its own."""
