"""Networks tuned and timed beside other runtimes, file by file: what a comparison is made of."""
