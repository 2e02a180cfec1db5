"""Benchmarks by name. Adding one: a file here with a `Dataset`, and a line in `DATASETS`."""

from collections.abc import Mapping

from eval.cases import Dataset
from eval.datasets.common import nearest
from eval.datasets.locomo import LOCOMO
from eval.datasets.longbench import LONGBENCH
from eval.datasets.longmemeval import LONGMEMEVAL
from eval.datasets.membench import MEMBENCH
from eval.datasets.orgmembench import ORGMEMBENCH
from eval.datasets.own import OWN
from eval.errors import UsageError

__all__ = ["DATASETS", "dataset"]

DATASETS: Mapping[str, Dataset] = {
    one.name: one for one in (ORGMEMBENCH, LOCOMO, LONGMEMEVAL, LONGBENCH, MEMBENCH, OWN)
}


def dataset(name: str) -> Dataset:
    """The benchmark of this name.

    Raises:
        UsageError: there is none; names the nearest.
    """
    if name not in DATASETS:
        raise UsageError(f"no benchmark {name!r:.60}{nearest(name, DATASETS)}; there are: {', '.join(DATASETS)}")
    return DATASETS[name]
