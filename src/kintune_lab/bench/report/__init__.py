"""The report of a bench: what it says (sections), how that is drawn (plots), and the page that holds it."""
