"""The sweep over k of the paper's Table 7 and Figure 4."""

from collections.abc import Mapping, Sequence

from eval.errors import UsageError
from eval.systems.base import System

KS = (5, 10, 15, 30, 50, 70, 100)


def read_ks(texts: Sequence[str]) -> list[int]:
    """The list of `--k`: numbers, one or several to an option, separated by commas.

    Raises:
        UsageError: one is no whole number from 1.
    """
    found: list[int] = []
    for text in ",".join(texts).split(","):
        try:
            k = int(text)
        except ValueError:
            k = 0
        if k < 1:
            raise UsageError(f"--k takes whole numbers from 1, such as 5,10,50; got {text[:40]!r}")
        found.append(k)
    return sorted(set(found))


def fill_needed(system: System, ks: Sequence[int], settings: Mapping[str, str]) -> bool:
    """Whether the sweep must turn `fill` on: a k above C, the most that a leg returns, has rows to fill up with.

    It is then on for every k of the sweep, so that they differ in k alone; what the caller set himself stays.
    """
    own = system.configuration.get("settings")
    if not isinstance(own, Mapping) or "fill" in settings:
        return False
    candidates = own.get("candidates")
    return isinstance(candidates, int) and max(ks) > candidates and not own.get("fill")
