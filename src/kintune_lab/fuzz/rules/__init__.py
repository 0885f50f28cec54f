"""Rules for operators whose schema does not say which shapes, values or attributes are valid.

A rule draws the operands and attributes of one node and appends it.  Operators without a rule follow their schema.
"""
