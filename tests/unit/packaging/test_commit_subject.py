"""What the commit-msg hook accepts and refuses."""

from pathlib import Path

import pytest
import yaml

from commit_subject import IMPERATIVES, LONGEST, main, problems_of, subject_of
from support.pages import REPOSITORY

GOOD = "Keep the CRD on uninstall"
LONG = "Keep " + "x" * (LONGEST - len("Keep "))


@pytest.mark.parametrize(
    "message",
    [
        GOOD,
        LONG,
        f"{GOOD}\n\nIt ends with a full stop. Added because of {'x' * LONGEST}.",
        f"# A template.\n\n{GOOD}\n# Please enter the commit message.\n",
        f"{GOOD}\n# ------------------------ >8 ------------------------\ndiff --git a/a b/a\n",
        f"fixup! {LONG}",
        'Revert "Keep the CRD on uninstall"',
        "Merge the branch of docs/results.md",
        "Embed the page",
        "Bring the figures up to date",
        "Use embedding sizes",
    ],
)
def test_good_subjects_pass(message: str) -> None:
    assert list(problems_of(message)) == []


@pytest.mark.parametrize(
    ("message", "wrong", "cure"),
    [
        (f"{LONG}x", "has 73 characters", "shorten it"),
        (f"{LONG}\nsecond line", f"has {LONGEST + 12} characters", "below an empty line"),
        (f"{GOOD}.", "ends with a full stop", "remove it"),
        ("Merge branch 'main' of /home/me/fathom", "names the repository", "rebase"),
        ("Merge branch 'main' of https://example.com/fathom", "names the repository", "rebase"),
        ("Added a hook", '"Added", which is no imperative', "what the change does"),
        ("adding a hook", '"adding", which is no imperative', "what the change does"),
        ("", "is empty", "what the change does"),
        ("# Please enter the commit message.\n#\n", "is empty", "what the change does"),
        ("# --- >8 ---\ndiff --git a/a b/a\n", "is empty", "what the change does"),
    ],
)
def test_each_refusal_says_what_is_wrong_and_what_to_do(
    message: str, wrong: str, cure: str
) -> None:
    (problem,) = problems_of(message)
    assert wrong in problem
    assert cure in problem


def test_every_problem_is_reported() -> None:
    assert len(list(problems_of(f"Added {LONG}."))) == 3


def test_a_subject_is_the_first_paragraph() -> None:
    assert subject_of("Keep the CRD\non uninstall\n\nBody.\n") == GOOD


def test_the_allowed_words_are_those_that_need_it() -> None:
    assert all(word.endswith(("ed", "ing")) for word in IMPERATIVES)


def test_the_hook_ends_with_the_problems(tmp_path: Path) -> None:
    file = tmp_path / "COMMIT_EDITMSG"
    file.write_text(GOOD, encoding="utf-8")
    main(str(file))
    file.write_text(f"{GOOD}.", encoding="utf-8")
    with pytest.raises(SystemExit, match="full stop"):
        main(str(file))


def test_pre_commit_installs_and_runs_it() -> None:
    text = (REPOSITORY / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    configured = yaml.safe_load(text)
    hooks = [hook for repo in configured["repos"] for hook in repo["hooks"]]
    (ours,) = (hook for hook in hooks if hook.get("stages") == ["commit-msg"])
    interpreter, script = ours["entry"].split()
    assert interpreter.endswith("/python")
    assert (REPOSITORY / script).is_file()
    assert "commit-msg" in configured["default_install_hook_types"]
