"""What the files of a sentence-transformers directory say about how to run its model."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mempp.encoders.runtime import POOLINGS
from mempp.errors import EncoderUnavailableError, quoted

_DEFAULT_MAX_LENGTH = 512
# tokenizer_config.json writes "no limit" as 1e30.
_NO_LIMIT = 1_000_000
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")


@dataclass(frozen=True)
class DirectorySettings:
    """The settings found; what the files leave open is None.

    Attributes:
        pooling: one of `POOLINGS`.
        dimensions: of the piece vectors, so of the pooled vector.
        max_length: pieces kept, special tokens counted in.
        query_prefix: put before a question.
        document_prefix: put before a document.
        lower_case: the text is lower-cased before it is tokenised.
        pad_number: the padding piece.
        pad_token: the padding piece's text, where its number is not given.
        prefix_pooled: the prefix takes part in the pooling.
        graph_must_pool: why only a graph with the output `sentence_embedding` will do.
    """

    pooling: str
    dimensions: int | None
    max_length: int
    query_prefix: str
    document_prefix: str
    lower_case: bool
    pad_number: int | None
    pad_token: str | None
    prefix_pooled: bool
    graph_must_pool: str | None


def read_settings(directory: Path) -> DirectorySettings:
    """Reads modules.json, the pooling's config.json, sentence_bert_config.json, config_sentence_transformers.json,
    tokenizer_config.json and config.json; each may be missing, with the defaults of sentence-transformers.

    Raises:
        EncoderUnavailableError: a file is unreadable or no JSON of the expected kind.
    """
    pooling_folder, graph_must_pool = _modules(directory)
    pooling_config = _read_object(directory / pooling_folder / "config.json")
    pooling, odd = _pooling(pooling_config)
    sentence = _read_object(directory / "sentence_bert_config.json")
    tokenizer = _read_object(directory / "tokenizer_config.json")
    model = _read_object(directory / "config.json")
    prompts = _read_object(directory / "config_sentence_transformers.json")
    pad_token = tokenizer.get("pad_token")
    if isinstance(pad_token, dict):
        pad_token = pad_token.get("content")
    query_prefix, document_prefix = _prefixes(prompts)
    return DirectorySettings(
        pooling=pooling,
        dimensions=_first_count(pooling_config, "word_embedding_dimension", "embedding_dimension")
        or _first_count(model, "hidden_size", "d_model", "dim", "n_embd"),
        max_length=_max_length(sentence, tokenizer, model),
        query_prefix=query_prefix,
        document_prefix=document_prefix,
        lower_case=sentence.get("do_lower_case") is True,
        pad_number=_count(model.get("pad_token_id")),
        pad_token=pad_token if isinstance(pad_token, str) else None,
        prefix_pooled=pooling_config.get("include_prompt") is not False,
        graph_must_pool=graph_must_pool or odd,
    )


def _modules(directory: Path) -> tuple[str, str | None]:
    """Returns the pooling's folder, and what after it only the graph itself can do (a Dense layer, for one)."""
    modules = _read_json(directory / "modules.json", list)
    if modules is None:
        return "1_Pooling", None
    folder = "1_Pooling"
    for module in modules:
        if not isinstance(module, dict) or not isinstance(module.get("type"), str):
            raise EncoderUnavailableError(f"{directory / 'modules.json'} holds {quoted(module)}, which is no module")
        kind = module["type"].rpartition(".")[2]
        if kind == "Pooling":
            folder = str(module.get("path", folder))
        elif kind not in ("Transformer", "Normalize"):
            return folder, f"modules.json asks for a module {kind!r}, which is not run here"
    return folder, None


def _pooling(config: dict[str, Any]) -> tuple[str, str | None]:
    """Returns the pooling, and why it cannot be done here."""
    modes = config.get("pooling_mode")
    if modes is None:
        flags = [key for key, value in config.items() if key.startswith("pooling_mode_") and value is True]
        modes = [key.removeprefix("pooling_mode_") for key in flags]
    elif isinstance(modes, str):
        modes = [modes]
    names = [str(mode).removesuffix("_tokens").removesuffix("_token") for mode in modes]
    if not names:
        return "mean", None
    if len(names) > 1 or names[0] not in POOLINGS:
        return "mean", f"the pooling {' + '.join(names)} is not one of {', '.join(POOLINGS)}"
    return names[0], None


def _prefixes(config: dict[str, Any]) -> tuple[str, str]:
    """Returns the prompts of questions and documents, chosen as `encode_query` and `encode_document` choose."""
    prompts = config.get("prompts")
    prompts = prompts if isinstance(prompts, dict) else {}
    default = prompts.get(config.get("default_prompt_name")) or ""
    query = prompts.get("query", default)
    document = next((prompts[name] for name in _DOCUMENT_PROMPTS if name in prompts), default)
    return str(query or ""), str(document or "")


def _max_length(sentence: dict[str, Any], tokenizer: dict[str, Any], model: dict[str, Any]) -> int:
    given = _count(sentence.get("max_seq_length"))
    if given:
        return given
    limits = [_count(tokenizer.get("model_max_length")), _count(model.get("max_position_embeddings"))]
    return min((limit for limit in limits if limit and limit < _NO_LIMIT), default=_DEFAULT_MAX_LENGTH)


def _first_count(config: dict[str, Any], *keys: str) -> int | None:
    return next((count for key in keys if (count := _count(config.get(key)))), None)


def _count(value: object) -> int | None:
    """Returns a whole number of 0 or more, None for anything else; JSON may write it as 512.0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value != value // 1:
        return None
    return int(value)


def _read_object(path: Path) -> dict[str, Any]:
    found: dict[str, Any] | None = _read_json(path, dict)
    return found or {}


def _read_json(path: Path, kind: type) -> Any:
    """Returns the file's content, None when there is no such file."""
    try:
        content = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise EncoderUnavailableError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise EncoderUnavailableError(f"{path} is no JSON ({error}); restore it from the model's source") from error
    if not isinstance(content, kind):
        raise EncoderUnavailableError(
            f"{path} holds {quoted(content)}, not a JSON {'object' if kind is dict else 'array'}; "
            "restore it from the model's source"
        )
    return content
