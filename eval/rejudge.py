"""Judge the answers of a run again; nothing is retrieved or answered again."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from eval.asking import Grader, ModelOptions, case_of, costs
from eval.console import AT_FAULT, DONE, INTERRUPTED, say, write, write_json
from eval.errors import FAULTS, EvalError, UsageError
from eval.interrupts import Interrupts
from eval.pool import Pool
from eval.progress import Meter
from eval.results import JsonObject, checked_out, digest, load, versions, write_atomically
from eval.run import SECONDS_TO_FINISH
from eval.summing import all_failed, figures
from eval.tables import summary_text


def rejudge(
    file: Path,
    models: ModelOptions,
    *,
    workers: int,
    out: Path | None = None,
    overwrite: bool = False,
    quiet: bool = False,
    as_json: bool = False,
) -> int:
    """Judge again and write a new result file; returns the exit code.

    An interrupted rejudging writes nothing; replies are cached, so that the same command goes on from there.

    Raises:
        EvalError: the file holds no answers, or a model, a prompt or the cost limit is at fault.
    """
    result = load(file)
    configuration = result["configuration"]
    if configuration["models"] is None:
        raise EvalError(f"{file} holds no answers; it is of a run without --answer-model")
    kind = str((configuration["models"].get("judge") or {}).get("kind") or _kind_of(configuration["benchmark"]))
    if kind != "choice" and models.judge_model is None:
        raise UsageError("--judge-model is missing")
    target = file.with_name(f"{file.stem}.rejudged{file.suffix}") if out is None else checked_out(out)
    if target.exists() and not overwrite:
        raise EvalError(f"{target} is there already; give another --out, or --overwrite")
    if models.cache is None:
        models = replace(models, cache=target.parent / "eval-replies")
    budget = models.budget()
    grader = Grader(kind, models, budget)
    answer_model = str(configuration["models"]["answer"]["model"])
    models.check_prices([name for name in (answer_model, grader.model_name) if name is not None])

    def graded(row: JsonObject) -> JsonObject:
        verdict, scores = grader.grade(case_of(row), row["answer"])
        kept = {name: value for name, value in row["scores"].items() if name != "judge_ms"}
        return {**row, "verdict": verdict, "scores": kept | scores}

    rows: dict[str, JsonObject] = {row["id"]: row for row in result["rows"]}
    waiting = [row for row in rows.values() if row["answer"] is not None]
    with Interrupts().watched(), Meter("judging", len(waiting), quiet=quiet) as meter:
        pool: Pool[JsonObject, JsonObject] = Pool(graded, workers)
        try:
            for row in waiting:
                pool.submit(row)
            for row in pool.finished():
                rows[row["id"]] = row
                meter.done()
        except KeyboardInterrupt:
            pool.stop(SECONDS_TO_FINISH)
            say("interrupted; nothing is written, and the verdicts so far are cached: the same command goes on")
            return INTERRUPTED
        except FAULTS:
            pool.stop(SECONDS_TO_FINISH)
            raise
    judged = _again(result, list(rows.values()), grader)
    judged["usage"] = costs(list(rows.values()), budget, answer_model, grader.model_name)
    write_atomically(target, judged)
    if as_json:
        write_json({name: value for name, value in judged.items() if name not in ("rows", "ingest")})
    else:
        write(summary_text(judged) + "\n")
    say(f"result written to {target}")
    if (why := all_failed(judged["rows"])) is not None:
        say(f"{why}; the same command with --overwrite asks again")
        return AT_FAULT
    return DONE


def _again(result: Mapping[str, Any], rows: list[JsonObject], grader: Grader) -> JsonObject:
    old = result["configuration"]
    configuration = {**old, "models": {**old["models"], "judge": grader.configuration}}
    return {
        **result,
        **figures(rows, list(result["category_names"])),
        "configuration": configuration,
        "configuration_digest": digest({"rejudged": result["configuration_digest"], "configuration": configuration}),
        "rejudged_with": versions(),
        "rows": rows,
    }


def _kind_of(benchmark: str) -> str:
    from eval.datasets import dataset

    return dataset(benchmark).judge
