"""Every system that can be evaluated. Adding one is a module in this folder with two names.

- `SYSTEMS`: name → one line about it; an `N` in a name stands for a whole number.
- `build(name, options, encoder)` → the `System`; `encoder` is an `Encoder` object that a program hands over, or None:
  then `options.encoder` names one. Modules are imported here, so they load heavy or optional packages in `build`.
"""

import pkgutil
import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType

import mempp
from eval.errors import UsageError
from eval.systems.base import Options, System

__all__ = ["names", "system"]


def names() -> Sequence[tuple[str, str]]:
    """Every system with one line about it, by name; an `N` in a name stands for a whole number."""
    return sorted((name, line) for module in _modules() for name, line in module.SYSTEMS.items())


def system(name: str, options: Options | None = None, *, encoder: mempp.Encoder | None = None) -> System:
    """The system of this name.

    Args:
        name: e.g. "mempp" or "rag-2048".
        options: what the command line gave.
        encoder: an encoder object, instead of the one that `options` names.

    Raises:
        UsageError: there is no such system, or an option is not usable.
        SystemUnavailableError: a package that it needs is not installed.
    """
    for module in _modules():
        for pattern in module.SYSTEMS:
            if re.fullmatch(re.escape(pattern).replace("N", "[0-9]{1,9}"), name):
                built: System = module.build(name, options or Options(), encoder)
                return built
    known = [one for one, _ in names()]
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else "the systems are"
    raise UsageError(f"there is no system {name!r}; {hint} ({', '.join(known)})")


def _modules() -> Iterator[ModuleType]:
    for info in pkgutil.iter_modules(__path__):
        module = import_module(f"{__name__}.{info.name}")
        if hasattr(module, "SYSTEMS"):
            yield module
