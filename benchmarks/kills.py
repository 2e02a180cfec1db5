"""Crash safety by hand: many kills, many processes at one store for a minute, and damaged files.

    python -m benchmarks kills kills --count 1000
    python -m benchmarks kills processes --seconds 60
    python -m benchmarks kills processes --seconds 60 --kill-writers
    python -m benchmarks kills damage --count 500

The same programs run for a shorter time in tests/test_kill.py, tests/test_processes.py and tests/test_damage.py. The
first thing that is lost, half there, doubled or out of order ends the run with an AssertionError; the stores, whose
path is told, are kept then, and else removed.
"""

# ruff: noqa: E402

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent.parent), str(Path(__file__).parent.parent / "tests")]

from harness.company import work_together
from harness.damaging import KINDS, damage_all
from harness.killing import kill_many
from harness.nursery import Nursery, nursery


def main() -> None:
    """Run what the arguments name, and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("kills", "processes", "damage"))
    parser.add_argument("--count", type=int, default=1000, help="kills, or flipped bits of each kind of file (1000)")
    parser.add_argument("--seconds", type=float, default=60.0, help="of processes together (60)")
    parser.add_argument("--kill-writers", action="store_true", help="kill writers at random and start new ones")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    if options.count < 1 or options.seconds <= 0:
        parser.error("--count and --seconds must be above 0: nothing would be tried")
    folder = Path(tempfile.mkdtemp(prefix="mempp-kills-"))
    print(f"seed {options.seed}, stores in {folder}")
    began = time.monotonic()
    with nursery() as server:
        if options.what == "kills":
            figures = kill_many(server, folder, options.count, options.seed, tell)
        elif options.what == "damage":
            figures = damage(server, folder, options.count, options.seed)
        else:
            figures = work_together(
                server, folder / "store", options.seconds, seed=options.seed, kill_writers=options.kill_writers
            )
    shutil.rmtree(folder)
    print(f"nothing lost in {time.monotonic() - began:.0f} s")
    for name, number in sorted(figures.items()):
        print(f"{number:10,}  {name}")


def damage(server: Nursery, folder: Path, flips: int, seed: int) -> Counter[str]:
    """Damage each kind of file so often; return how often came what, by kind."""
    figures: Counter[str] = Counter()
    for kind in KINDS:
        counts, faults = damage_all(server, folder / kind.replace(" ", "-"), kind, flips, seed)
        assert not faults, faults
        figures.update({f"{kind}: {outcome}": count for outcome, count in counts.items()})
    return figures


def tell(done: int, figures: Counter[str]) -> None:
    """Say how far it is."""
    if done % 50 == 0:
        print(f"{done:,} kills, {figures['rows acknowledged']:,} rows acknowledged", flush=True)


if __name__ == "__main__":
    main()
