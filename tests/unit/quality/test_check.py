"""A check from the request to the result, with a restart of the operator after every step."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from fathom.api.status import QualityResult
from fathom.engine.depth import DepthDocument, DepthRange, flat
from fathom.quality.check import (
    ASK_DEADLINE_S,
    HOLD_DEADLINE_S,
    MOST_TOKENS,
    PROMPTS,
    QualityCheck,
    begun,
)
from fathom.quality.comparison import (
    Chosen,
    Completion,
    CompletionRequest,
    QualityFleet,
    Replica,
    Unanswered,
    chosen,
)

START_S = 1_800_000_000.0
SCHEDULE = (DepthRange(1, 4, 5), DepthRange(5, 16, 2))
TWO = (Replica(name="pod-a", revision="r1"), Replica(name="pod-b", revision="r1"))
ONE = TWO[:1]

Engine = Callable[[str, int, CompletionRequest], Completion]


def honest(_pod: str, _depth: int, request: CompletionRequest) -> Completion:
    """The same words at any depth; the first token of a prompt is its number."""
    if request.likeliest:
        return Completion(token_ids=(1,), text="", logprobs={1: -0.5, 2: -0.6})
    ids = tuple(range(100, 100 + request.most_tokens))
    return Completion(
        token_ids=ids, text=" one two three", prompt_token_ids=(PROMPTS.index(_text(request)), 0)
    )


def _text(request: CompletionRequest) -> str:
    assert isinstance(request.prompt, str)
    return request.prompt


def lying(*prompts: int, at: int = 10, gap: float = 3.0) -> Engine:
    """Another token at some depth above 0, for some prompts."""

    def speak(pod: str, depth: int, request: CompletionRequest) -> Completion:
        if request.likeliest:
            assert depth == 0
            assert request.prompt[1:] == (0, *range(100, 100 + at))
            return Completion(token_ids=(110,), text="", logprobs={110: -0.1, 7: -0.1 - gap})
        found = honest(pod, depth, request)
        if depth == 0 or PROMPTS.index(_text(request)) not in prompts:
            return found
        ids = found.token_ids
        return replace(found, token_ids=(*ids[:at], 7, *ids[at + 1 :]), text=" one two four")

    return speak


@dataclass
class Stage:
    """Replicas that obey the document, and an operator that writes what a check asks for."""

    replicas: tuple[Replica, ...] = TWO
    engine: Engine = honest
    now_s: float = START_S
    document: DepthDocument | None = field(
        default_factory=lambda: DepthDocument(generation=7, schedule=SCHEDULE)
    )
    refusal: str = ""
    obeys: bool = True
    held: list[dict[str, int]] = field(default_factory=list)
    """Each change of what is held."""
    asked: list[tuple[str, int]] = field(default_factory=list)
    """Pod and depth of every question."""

    @property
    def fleet(self) -> QualityFleet:
        generation = self.document.generation if self.document and self.obeys else 1
        replicas = tuple(replace(each, generation=generation) for each in self.replicas)
        return QualityFleet(
            now_s=self.now_s, replicas=replicas, document=self.document, refusal=self.refusal
        )

    def begin(self) -> QualityCheck:
        return self.obey(begun("one", self.fleet))

    def obey(self, check: QualityCheck) -> QualityCheck:
        """Write what is to be held, and restart the operator."""
        if not self.held or self.held[-1] != check.holds:
            self.held.append(check.holds)
            assert self.document is not None
            pods = {pod: flat(depth, 16) for pod, depth in check.holds.items()}
            self.document = DepthDocument(
                generation=self.document.generation + 1, schedule=SCHEDULE, pods=pods
            )
        again = QualityCheck.from_json(check.to_json())
        assert again == check
        return again

    def step(self, check: QualityCheck) -> QualityCheck:
        """One pass, and the answers to what it asks."""
        self.now_s += 5
        check = self.obey(check.advanced(self.fleet))
        if questions := check.questions:
            assert self.document is not None
            replies = []
            for question in questions:
                (part,) = self.document.for_pod(question.pod)
                self.asked.append((question.pod, part.depth))
                replies.append(self.engine(question.pod, part.depth, question.request))
            check = self.obey(check.answered(replies, self.now_s))
        return check

    def run(self) -> QualityCheck:
        check = self.begin()
        for _ in range(5):
            if check.result is not None:
                break
            check = self.step(check)
        return check


def message(check: QualityCheck) -> str:
    assert check.result is not None
    return check.result.message


def test_two_replicas_are_held_asked_compared_and_let_go() -> None:
    stage = Stage()

    result = stage.run().result

    assert stage.held == [{"pod-a": 0, "pod-b": 5}, {}]
    assert stage.asked == [("pod-a", 0)] * len(PROMPTS) + [("pod-b", 5)] * len(PROMPTS)
    assert result is not None
    assert (result.request_id, result.result) == ("one", QualityResult.LOSSLESS)
    tokens = len(PROMPTS) * MOST_TOKENS
    assert (result.prompts, result.tokens, result.ties) == (len(PROMPTS), tokens, 0)
    assert result.at == "2027-01-15T08:00:05Z"
    assert result.message == (
        f"At depth 5 pod-b says what pod-a says at depth 0: {tokens} tokens of 8 prompts."
    )


def test_one_replica_plays_both_parts_one_after_the_other() -> None:
    stage = Stage(ONE)

    result = stage.run().result

    assert stage.held == [{"pod-a": 5}, {"pod-a": 0}, {}]
    assert stage.asked == [("pod-a", 5)] * len(PROMPTS) + [("pod-a", 0)] * len(PROMPTS)
    assert result is not None
    assert result.result is QualityResult.LOSSLESS


@pytest.mark.parametrize("replicas", [ONE, TWO], ids=["one", "two"])
def test_a_difference_is_told_with_its_place_and_both_continuations(
    replicas: tuple[Replica, ...],
) -> None:
    stage = Stage(replicas, lying(2, 5))

    result = stage.run().result

    assert result is not None
    assert (result.result, result.ties) == (QualityResult.DIFFERS, 0)
    assert result.tokens == (len(PROMPTS) - 2) * MOST_TOKENS + 2 * 11
    assert result.message == (
        "2 of 8 prompts differ by more than a near-tie (0.25 nats). Prompt 3 from token 11 on: "
        "'three' at depth 0, 'four' at depth 5; 3.00 nats apart. Other requests in the batch "
        "change what vLLM computes, too: ask again when there are none, before you call it "
        "speculation."
    )
    # Only the reference is still held while it is asked how far apart they were.
    assert stage.held[-2:] == [{"pod-a": 0}, {}]
    assert stage.asked[-2:] == [("pod-a", 0)] * 2


def test_a_near_tie_is_counted_and_is_no_failure() -> None:
    result = Stage(TWO, lying(2, gap=0.1)).run().result

    assert result is not None
    assert (result.result, result.ties) == (QualityResult.LOSSLESS, 1)
    assert "Near-ties: 1. Prompt 3 from token 11 on" in result.message
    assert "0.10 nats apart" in result.message


def test_what_depth_0_takes_back_says_nothing_of_speculation() -> None:
    """As where other requests in the batch made its first answer another one."""
    result = Stage(TWO, lying(2, gap=-3.0)).run().result

    assert result is not None
    assert result.result is QualityResult.NOT_CHECKED
    assert result.message.startswith("1 of 8 prompts differ. There ")
    assert "prefers the answer of" in result.message
    assert "Ask again when there is less to do. Prompt 3 from token 11 on" in result.message


def test_what_depth_0_takes_back_does_not_hide_a_difference() -> None:
    def engine(pod: str, depth: int, request: CompletionRequest) -> Completion:
        gap = -3.0 if request.prompt[0] == 2 else 3.0
        return lying(2, 5, gap=gap)(pod, depth, request)

    result = Stage(TWO, engine).run().result

    assert result is not None
    assert result.result is QualityResult.DIFFERS
    assert result.message.startswith("1 of 8 prompts differ by more than a near-tie")


def test_a_near_tie_does_not_hide_a_difference() -> None:
    def speak(pod: str, depth: int, request: CompletionRequest) -> Completion:
        # Asked about the first of the two, they are close; about the second, far apart.
        gap = 0.1 if request.prompt[0] == 2 else 3.0
        return lying(2, 5, gap=gap)(pod, depth, request)

    result = Stage(TWO, speak).run().result

    assert result is not None
    assert (result.result, result.ties) == (QualityResult.DIFFERS, 1)
    assert result.message.startswith("1 of 8 prompts differ by more than a near-tie")
    assert "Prompt 6 from token 11 on" in result.message


def test_an_engine_that_tells_no_prompt_tokens_is_not_asked_for_a_gap() -> None:
    def speak(pod: str, depth: int, request: CompletionRequest) -> Completion:
        assert not request.likeliest
        return replace(lying(2)(pod, depth, request), prompt_token_ids=())

    result = Stage(TWO, speak).run().result

    assert result is not None
    assert result.result is QualityResult.DIFFERS
    assert "not known to be close" in result.message


def test_no_token_at_all_is_no_result() -> None:
    check = Stage(TWO, lambda *_: Completion(token_ids=(), text="")).run()

    assert check.result is not None
    assert check.result.result is QualityResult.NOT_CHECKED
    assert message(check) == "pod-a and pod-b answered with nothing."


# -- who is chosen


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        (TWO, Chosen("pod-a", "pod-b", 5)),
        ((*TWO, Replica(name="pod-0", revision="r1", pinned=True)), Chosen("pod-a", "pod-b", 5)),
        ((*TWO, Replica(name="pod-0", revision="r1", live=False)), Chosen("pod-a", "pod-b", 5)),
        ((Replica(name="pod-0", revision="r0"), *TWO), Chosen("pod-a", "pod-b", 5)),
        ((Replica(name="pod-0", revision="r0"), ONE[0]), Chosen("pod-0", "pod-0", 5)),
    ],
    ids=["two", "one pinned", "one without live depth", "one of another revision", "no two alike"],
)
def test_two_of_a_revision_that_nobody_holds(
    replicas: tuple[Replica, ...], expected: Chosen
) -> None:
    assert chosen(Stage(replicas).fleet) == expected


def test_a_probe_is_left_alone_where_there_is_another_replica() -> None:
    stage = Stage((*TWO, Replica(name="pod-c", revision="r1")))
    stage.document = DepthDocument(generation=7, schedule=SCHEDULE, pods={"pod-a": flat(3, 16)})

    assert chosen(stage.fleet) == Chosen("pod-b", "pod-c", 5)


@pytest.mark.parametrize(
    ("stage", "why"),
    [
        (Stage(()), "No replica is ready"),
        (Stage((Replica(name="pod-a", pinned=True),)), "Of 1 ready replica none can be held"),
        (Stage(refusal="Mode Static: so."), "Mode Static: so."),
        (Stage(document=None), "No depth document was written yet."),
        (
            Stage(document=DepthDocument(generation=1, schedule=flat(0, 16))),
            "Depth is 0 at every batch",
        ),
    ],
)
def test_where_nothing_can_be_checked_it_is_said_at_once(stage: Stage, why: str) -> None:
    check = begun("one", stage.fleet)

    assert check.result is not None
    assert check.result.result is QualityResult.NOT_CHECKED
    assert message(check).startswith(why)
    assert (check.holds, check.questions) == ({}, ())


# -- what goes wrong


def test_nothing_is_asked_before_the_engines_say_that_it_is_in_force() -> None:
    stage = Stage(obeys=False)
    check = stage.begin()
    stage.now_s = START_S + HOLD_DEADLINE_S
    waiting = check.advanced(stage.fleet)

    assert waiting is check
    assert waiting.questions == ()

    stage.now_s += 1
    over = waiting.advanced(stage.fleet)
    assert over.holds == {}
    assert message(over).startswith("After 180 s pod-a does not report generation 8 of the depths")


def test_a_document_that_does_not_hold_them_is_named() -> None:
    stage = Stage()
    check = begun("one", stage.fleet)
    # As where minTokens clamps what is asked for.
    stage.document = DepthDocument(
        generation=8, schedule=SCHEDULE, pods={"pod-a": flat(1, 16), "pod-b": flat(5, 16)}
    )

    stage.now_s += HOLD_DEADLINE_S + 1
    assert message(check.advanced(stage.fleet)).startswith(
        "After 180 s the depth document does not hold pod-a at depth 0"
    )


def asking(stage: Stage) -> QualityCheck:
    """Held, in force, and the prompts are under way."""
    stage.now_s += 5
    check = stage.begin().advanced(stage.fleet)
    assert len(check.questions) == 2 * len(PROMPTS)
    return check


def test_after_a_restart_the_prompts_are_sent_again() -> None:
    stage = Stage()
    check = asking(stage)

    again = QualityCheck.from_json(check.to_json())

    assert again is not None
    assert again.questions == check.questions
    assert again.advanced(stage.fleet) is again


@pytest.mark.parametrize("when", ["held", "asked"])
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"replicas": ONE}, "pod-b is gone or no longer ready. Ask again."),
        (
            {"replicas": (ONE[0], replace(TWO[1], pinned=True))},
            "pod-b was pinned by a person meanwhile. Ask again.",
        ),
        ({"refusal": "Mode Static: so."}, "Mode Static: so."),
    ],
    ids=["pod lost", "pod pinned", "spec changed"],
)
def test_what_is_lost_meanwhile_ends_the_check(
    when: str, change: dict[str, object], why: str
) -> None:
    stage = Stage()
    check = asking(stage) if when == "asked" else stage.begin()

    over = check.advanced(replace(stage, **change).fleet)  # type: ignore[arg-type]

    assert message(over) == why
    assert (over.holds, over.questions) == ({}, ())


def test_depths_that_change_while_prompts_are_asked_end_the_check() -> None:
    stage = Stage()
    check = asking(stage)
    stage.document = DepthDocument(generation=9, schedule=SCHEDULE)

    assert message(check.advanced(stage.fleet)).startswith(
        "While the prompts were asked, the depth document does not hold pod-a at depth 0"
    )


def test_a_newer_generation_of_the_same_depths_does_not() -> None:
    stage = Stage()
    check = asking(stage)
    assert stage.document is not None
    stage.document = replace(stage.document, generation=20)
    stage.obeys = False

    assert check.advanced(stage.fleet) is check


def test_answers_that_take_too_long_end_the_check() -> None:
    stage = Stage()
    check = asking(stage)
    stage.now_s += ASK_DEADLINE_S
    assert check.advanced(stage.fleet) is check

    stage.now_s += 1
    assert message(check.advanced(stage.fleet)).startswith(
        "pod-a and pod-b did not answer all prompts within 300 s."
    )


def test_an_engine_that_does_not_answer_ends_the_check() -> None:
    over = asking(Stage()).answered(Unanswered("Pod llm/pod-b says nothing."), START_S)

    assert over.result is not None
    assert over.result.result is QualityResult.NOT_CHECKED
    assert message(over) == "Pod llm/pod-b says nothing."


def test_a_difference_whose_gap_cannot_be_learnt_is_still_told() -> None:
    stage = Stage(TWO, lying(2))
    check = stage.step(stage.begin())
    assert len(check.questions) == 1

    over = check.answered(Unanswered("Pod llm/pod-a says nothing."), START_S)

    assert over.result is not None
    assert over.result.result is QualityResult.NOT_CHECKED
    assert message(over).startswith("1 of 8 prompts differ, and it is not known whether by more")
    assert message(over).endswith("Pod llm/pod-a says nothing.")


def test_what_is_over_stays_over() -> None:
    stage = Stage()
    over = stage.run()
    stage.replicas = ()
    stage.now_s += 1e6

    assert over.advanced(stage.fleet) is over


@pytest.mark.parametrize("text", ["", "{", '{"request_id": "one"}', '{"other": 1}'])
def test_what_cannot_be_read_is_no_check(text: str) -> None:
    assert QualityCheck.from_json(text) is None


def test_a_person_who_waits_is_told_what_it_is_at() -> None:
    stage = Stage(ONE, lying(1))
    check = stage.begin()
    told = [check.progress]
    while check.result is None:
        stage.now_s += 5
        check = stage.obey(check.advanced(stage.fleet))
        told.append(check.progress)
        check = stage.step(check)
        told.append(check.progress)

    assert list(dict.fromkeys(told)) == [
        "Waits for pod-a at depth 5.",
        "Asks 8 prompts of pod-a at depth 5.",
        "Waits for pod-a at depth 0.",
        "Asks 8 prompts of pod-a at depth 0.",
        "Asks pod-a about the places where answers differ: 1.",
        "",
    ]
