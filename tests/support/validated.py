"""What the chain of checks says of a resource, with no model looked up and no cluster at hand."""

from fathom.api.problem import Problem, Severity
from fathom.resource import SpeculativeDeployment
from fathom.validation.candidate import Candidate, candidate_of
from fathom.validation.chain import errors_of, problems_of


def candidate(sd: SpeculativeDeployment) -> Candidate:
    return candidate_of(sd, {})


def errors(sd: SpeculativeDeployment) -> tuple[Problem, ...]:
    return errors_of(candidate(sd))


def warnings(sd: SpeculativeDeployment) -> tuple[Problem, ...]:
    """None where it has errors."""
    found = problems_of(candidate(sd))
    return tuple(each for each in found if each.severity is Severity.WARNING)
