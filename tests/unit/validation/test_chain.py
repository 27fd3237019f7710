"""The chain of rules: ids, order, and when what vLLM refuses is a warning."""

import re
from collections.abc import Iterable
from dataclasses import replace

import pytest

from fathom.api.names import ANNOTATION_ENGINE_ARGUMENTS, SILENCE_PREFIX
from fathom.api.problem import Problem, Severity, warning
from fathom.resource import SpeculativeDeployment
from fathom.validation.candidate import Candidate, Rule, candidate_of
from fathom.validation.chain import CHAIN, problems_of
from manifest_samples import resource

RULES = [rule for link in CHAIN for rule in link]


def _of(image: str = "vllm/vllm-openai:v0.32.0", **annotations: str) -> SpeculativeDeployment:
    sd = resource({"engine.image": image, "engine.version": "0.32.0"})
    return replace(sd, metadata=sd.metadata.model_copy(update={"annotations": annotations}))


def _rule(name: str, *problems: Problem, engine: bool = False, starts: bool = False) -> Rule:
    def check(_: Candidate) -> Iterable[Problem]:
        return problems

    return Rule(id=name, check=check, says="-", source="-", engine=engine, starts=starts)


ERROR = Problem(field="spec.engine.args", message="this release does not start with it.")


def test_ids_are_unique_and_say_where_they_are_from() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.id)
        assert rule.says.endswith(".")
        assert rule.source


@pytest.mark.parametrize(
    ("image", "refused"),
    [
        ("vllm/vllm-openai:v0.32.0", True),
        ("docker.io/vllm/vllm-openai:v0.32.0-aarch64", True),
        ("mirror.example:5000/vllm/vllm-openai-rocm:v0.32.0", True),
        ("vllm/vllm-openai:v0.32.0@sha256:" + 64 * "a", True),
        ("vllm/vllm-openai:nightly", False),
        ("vllm/vllm-openai:v0.33.0rc1", False),
        ("vllm/vllm-openai@sha256:" + 64 * "a", False),
        ("acme/vllm-openai:v0.32.0", False),
        ("lmcache/vllm-openai:v0.3.2", False),
    ],
)
def test_only_a_release_image_is_known_to_refuse(image: str, *, refused: bool) -> None:
    (found,) = problems_of(candidate_of(_of(image), {}), [[_rule("one", ERROR, engine=True)]])
    assert found == replace(
        ERROR, rule="one", severity=Severity.ERROR if refused else Severity.WARNING
    )


def test_what_is_fathoms_own_is_refused_for_any_image() -> None:
    candidate = candidate_of(_of("acme/vllm:v0.32.0"), {})
    (found,) = problems_of(candidate, [[_rule("one", ERROR)]])
    assert found.severity is Severity.ERROR


def test_a_user_may_take_it_into_their_own_hands() -> None:
    rule = _rule("one", ERROR, engine=True)
    unchecked = _of(**{ANNOTATION_ENGINE_ARGUMENTS: "Unchecked"})
    (found,) = problems_of(candidate_of(unchecked, {}), [[rule]])
    assert found.severity is Severity.WARNING
    other = _of(**{ANNOTATION_ENGINE_ARGUMENTS: "unchecked, please"})
    (found,) = problems_of(candidate_of(other, {}), [[rule]])
    assert found.severity is Severity.ERROR


def test_what_was_carried_out_before_is_warned_of() -> None:
    (found,) = problems_of(
        candidate_of(_of(), {}, accepted=True), [[_rule("one", ERROR, engine=True)]]
    )
    assert found.severity is Severity.WARNING
    of_pods = [[_rule("two", ERROR, starts=True), _rule("three", ERROR)]]
    found_again = problems_of(candidate_of(_of(), {}, accepted=True), of_pods)
    assert {each.rule: each.severity for each in found_again} == {
        "two": Severity.WARNING,
        "three": Severity.ERROR,
    }
    (new,) = problems_of(candidate_of(_of(), {}), [of_pods[0][:1]])
    assert new.severity is Severity.ERROR


def test_an_error_ends_the_chain_and_comes_first() -> None:
    links = [
        [_rule("first", warning("spec.engine.args", "slow.")), _rule("second", ERROR)],
        [_rule("third", ERROR)],
    ]
    found = problems_of(candidate_of(_of(), {}), links)
    assert [(each.rule, each.severity) for each in found] == [
        ("second", Severity.ERROR),
        ("first", Severity.WARNING),
    ]


def test_a_warning_is_silenced_with_a_reason_and_an_error_is_not() -> None:
    silenced = _of(**{f"{SILENCE_PREFIX}one": "measured: 2 %", f"{SILENCE_PREFIX}two": " "})
    mild = warning("spec.engine.args", "slow.")
    found = problems_of(candidate_of(silenced, {}), [[_rule("one", mild), _rule("two", mild)]])
    assert [(each.rule, each.silenced) for each in found] == [("one", "measured: 2 %"), ("two", "")]
    (error,) = problems_of(candidate_of(silenced, {}), [[_rule("one", ERROR)]])
    assert (error.severity, error.silenced) == (Severity.ERROR, "")
