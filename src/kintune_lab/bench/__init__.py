"""superb: runs the product of lists of options unattended, collects what comes of it, and renders a report."""
