"""What can be sampled, and the tests that answer for it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True, slots=True)
class Module:
    """Files or folders, relative to the root of the checkout."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]

    def source_files(self, root: Path) -> tuple[str, ...]:
        """Each file that is mutated, relative to the root."""
        return tuple(_python_files(root, self.sources))

    def test_files(self, root: Path) -> tuple[str, ...]:
        """Each file of tests, relative to the root."""
        found = _python_files(root, self.tests)
        return tuple(each for each in found if Path(each).name.startswith("test_"))


MODULES: Final[Mapping[str, Module]] = {
    "plan": Module(
        ("operator/fathom/rollout/plan.py", "operator/fathom/rollout/replicas.py"),
        (
            "tests/unit/rollout/test_arm.py",
            "tests/unit/rollout/test_plan.py",
            "tests/unit/rollout/test_replicas.py",
        ),
    ),
    "rollout": Module(
        ("operator/fathom/rollout",),
        (
            "tests/unit/rollout",
            "tests/scenarios/test_rollouts.py",
            "tests/scenarios/test_scaled_to_one.py",
            "tests/scenarios/test_unwatched_time.py",
        ),
    ),
    "tuning": Module(
        ("operator/fathom/tuning",),
        (
            "tests/unit/tuning",
            "tests/unit/cli/test_explain.py",
            "tests/property/test_next_step.py",
            "tests/property/test_tuning.py",
        ),
    ),
    "engine": Module(
        ("operator/fathom/engine",),
        (
            "tests/unit/engine",
            "tests/unit/validation/test_release_checks.py",
            "tests/unit/validation/test_token_budget_checks.py",
            "tests/golden",
            "tests/property/test_manifests_revision.py",
        ),
    ),
    "validation": Module(
        ("operator/fathom/validation",),
        (
            "tests/unit/validation",
            "tests/unit/engine",
            "tests/unit/api/test_cel_rules.py",
            "tests/unit/manifests",
        ),
    ),
    "manifests": Module(
        ("operator/fathom/manifests",),
        (
            "tests/unit/manifests",
            "tests/unit/cli/test_bill.py",
            "tests/unit/reconcile/test_renderings.py",
            "tests/golden",
            "tests/property/test_manifests_revision.py",
            "tests/scenarios/test_optional_children.py",
        ),
    ),
    "fathom_vllm": Module(
        ("operator/fathom_vllm",),
        ("tests/unit/vllm", "tests/unit/local_cluster/engine/test_simulated.py"),
    ),
    "reconcile": Module(
        ("operator/fathom/reconcile",),
        ("tests/unit/reconcile", "tests/unit/runtime", "tests/scenarios"),
    ),
    "runtime": Module(("operator/fathom/runtime",), ("tests/unit/runtime", "tests/scenarios")),
}


def read(root: Path, paths: Iterable[str]) -> dict[str, str]:
    """The text of files, by path."""
    return {each: (root / each).read_text() for each in paths}


def _python_files(root: Path, paths: tuple[str, ...]) -> Iterator[str]:
    for each in paths:
        found = root / each
        files = sorted(found.rglob("*.py")) if found.is_dir() else [found]
        yield from (str(file.relative_to(root)) for file in files)
