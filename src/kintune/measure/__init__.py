"""Building candidates and timing them.  Only the types of requests and outcomes are free of TVM."""
