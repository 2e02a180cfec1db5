"""Prompts as versioned files, and how they are filled in.

A file has two parts with a line `---` between them: what the model is told once (system), and the question with its
texts. Without such a line all of it is the second. Placeholders stand in braces: {question} {evidence} {asked_at}
{as_of} {gold} {answer} {facets} {choices}. A line whose placeholder has no value is left out. A published file is
never changed: what is better is a new version, so that a digest in an old result keeps its meaning.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from eval.errors import EvalError

PLACEHOLDERS = ("question", "evidence", "asked_at", "as_of", "gold", "answer", "facets", "choices")

_FOLDER = Path(__file__).parent
_PLACEHOLDER = re.compile(r"\{([a-z][a-z_0-9]*)\}")
_VERSION = re.compile(r"(.+)\.(v\d+)")
_CLOSING_TAG = re.compile(rf"</(?=\s*(?:{'|'.join(PLACEHOLDERS)})\s*>)", re.IGNORECASE)

_ANSWER_PROMPTS = {
    "locomo": "answer_short.v1",
    "longbench": "answer_short.v1",
    "membench": "answer_choice.v1",
}


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as it was read."""

    name: str
    """Name of the file without version and ending."""
    version: str
    """Such as "v1"; empty where the file's name has none."""
    text: str
    digest: str
    """SHA-256 of the file, in hexadecimal."""

    @property
    def placeholders(self) -> frozenset[str]:
        """Those that the text has."""
        return frozenset(_PLACEHOLDER.findall(self.text))

    def fill(self, values: Mapping[str, str | None]) -> tuple[str, str]:
        """Returns (system, prompt) with the values in place.

        Braces in values mean nothing, and a closing tag such as "</evidence>" in one is broken, so that a text cannot
        end the place that it stands in. A line is left out if one of its placeholders has the value None or none.
        """
        system, prompt = _parts(self.text)
        return _filled(system, values), _filled(prompt, values)


def load(name_or_path: str | Path) -> Prompt:
    """Reads a prompt: one of this folder by its name, such as "answer.v1", or a file of one's own by its path.

    Raises:
        EvalError: there is no such prompt, it is no UTF-8 text, it is empty, or a placeholder is not known.
    """
    path = _FOLDER / f"{name_or_path}.txt"
    if not _is_name(name_or_path) or not path.is_file():
        path = Path(name_or_path)
    try:
        content = path.read_bytes()
        text = content.decode()
    except OSError as error:
        raise EvalError(
            f"the prompt {str(name_or_path)[:200]!r} cannot be read ({error.strerror or error}); give a file, or one "
            f"of {', '.join(names())}"
        ) from error
    except UnicodeDecodeError as error:
        raise EvalError(f"the prompt {str(name_or_path)[:200]!r} is no UTF-8 text (byte {error.start})") from error
    if not text.strip():
        raise EvalError(f"the prompt {str(name_or_path)[:200]!r} is empty")
    for placeholder in _PLACEHOLDER.findall(text):
        if placeholder not in PLACEHOLDERS:
            near = get_close_matches(placeholder, PLACEHOLDERS, n=1)
            hint = f"did you mean {{{near[0]}}}?" if near else f"known are {', '.join(PLACEHOLDERS)}"
            raise EvalError(f"the prompt {str(name_or_path)[:200]!r} has the placeholder {{{placeholder}}}; {hint}")
    versioned = _VERSION.fullmatch(path.stem)
    name, version = versioned.groups() if versioned else (path.stem, "")
    return Prompt(name, version, text, hashlib.sha256(content).hexdigest())


def names() -> list[str]:
    """Returns the names that `load` takes from this folder."""
    return sorted(path.stem for path in _FOLDER.glob("*.txt"))


def prompt_for(dataset_name: str) -> Prompt:
    """Returns the answering prompt that a dataset is answered with unless another is named."""
    return load(_ANSWER_PROMPTS.get(dataset_name, "answer.v1"))


def choice_prompt() -> Prompt:
    """Returns what a multiple-choice question is asked with where the answering prompt has no {choices}."""
    return load("answer_choice.v1")


def _is_name(name_or_path: str | Path) -> bool:
    return isinstance(name_or_path, str) and bool(name_or_path) and "/" not in name_or_path


def _parts(text: str) -> tuple[str, str]:
    lines = text.splitlines()
    if "---" not in lines:
        return "", text
    middle = lines.index("---")
    return "\n".join(lines[:middle]), "\n".join(lines[middle + 1 :])


def _filled(template: str, values: Mapping[str, str | None]) -> str:
    lines = template.split("\n")
    kept = [line for line in lines if all(values.get(name) is not None for name in _PLACEHOLDER.findall(line))]
    # Blank lines around one that was left out become one; those in the values stay.
    shape = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()
    return _PLACEHOLDER.sub(lambda found: _safe(values[found[1]] or ""), shape)


def _safe(value: str) -> str:
    return _CLOSING_TAG.sub("< /", value)
