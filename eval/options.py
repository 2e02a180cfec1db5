"""The options that several commands of `python -m eval` share."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from eval.errors import UsageError

Benchmark = Annotated[
    str,
    typer.Argument(metavar="BENCHMARK", help="Its name; `python -m eval datasets` lists them.", show_default=False),
]
Data = Annotated[
    Path, typer.Option("--data", metavar="PATH", help="The file or folder of the benchmark.", show_default=False)
]
SystemNames = Annotated[
    list[str],
    typer.Option(
        "--system",
        metavar="NAME",
        help="What is evaluated; give it again for more. `python -m eval systems` lists them.",
        show_default=False,
    ),
]
K = Annotated[
    int | None,
    typer.Option("--k", "-k", metavar="N", help="How many documents (or chunks) a system returns.", show_default=False),
]
Preset = Annotated[
    str | None,
    typer.Option("--preset", metavar="NAME", help="Settings of the paper, for Mem++ systems.", show_default=False),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A field of mempp.Settings, or an option of another system; give it again for more.",
        show_default=False,
    ),
]
DatasetOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="An option of the benchmark's reader, such as thread=withheld; `python -m eval datasets` lists them.",
        show_default=False,
    ),
]
NoAsOf = Annotated[
    bool, typer.Option("--no-as-of", help="Do not bound the search by a question's as-of date, as the paper's RAG.")
]
Encoder = Annotated[
    str, typer.Option("--encoder", metavar="NAME", help="minilm, openai:MODEL, the folder of an ONNX model, or none.")
]
RecallOnly = Annotated[
    bool, typer.Option("--recall-only", help="Score retrieval only; no model is asked. Holds without --answer-model.")
]
AnswerModel = Annotated[
    str | None,
    typer.Option(
        "--answer-model",
        metavar="MODEL",
        help="Answers from the evidence of the largest budget. openai:NAME, anthropic:NAME, or a name that tells.",
        show_default=False,
    ),
]
JudgeModel = Annotated[
    str | None,
    typer.Option("--judge-model", metavar="MODEL", help="Judges the answers.", show_default=False),
]
BaseUrl = Annotated[
    str | None,
    typer.Option("--base-url", metavar="URL", help="The server of both models, e.g. a local one.", show_default=False),
]
JudgeBaseUrl = Annotated[
    str | None,
    typer.Option("--judge-base-url", metavar="URL", help="The judge's server, if it is another.", show_default=False),
]
JudgeRepeats = Annotated[
    int, typer.Option("--judge-repeats", metavar="N", min=1, help="How often each answer is judged.")
]
AnswerPrompt = Annotated[
    str | None,
    typer.Option("--answer-prompt", metavar="FILE", help="Another prompt for answers.", show_default=False),
]
JudgePrompt = Annotated[
    str | None,
    typer.Option("--judge-prompt", metavar="FILE", help="Another prompt for verdicts.", show_default=False),
]
MaxCost = Annotated[
    float | None,
    typer.Option(
        "--max-cost",
        metavar="USD",
        help="Stop before this command's requests to models cost more; embeddings do not count.",
        show_default=False,
    ),
]
Prices = Annotated[
    list[str] | None,
    typer.Option(
        "--price",
        metavar="[MODEL=]IN,OUT",
        help="Dollars per million tokens, where the list price does not hold; give it again for more.",
        show_default=False,
    ),
]
Timeout = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=0.01, help="How long an attempt to get a model's reply may take."),
]
Retries = Annotated[
    int, typer.Option("--retries", metavar="N", min=0, help="How often the SDK repeats a request that failed.")
]
Cache = Annotated[
    Path | None,
    typer.Option(
        "--cache",
        metavar="DIR",
        help="Where replies of models are kept; by default eval-replies beside the result.",
        show_default=False,
    ),
]
Budgets = Annotated[
    list[int] | None,
    typer.Option(
        "--budget",
        metavar="CHARS",
        help="Characters of evidence in which coverage is measured; by default 5000, 10000, 20000, 40000.",
        show_default=False,
    ),
]
Limit = Annotated[
    int | None,
    typer.Option("--limit", metavar="N", help="Only N questions, spread over the benchmark.", show_default=False),
]
Fraction = Annotated[
    float | None,
    typer.Option("--fraction", metavar="F", help="Only this part of the questions, by a hash.", show_default=False),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Which part --fraction takes.")]
Workers = Annotated[
    int, typer.Option("--workers", metavar="W", min=1, help="Threads that ask models; results do not depend on it.")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="The result file (JSON); several runs add names.", show_default=False),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on where an interrupted run with this --out stopped.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Begin anew, and replace what --out holds when the run is complete.")
]
KeepEvidence = Annotated[bool, typer.Option("--keep-evidence", help="Keep the evidence texts in the result.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else there.")]
ResultFiles = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Result files.", show_default=False)]


def pairs(texts: Iterable[str] | None, option: str) -> dict[str, str]:
    """NAME=VALUE texts as a mapping.

    Raises:
        UsageError: one is no such text, or a name is given twice.
    """
    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"{option} takes NAME=VALUE, got {text[:80]!r}")
        if name.strip() in found:
            raise UsageError(f"{option} gives {name.strip()!r} twice")
        found[name.strip()] = value
    return found
