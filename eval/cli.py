"""The commands of `python -m eval`; what they do stands in the modules beside this one."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eval import options
from eval.console import DONE, say, write, write_json
from eval.console import run as run_guarded

if TYPE_CHECKING:
    from eval.asking import ModelOptions
    from eval.plan import Arguments

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 100},
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""

    def call() -> int:
        code = app(args=arguments, prog_name="python -m eval", standalone_mode=False)
        return code if isinstance(code, int) else DONE

    return run_guarded(call)


def _models(given: Mapping[str, Any]) -> "ModelOptions":
    from eval.asking import ModelOptions

    return ModelOptions(**_of(ModelOptions, given))


def _arguments(given: Mapping[str, Any]) -> "Arguments":
    """The parameters of a command, which are named as the fields are."""
    from eval.plan import Arguments

    return Arguments(**_of(Arguments, given), models=_models(given))


def _of(kind: type["Arguments | ModelOptions"], given: Mapping[str, Any]) -> dict[str, Any]:
    # An option that was not given is None; the fields have their own defaults.
    return {one.name: given[one.name] for one in fields(kind) if given.get(one.name) is not None}


@app.callback(invoke_without_command=True)
def eval_command(context: typer.Context) -> None:
    """Evaluate memories offline: on public benchmarks or your own record, with or without answering models.

    Exit codes: 0 done, 1 the data, a model or a system is at fault, 2 wrong usage, 130 interrupted. Results go to
    stdout, messages to stderr. MEMPP_DEBUG=1 adds a traceback to an error. docs/evaluation.md is the guide.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


@app.command("run")
def run_command(
    benchmark: options.Benchmark,
    data: options.Data,
    system: options.SystemNames,
    k: options.K = None,
    preset: options.Preset = None,
    settings: options.Settings = None,
    dataset_options: options.DatasetOptions = None,
    no_as_of: options.NoAsOf = False,
    encoder: options.Encoder = "minilm",
    recall_only: options.RecallOnly = False,
    answer_model: options.AnswerModel = None,
    judge_model: options.JudgeModel = None,
    base_url: options.BaseUrl = None,
    judge_base_url: options.JudgeBaseUrl = None,
    judge_repeats: options.JudgeRepeats = 1,
    budget: options.Budgets = None,
    answer_prompt: options.AnswerPrompt = None,
    judge_prompt: options.JudgePrompt = None,
    max_cost: options.MaxCost = None,
    price: options.Prices = None,
    timeout: options.Timeout = 120.0,
    retries: options.Retries = 5,
    cache: options.Cache = None,
    limit: options.Limit = None,
    fraction: options.Fraction = None,
    seed: options.Seed = 0,
    workers: options.Workers = 4,
    out: options.Out = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    keep_evidence: options.KeepEvidence = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> int:
    """Put a benchmark's questions to one system or several, and score what they find and what is answered from it."""
    given = dict(locals())
    from eval.plan import for_each, prepared, run_all

    arguments = _arguments(given)
    turns = for_each(system, arguments)
    return run_all(prepared(arguments), turns, as_json=as_json)


@app.command("ablate")
def ablate_command(
    benchmark: options.Benchmark,
    data: options.Data,
    variant: Annotated[
        list[str] | None,
        typer.Option("--variant", metavar="NAME", help="Only this row of Table 4; again for more.", show_default=False),
    ] = None,
    k: options.K = None,
    preset: options.Preset = None,
    settings: options.Settings = None,
    dataset_options: options.DatasetOptions = None,
    encoder: options.Encoder = "minilm",
    recall_only: options.RecallOnly = False,
    answer_model: options.AnswerModel = None,
    judge_model: options.JudgeModel = None,
    base_url: options.BaseUrl = None,
    judge_base_url: options.JudgeBaseUrl = None,
    judge_repeats: options.JudgeRepeats = 1,
    budget: options.Budgets = None,
    answer_prompt: options.AnswerPrompt = None,
    judge_prompt: options.JudgePrompt = None,
    max_cost: options.MaxCost = None,
    price: options.Prices = None,
    timeout: options.Timeout = 120.0,
    retries: options.Retries = 5,
    cache: options.Cache = None,
    limit: options.Limit = None,
    fraction: options.Fraction = None,
    seed: options.Seed = 0,
    workers: options.Workers = 4,
    out: options.Out = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> int:
    """Mem++ with one part changed at a time, as in the paper's Table 4. Each document is embedded once for all rows."""
    given = dict(locals())
    from eval.studies import ablate

    arguments = _arguments(given)
    return ablate(arguments, variant or ())


@app.command("sweep-k")
def sweep_command(
    benchmark: options.Benchmark,
    data: options.Data,
    ks: Annotated[
        list[str] | None,
        typer.Option(
            "--k", "-k", metavar="N,…", help="The values of k; by default 5,10,15,30,50,70,100.", show_default=False
        ),
    ] = None,
    full_context: Annotated[
        bool, typer.Option("--full-context/--no-full-context", help="Full Context beside them, as in Table 7.")
    ] = True,
    preset: options.Preset = None,
    settings: options.Settings = None,
    dataset_options: options.DatasetOptions = None,
    encoder: options.Encoder = "minilm",
    recall_only: options.RecallOnly = False,
    answer_model: options.AnswerModel = None,
    judge_model: options.JudgeModel = None,
    base_url: options.BaseUrl = None,
    judge_base_url: options.JudgeBaseUrl = None,
    judge_repeats: options.JudgeRepeats = 1,
    budget: options.Budgets = None,
    answer_prompt: options.AnswerPrompt = None,
    judge_prompt: options.JudgePrompt = None,
    max_cost: options.MaxCost = None,
    price: options.Prices = None,
    timeout: options.Timeout = 120.0,
    retries: options.Retries = 5,
    cache: options.Cache = None,
    limit: options.Limit = None,
    fraction: options.Fraction = None,
    seed: options.Seed = 0,
    workers: options.Workers = 4,
    out: options.Out = None,
    resume: options.Resume = False,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> int:
    """Mem++ for several k, as in the paper's Table 7. Each document is embedded once for all of them."""
    given = dict(locals())
    from eval.studies import sweep_k
    from eval.sweep import KS, read_ks

    arguments = _arguments(given)
    return sweep_k(arguments, read_ks(ks) if ks else KS, full_context=full_context)


@app.command("compare")
def compare_command(
    a: Annotated[Path, typer.Argument(metavar="A.json", help="A result file.", show_default=False)],
    b: Annotated[Path, typer.Argument(metavar="B.json", help="Another.", show_default=False)],
    metric: Annotated[
        list[str] | None,
        typer.Option("--metric", metavar="NAME", help="Only this metric; again for more.", show_default=False),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Compare what they share, though data, questions or judges differ.")
    ] = False,
    as_json: options.Json = False,
) -> int:
    """Two runs over the same questions: paired differences with 95 % intervals, per metric and category."""
    from eval.compare import as_json as comparison_as_json
    from eval.compare import as_text, compare, differences_of, narrowed, unfinished
    from eval.results import load

    left, right = load(a), load(b)
    comparison = narrowed(compare(left, right, force=force), metric or ())
    for warning in [*differences_of(left, right), *unfinished(left, right)]:
        say(f"warning: {warning}")
    if as_json:
        write_json(comparison_as_json(left, right, comparison))
    else:
        write(as_text(left, right, comparison, metric or ()))
    return DONE


@app.command("report")
def report_command(
    files: options.ResultFiles,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="A folder for report.md and plots; without it, the report is printed."
        ),
    ] = None,
) -> int:
    """Tables in the shape of the paper's Tables 1 to 4 and 7, and plots where matplotlib is installed."""
    from eval.labels import told_apart
    from eval.report import report
    from eval.report import write as write_report
    from eval.results import load

    results = told_apart([load(path) for path in files], files)
    if out is None:
        write(report(results))
        return DONE
    try:
        for path in write_report(results, out):
            write(str(path))
    except ImportError:
        write(str(out / "report.md"))
        say("matplotlib is not installed, so there are no plots; pip install matplotlib")
    return DONE


@app.command("rejudge")
def rejudge_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A result file with answers.", show_default=False)],
    judge_model: options.JudgeModel = None,
    base_url: options.BaseUrl = None,
    judge_repeats: options.JudgeRepeats = 1,
    judge_prompt: options.JudgePrompt = None,
    max_cost: options.MaxCost = None,
    price: options.Prices = None,
    timeout: options.Timeout = 120.0,
    retries: options.Retries = 5,
    cache: options.Cache = None,
    workers: options.Workers = 4,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="By default FILE with .rejudged before .json.", show_default=False),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace --out if it is there.")] = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> int:
    """Judge the answers of a run again, with another model or prompt or more often; nothing is answered again."""
    given = dict(locals())
    from eval.rejudge import rejudge

    models = _models(given)
    return rejudge(file, models, workers=workers, out=out, overwrite=overwrite, quiet=quiet, as_json=as_json)


@app.command("datasets")
def datasets_command(as_json: options.Json = False) -> int:
    """The benchmarks: where each is to be had, its licence and size, what --data names, its options and categories."""
    from eval.datasets import DATASETS

    if as_json:
        names = ("name", "title", "where", "licence", "size", "expects", "judge")
        write_json(
            [
                {name: getattr(one, name) for name in names}
                | {"categories": dict(one.categories), "options": dict(one.options)}
                for one in DATASETS.values()
            ]
        )
        return DONE
    for one in DATASETS.values():
        lines = [f"{one.name}: {one.title}"]
        lines += [f"  where      {one.where}", f"  licence    {one.licence}", f"  size       {one.size}"]
        lines += [f"  --data     {one.expects}", f"  judged     {one.judge}"]
        lines += [f"  --option   {name}=…  {meaning}" for name, meaning in one.options.items()]
        lines += [f"  category   {name}: {title}" for name, title in one.categories.items()]
        write("\n".join(lines) + "\n")
    return DONE


@app.command("systems")
def systems_command(as_json: options.Json = False) -> int:
    """What can be evaluated; N in a name stands for a number of tokens."""
    from eval.systems import names

    if as_json:
        write_json([{"name": name, "description": line} for name, line in names()])
    else:
        write(_list(names()))
    return DONE


def _list(pairs: Sequence[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in pairs)
    return "\n".join(f"{name.ljust(width)}  {line}" for name, line in pairs)
