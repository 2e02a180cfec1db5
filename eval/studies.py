"""Studies of Mem++ itself: the ablation and the sweep over k. Each document is embedded once for all their runs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches

import mempp
from eval.ablate import ABLATIONS, missing
from eval.console import say
from eval.errors import UsageError
from eval.plan import Arguments, Turn, options_for, prepared, run_all, slug
from eval.scoring import RECALL_KS
from eval.sweep import fill_needed
from eval.systems import system as system_named
from eval.systems.base import Options
from eval.systems.encoders import RememberingEncoder, encoder_for


def ablate(arguments: Arguments, variants: Sequence[str]) -> int:
    """Run the rows of `ABLATIONS`, or those named; returns the exit code.

    Raises:
        UsageError: there is no such row.
        EvalError: the data, a model or a setting is at fault.
    """
    for name in variants:
        if name not in ABLATIONS:
            near = get_close_matches(name, ABLATIONS, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]!r}?" if near else "there are"
            raise UsageError(f"there is no variant {name[:60]!r}; {hint} ({', '.join(ABLATIONS)})")
    options = arguments.system_options()
    encoder = _shared(options)
    turns = []
    for name, ablation in ABLATIONS.items():
        if variants and name not in variants:
            continue
        lacking = missing(ablation, options)
        if lacking is not None:
            say(f"{name}: {lacking}; left out")
            continue
        own = replace(options, settings={**options.settings, **ablation.settings})
        turns.append(Turn(system_named("mempp", own, encoder=encoder), slug(name), "ablation", name))
    if not turns:
        say("nothing to run")
        return 0
    return run_all(prepared(arguments), turns, as_json=arguments.as_json)


def sweep_k(arguments: Arguments, ks: Sequence[int], *, full_context: bool) -> int:
    """Run Mem++ for each k, and Full Context beside them; returns the exit code.

    Raises:
        EvalError: the data, a model or a setting is at fault.
    """
    options = arguments.system_options()
    if "k" in options.settings:
        raise UsageError("--set k=… and a sweep over k contradict each other; give --k")
    encoder = _shared(options)
    settings: Mapping[str, str] = options.settings
    if fill_needed(system_named("mempp", options, encoder=encoder), ks, settings):
        settings = {**settings, "fill": "1"}
        say(f"k = {max(ks)} is above C, so hits are filled up (--set fill=1), for every k")
    turns = []
    for k in ks:
        system = system_named("mempp", replace(options, k=k, settings=settings), encoder=encoder)
        turns.append(Turn(system, f"k{k}", "sweep-k", f"k={k}", sorted({*RECALL_KS, k})))
    if full_context:
        own = options_for("full-context", options, others={"mempp"})
        turns.append(Turn(system_named("full-context", own), "full-context", "sweep-k", "Full Context"))
    return run_all(prepared(arguments), turns, as_json=arguments.as_json)


def _shared(options: Options) -> mempp.Encoder | None:
    """One encoder for all runs that remembers the vectors of documents; ingest times then mean little."""
    if options.encoder == "none":
        return None
    return RememberingEncoder(encoder_for(options.encoder, None), documents=True)
