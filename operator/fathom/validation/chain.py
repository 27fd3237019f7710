"""The one chain of checks that a spec goes through before it is carried out. Pure.

`fathom.resource.parse` comes before it, and finds what is wrong with schema and rules. A check
looks at one thing, and yields a problem for each place where it is wrong.
"""

from collections.abc import Callable, Iterable
from typing import Final

from fathom.api.problem import Problem
from fathom.validation import (
    argument_checks,
    engine_checks,
    kv_transfer_checks,
    placement_checks,
    pod_template_errors,
    pod_template_warnings,
    spec_checks,
)
from fathom.validation.candidate import Candidate

Check = Callable[[Candidate], Iterable[Problem]]

CHAIN: Final[tuple[tuple[Check, ...], ...]] = (
    # What is written: every error is told at once.
    (
        spec_checks.creation_rules,
        spec_checks.version,
        spec_checks.model_names,
        spec_checks.prometheus_labels,
        argument_checks.owned_flags,
        argument_checks.lone_arguments,
        spec_checks.variable_names,
        engine_checks.draft_options,
        spec_checks.plain_secrets,
        argument_checks.max_num_seqs,
        argument_checks.kv_cache_type,
        engine_checks.capabilities,
        engine_checks.fitting_graphs,
        spec_checks.draft_fits,
        placement_checks.asked_gpus,
        pod_template_errors.pod_template_errors,
    ),
    # What this cluster offers: of a spec in which nothing else is wrong, since it is the
    # cluster's to be changed.
    (placement_checks.needed_apis,),
    # What its user should know: of a spec that is carried out.
    (
        placement_checks.gpu_warnings,
        argument_checks.unknown_names,
        argument_checks.token_budget_warnings,
        engine_checks.profiled_context,
        kv_transfer_checks.kv_transfer_warnings,
        pod_template_warnings.pod_template_warnings,
    ),
)
"""Links, in order. The first that finds anything ends the chain: what comes after it may rely on
what it makes sure of."""


def problems_of(
    candidate: Candidate, links: Iterable[Iterable[Check]] = CHAIN
) -> tuple[Problem, ...]:
    """What is wrong with a spec; empty: nothing is known to be.

    Either errors, all of those that its first bad link finds, or warnings.
    """
    for link in links:
        if found := tuple(problem for check in link for problem in check(candidate)):
            return found
    return ()


def errors_of(candidate: Candidate) -> tuple[Problem, ...]:
    """Why a spec must not be carried out; empty: nothing known stands against it."""
    return problems_of(candidate, CHAIN[:-1])
