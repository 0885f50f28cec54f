"""Boards without Python, measured through the compiler's own RPC server."""
