"""Executables: opens, runs, times and saves compiled networks with the compiler's runtime."""
