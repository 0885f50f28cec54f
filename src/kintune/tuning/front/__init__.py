"""The front process of a command: from a request to a proven result and its report."""
