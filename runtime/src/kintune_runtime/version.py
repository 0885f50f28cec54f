"""The version of the runtime; results of another one may be refused."""

__version__ = "0.1.0"
