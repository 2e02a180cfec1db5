"""The command line `mempp`: the same memory as in Python, for shells and people."""

from mempp.cli.run import main

__all__ = ["main"]
