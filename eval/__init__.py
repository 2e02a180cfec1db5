"""Offline evaluation: benchmarks and your own record, any system, from one command (`python -m eval`).

The way of a run by opening folders: `datasets/` reads a benchmark into the common form of `cases.py`; `systems/` takes
its documents in and answers with ranked ids and an evidence text; `metrics/` scores that; `models/`, `answering.py` and
`judging.py` ask answering and judging models; `results.py` keeps what came out; `report.py` shows it. Only the public
API of mempp is used.
"""
