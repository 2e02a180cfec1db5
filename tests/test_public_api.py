"""The public surface: what is exported, what is documented, which way imports point."""

import ast
import re
from pathlib import Path

import pytest

import mempp
from mempp import errors
from mempp.settings import NAMES

ROOT = Path(__file__).parent.parent


def test_all_names_exist_and_every_error_is_exported():
    for name in mempp.__all__:
        assert getattr(mempp, name) is not None
    assert set(mempp.__all__) <= set(dir(mempp))
    tree = [value for value in vars(errors).values() if isinstance(value, type)]
    assert {one.__name__ for one in tree} <= set(mempp.__all__)
    assert all(issubclass(one, mempp.MemppError) for one in tree)
    with pytest.raises(AttributeError, match="nonsense"):
        mempp.nonsense  # noqa: B018


def test_the_error_tree_is_drawn_as_it_is():
    drawn = re.findall(r"── (\w+)", errors.__doc__)
    assert set(drawn) == {one.__name__ for one in vars(errors).values() if isinstance(one, type)} - {"MemppError"}


ALLOWED = {
    "storage": {"errors"},
    "indexes": {"errors"},
    "encoders": {"errors", "remote"},
    "recall": {"errors", "dates", "records", "settings", "indexes"},
    "reranking": {"errors", "encoders", "recall"},
    "llm": {"errors", "remote"},
    # Both beside the package itself:
    "operators": {"errors", "records", "dates", "settings", "recall", "llm", "evidence", "progress", "waiting"},
    "cli": {"errors", "records", "dates", "settings", "llm"},
}
PUBLIC_ONLY = ("cli", "operators")


@pytest.mark.parametrize("folder", sorted(ALLOWED))
def test_arrows_point_one_way(folder):
    """Storage, indexes and encoders know nothing of one another or of memory; recall imports indexes (design, §6)."""
    for path in (ROOT / "mempp" / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = []
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                modules = [
                    f"{node.module}.{name.name}" if node.module == "mempp" else node.module for name in node.names
                ]
            elif isinstance(node, ast.Import):
                modules = [name.name for name in node.names]
            for module in modules:
                parts = module.split(".")
                if parts[0] == "mempp" and len(parts) > 1 and parts[1][0].islower() and parts[1] != folder:
                    exported = parts[1] in mempp.__all__
                    assert parts[1] in ALLOWED[folder] or (folder in PUBLIC_ONLY and exported), f"{path.name}: {module}"


def test_nothing_else_needs_a_language_model():
    """No module but the operators and the command line imports `mempp.llm` or an operator when it is imported."""
    for path in (ROOT / "mempp").rglob("*.py"):
        if path.relative_to(ROOT / "mempp").parts[0] in ("llm", "operators", "cli"):
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith(("mempp.llm", "mempp.operators")), path.name


def test_every_setting_is_in_the_readme():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in NAMES if name + "=" not in text] == []


def test_modules_stay_small():
    too_long = {
        str(path.relative_to(ROOT)): count
        for path in (ROOT / "mempp").rglob("*.py")
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > 500
    }
    assert too_long == {}
