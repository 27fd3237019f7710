"""Which spec is to be carried out: the newest, or, while that one is bad, the last good one."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from fathom.api.problem import Problem
from fathom.api.resource import SpeculativeDeployment, parse
from fathom.api.spec import MAX_REPLICAS, SpeculativeDeploymentSpec
from fathom.core.kinds import Kind
from fathom.core.manifest import Manifest
from fathom.core.model_facts import ModelFacts, ModelRef, model_refs
from fathom.core.preflight import DraftVerdict, check_draft
from fathom.core.revision import changed_restart_fields, revision_of
from fathom.core.served import ServedApis
from fathom.core.support import Obstacle, obstacle_to
from fathom.manifests.preflight import preflight_of
from fathom.manifests.problems import problems_of
from fathom.runtime.kept import Kept


@dataclass(frozen=True, slots=True)
class Intent:
    wanted: SpeculativeDeployment | None
    """What to carry out; None: neither the newest spec nor an earlier one can be."""
    replicas: int
    problems: tuple[Problem, ...]
    """Why the newest spec cannot be carried out."""
    obstacle: Obstacle | None
    """Why a newest spec without problems cannot be carried out here."""
    draft: DraftVerdict | None
    """What is known of the wanted spec's draft."""

    @property
    def newest(self) -> bool:
        """Whether it is the newest spec that is carried out."""
        return not self.problems and self.obstacle is None


def intent_of(
    resource: Manifest,
    last_good: str | None,
    models: Mapping[ModelRef, ModelFacts],
    *,
    served: ServedApis,
    usable: Collection[Kind],
) -> Intent:
    """Judge the newest spec, and fall back where it must be.

    Args:
        resource: the SpeculativeDeployment as it was read.
        last_good: the last good spec as JSON; None: none is known.
        models: what is known of target and draft, as far as they were looked up.
        served: what the cluster has.
        usable: of the kinds that not every cluster has, those that can be used in it.
    """
    newest = parse(resource)
    if isinstance(newest, SpeculativeDeployment):
        verdict = check_draft(preflight_of(newest.spec, models))
        problems = problems_of(newest, verdict)
        obstacle = None if problems else obstacle_to(newest.spec, served, usable)
        if not problems and obstacle is None:
            return Intent(newest, newest.spec.replicas, (), None, verdict)
    else:
        problems, obstacle, verdict = newest, None, None
    earlier = earlier_spec(resource, last_good)
    replicas = _replicas(resource, earlier)
    return Intent(earlier, replicas, problems, obstacle, verdict)


def models_of(resource: Manifest) -> tuple[ModelRef, ...]:
    """The models that a resource names; empty: its spec cannot be read."""
    newest = parse(resource)
    return model_refs(newest.spec) if isinstance(newest, SpeculativeDeployment) else ()


def good_spec_text(resource: Manifest) -> str:
    """A spec as it is kept for bad days. Replicas are left out: they always follow the newest."""
    spec = resource.get("spec")
    kept = {k: v for k, v in spec.items() if k != "replicas"} if isinstance(spec, dict) else {}
    return json.dumps(kept, sort_keys=True, separators=(",", ":"))


def earlier_spec(resource: Manifest, last_good: str | None) -> SpeculativeDeployment | None:
    """The resource as it was when its spec was last good, with the newest replicas.

    None: no such spec is known, or this Fathom no longer takes it.
    """
    if last_good is None:
        return None
    try:
        spec = json.loads(last_good)
    except ValueError:
        return None
    if not isinstance(spec, dict):
        return None
    newest = resource.get("spec")
    replicas = _whole_number(newest.get("replicas")) if isinstance(newest, dict) else None
    document = {**resource, "spec": spec | ({} if replicas is None else {"replicas": replicas})}
    document.pop("status", None)
    earlier = parse(document)
    return earlier if isinstance(earlier, SpeculativeDeployment) else None


def wanted_revision(spec: SpeculativeDeploymentSpec, resource: Manifest, kept: Kept) -> str:
    """The revision whose pods a spec asks for.

    As long as nothing changed that needs new pods it is the one that was given, whatever this
    Fathom would call it: one that knows more engines must not roll what an older one started.

    Args:
        spec: the spec that is carried out.
        resource: the SpeculativeDeployment as it was read.
        kept: what is known of earlier specs.
    """
    for revision, text in kept.specs():
        earlier = earlier_spec(resource, text)
        if earlier is not None and not changed_restart_fields(earlier.spec, spec):
            return revision
    return revision_of(spec)


def _replicas(resource: Manifest, earlier: SpeculativeDeployment | None) -> int:
    if earlier is not None:
        return earlier.spec.replicas
    newest = resource.get("spec")
    asked = _whole_number(newest.get("replicas")) if isinstance(newest, dict) else None
    return 1 if asked is None else asked


def _whole_number(value: JsonValue) -> int | None:
    right = isinstance(value, int) and not isinstance(value, bool)
    return value if right and isinstance(value, int) and 0 <= value <= MAX_REPLICAS else None
