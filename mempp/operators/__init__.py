"""What is done with a memory by asking a language model: functions that take a `Memory` and use its public API alone.

`Memory` has a method for each, which imports it when it is called. No other part of Mem++ needs this package.
"""
