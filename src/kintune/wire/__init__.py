"""Messages between the front process and the processes it starts, and the loops those run."""
