"""Executables: opened, run, timed, saved.  Needs the compiler's runtime."""
