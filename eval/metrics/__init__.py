"""The measures of an evaluation, as plain functions: one file for each kind, formula and edge values in its docstrings.

What cannot be scored is None, never 0: a question without gold evidence has no recall. Wrong use (a document ranked
twice, a mark above 1) is a ValueError; nothing here reads files.
"""
