"""Converters of ONNX operators; one file for each group, which declares its operators in `OPERATORS`.

`library` finds them; what a declaration says is in `registration`.
"""
