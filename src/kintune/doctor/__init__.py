"""Whether this machine can tune, and what it is; free of TVM, which is only ever loaded in a process of its own."""
