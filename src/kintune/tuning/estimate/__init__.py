"""What a model asks of a machine, found out before any work; free of TVM."""
