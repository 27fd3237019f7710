from dataclasses import asdict

import pytest

from fathom.adapters.metrics_page import LONGEST_LINE, MOST_SAMPLES, PageReader, parse
from fathom.adapters.series import FAMILIES, PAGE_LABELS, NotAnEngine
from fathom.measurement.counters import Cell, StepKind
from fathom.measurement.deltas import delta
from fathom.measurement.packed_counts import PackedCounts
from support.engine_page import FakeEngine


def test_a_page_is_read_in_full() -> None:
    engine = FakeEngine()

    counters = parse(engine.page(), pod="p", at_s=12.5)

    assert (counters.pod, counters.at_s) == ("p", 12.5)
    assert engine.is_shown_by(counters)
    assert counters.engine.accepted_tokens == 42
    assert counters.depth_rejections == 1
    assert counters.transition_steps == 7


def everything(*, level: float) -> str:
    """A page with a sample of each family that is read; its gauges stand at this level."""
    values = {
        **dict.fromkeys(PAGE_LABELS, "1"),
        "le": "+Inf",
        "finished_reason": "stop",
        "step": "decode",
        "position": "0",
    }
    labels = ",".join(f'{label}="{value}"' for label, value in values.items())
    counted = ("_total", "_sum", "_count", "_bucket", "_created", "_start_time_seconds")
    return "".join(
        f"{name}{{{labels}}} {5.0 if name.endswith(counted) else level}\n" for name in FAMILIES
    )


def test_what_is_read_of_an_engine_has_a_field_and_a_gauge_may_fall() -> None:
    before = parse(everything(level=0.75), pod="p", at_s=1)
    after = parse(everything(level=0.5), pod="p", at_s=2)

    unread = {name for name, value in asdict(after.engine).items() if not value}
    assert unread == {"failed_requests"}, "nothing is read into a field of EngineCounts"
    assert delta(before, after) is not None, (
        "a gauge that fell was taken for a restart: see _GAUGES in "
        "operator/fathom/measurement/counters.py"
    )


def test_engines_of_one_pod_are_summed() -> None:
    engine = FakeEngine(engines=2)
    assert engine.is_shown_by(parse(engine.page(), pod="p", at_s=0))


def test_an_engine_without_the_plugin_has_no_live_depth() -> None:
    counters = parse(FakeEngine(plugin=False).page(), pod="p", at_s=0)

    assert not counters.has_plugin
    assert parse(FakeEngine(live=False).page(), pod="p", at_s=0).has_plugin
    assert not counters.live_depth
    assert counters.depth_generation == 0
    assert not counters.cells


@pytest.mark.parametrize(("line", "shown"), [("", True), ("1.0", True), ("0.0", False)])
def test_a_plugin_says_when_its_counters_do_not_reach_the_page(line: str, shown: bool) -> None:  # noqa: FBT001 - pytest fills it
    page = FakeEngine(live=False).page()
    page += f"fathom_counters_shown {line}\n" if line else ""
    assert parse(page, pod="p", at_s=0).counters_shown is shown


def test_without_a_process_start_the_counters_creation_tells_the_restart() -> None:
    page = FakeEngine().page().replace("process_start_time_seconds", "something_else")
    page += 'vllm:generation_tokens_created{engine="0"} 77.5\n'
    assert parse(page, pod="p", at_s=0).started_at_s == 77.5


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("<html>not metrics</html>", "text format"),
        ("some_other_metric 1\n", "no vllm: metrics"),
        ("", "no vllm: metrics"),
        ("vllm:generation_tokens_total NaN\n", "not a count"),
        ('vllm:x 1\nvllm:generation_tokens_total 1\nfathom_steps_total{depth="3"} 1\n', "labels"),
        (
            'fathom_steps_total{batch_le="4",depth="3",step="later"} 1\n',
            "does not know",
        ),
    ],
)
def test_what_is_not_an_engines_page_is_refused_with_the_reason(page: str, words: str) -> None:
    with pytest.raises(NotAnEngine, match=words):
        parse(page, pod="p", at_s=0)


def test_unknown_families_are_passed_over() -> None:
    page = FakeEngine().page() + 'vllm:new_thing_total{weird="x"} NaN\nfathom_new_total 1\n'
    assert parse(page, pod="p", at_s=0).cells[Cell(4, 3, StepKind.DECODE)].steps == 10


def test_only_what_is_read_is_parsed() -> None:
    """A line of nobody's takes no time, however long it is."""
    others = 'other{a="' + "x" * 100_000 + '"} 1\n' + "another 1\n" * 50_000

    assert parse(FakeEngine().page() + others, pod="p", at_s=0).engine.generation_tokens == 100


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("vllm:prompt_tokens_total 1\n" * (MOST_SAMPLES + 1), "more than 20000 samples"),
        (
            "vllm:prompt_tokens_total{" + ",".join(f'a{i}="b"' for i in range(10_000)) + "} 1\n",
            "a line is longer than 4096 characters",
        ),
        ("vllm:prompt_tokens_total secret\n", "text format"),
        ('fathom_steps_total{secret="secret"} 1\n', "does not know"),
        ('fathom_steps_total{batch_le="secret",depth="3",step="decode"} 1\n', "does not know"),
        (f'vllm:request_success_total{{finished_reason="{"x" * 100}"}} 1\n', "does not know"),
    ],
    ids=["samples", "line", "value", "label", "label's value", "label's length"],
)
def test_a_page_without_measure_is_refused_and_never_quoted(page: str, words: str) -> None:
    with pytest.raises(NotAnEngine) as refused:
        parse(page, pod="p", at_s=0)

    assert words in str(refused.value)
    assert "secret" not in str(refused.value)


PLUGIN = [
    line
    for line in FakeEngine()._plugin()
    if not line.startswith(("fathom_plugin_info", "fathom_engine_info"))
]


@pytest.mark.parametrize("line", PLUGIN)
def test_what_is_missing_of_the_plugins_counters_is_not_zero(line: str) -> None:
    """A Prometheus may answer in part: a step nobody was in has no batch, a draft no acceptance."""
    page = FakeEngine().page()
    with pytest.raises(NotAnEngine, match="only a part of Fathom's counters"):
        parse(page.replace(f"{line}\n", ""), pod="p", at_s=0)


@pytest.mark.parametrize(
    ("lines", "device"),
    [
        ("", ""),
        ("fathom_engine_info 1.0\n", ""),
        ('fathom_engine_info{device="NVIDIA H100 80GB HBM3"} 1.0\n', "NVIDIA H100 80GB HBM3"),
        (2 * 'fathom_engine_info{device="NVIDIA GB200"} 1.0\n', "NVIDIA GB200"),
        ('fathom_engine_info{device="A"} 1.0\nfathom_engine_info{device="B"} 1.0\n', ""),
    ],
    ids=["older plugin", "no label", "one", "twice", "contradiction"],
)
def test_the_device_is_known_where_the_engine_tells_one(lines: str, device: str) -> None:
    page = FakeEngine(told={}).page() + lines

    assert parse(page, pod="p", at_s=0).device == device


def test_pods_on_two_kinds_of_device_are_told_apart_page_after_page() -> None:
    reader = PageReader()
    for tokens in range(4):
        for pod, device in (("a", "NVIDIA H100"), ("b", "NVIDIA H200"), ("c", "")):
            page = FakeEngine(told={"device": device}, tokens=tokens).page().encode()
            assert reader.read(page, pod=pod, at_s=tokens).device == device


def test_an_engine_that_has_not_started_shows_no_counters_and_is_one() -> None:
    page = FakeEngine(plugin=False).page() + "fathom_counters_shown 0.0\nfathom_live_depth 0.0\n"
    counters = parse(page, pod="p", at_s=0)
    assert not counters.live_depth
    assert not counters.counters_shown


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (f"vllm:prompt_tokens_total {10**400}", "text format"),
        (f"vllm:prompt_tokens_total {10**400} 5", "text format"),
        (f"vllm:prompt_tokens_total 5 {10**400}", "text format"),
        (
            "fathom_depth_generation 1e308\nfathom_depth_generation 1e308",
            "fathom_depth_generation is inf, not a count",
        ),
        (
            'vllm:kv_cache_usage_perc{engine="1"} NaN',
            "vllm:kv_cache_usage_perc is nan, not a count",
        ),
        (
            'fathom_drafts_total{batch_ge="1",batch_le="1",depth="100000000000"} 1',
            "fathom_accepted_tokens_total is missing",
        ),
        (
            'fathom_drafts_total{batch_ge="1",batch_le="1",depth="-1"} 1',
            "fathom_accepted_tokens_total is missing",
        ),
    ],
    ids=["value", "value before a time", "time", "sum", "largest", "depth", "depth below 0"],
)
def test_no_number_is_too_large_to_be_refused(line: str, words: str) -> None:
    """They are the pod's to choose: a depth may not fill our memory with its positions."""
    with pytest.raises(NotAnEngine, match=words):
        parse(f"{FakeEngine().page()}{line}\n", pod="p", at_s=0)


def test_what_is_read_has_to_be_text_and_what_is_not_need_not() -> None:
    page = FakeEngine().page().encode()
    odd = b'vllm:prompt_tokens_total{model_name="\xff"} 1\n'

    assert PageReader().read(page + b"other" + odd, pod="p", at_s=0).engine.prompt_tokens == 50
    with pytest.raises(NotAnEngine, match="not UTF-8 text"):
        PageReader().read(page + odd, pod="p", at_s=0)


def test_a_series_that_is_known_is_read_as_at_first_sight() -> None:
    """Whether all is remembered, or nothing, or what comes is just on its way out."""
    pages = [FakeEngine(tokens=float(n), engines=1 + n % 3).page().encode() for n in range(6)]
    read = {
        remembered_bytes: [reader.read(page, pod="p", at_s=0) for page in pages]
        for remembered_bytes in (0, 10_000, 20_000, 1 << 20)
        for reader in [PageReader(remembered_bytes)]
    }

    assert all(found == read[0] for found in read.values())
    assert [each.engine.generation_tokens for each in read[0]] == [0, 2, 6, 3, 8, 15]


@pytest.mark.parametrize("value", ["secret", "1_000", "NaN", "+Inf", "", "1\t2\t3x"])
def test_a_known_series_may_yet_show_what_is_no_count(value: str) -> None:
    reader, page = PageReader(), FakeEngine().page()
    reader.read(page.encode(), pod="p", at_s=0)

    with pytest.raises(NotAnEngine):
        reader.read(page.replace(" 50.0", f" {value}").encode(), pod="p", at_s=0)


def test_lines_may_say_when_and_end_and_part_as_they_like() -> None:
    """As other exporters write them: all that the library reads."""
    reader, engine = PageReader(), FakeEngine()
    for page in (
        engine.page(),
        engine.page().replace("\n", " 1395066363000\n"),
        engine.page().replace("\n", "\r\n"),
        engine.page().replace("} ", "}\t"),
        engine.page().replace("} ", "}   "),
        engine.page().replace("{", "{ ").replace("} ", " } "),
        engine.page(),
    ):
        assert engine.is_shown_by(reader.read(page.encode(), pod="p", at_s=0))


_COUNT = b'vllm:prompt_tokens_total{engine="0",model_name="m"} 50.0'


@pytest.mark.parametrize(
    "other",
    [
        b'vllm:prompt_tokens_total{engine="0",model_name="m"} 51.0',
        b'vllm:prompt_tokens_total{engine="0",model_name="m"} 1e1 1395066363000',
        b'vllm:prompt_tokens_total{engine="0",model_name="m"}  7',
        b'vllm:prompt_tokens_total{engine="0",model_name="m"} 7\r',
        b'vllm:prompt_tokens_total{engine="0",model_name="m"}\t7',
        b'vllm:prompt_tokens_total{engine="0",model_name="m"} -Inf',
        b'vllm:prompt_tokens_total{engine="0",model_name="m"} 1_0',
        b'vllm:prompt_tokens_total{engine="0",model_name="m"} ' + b"1" * (LONGEST_LINE + 1),
        b'vllm:prompt_tokens_total{engine="1",model_name="m"} 7',
        b"vllm:prompt_tokens_total 7",
        b"vllm:prompt_tokens_total",
        b"7",
        b"",
        b'vllm:prompt_tokens_created{engine="0",model_name="m"} 7',
        b'vllm:generation_tokens_total{engine="1",model_name="m"} 7',
        b"# vllm:prompt_tokens_total 7",
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_page_that_looks_as_before_is_read_as_at_first_sight(other: bytes, first: bool) -> None:  # noqa: FBT001 - pytest fills it
    """Whichever of the two was seen before; and one line too many, or too few, is seen, too."""
    page = b"# HELP any Of nobody's.\nany 1\n" + FakeEngine().page().encode()
    assert page.count(_COUNT) == 1
    known, shown = (page, page.replace(_COUNT, other))[:: 1 if first else -1]
    reader = PageReader()
    others = (shown + b"any 1\n", shown.removesuffix(b"\n"), known)
    for each in (known, known, known, shown, shown, shown, *others):
        assert _read(reader, each) == _read(PageReader(), each)


@pytest.mark.parametrize("bad", ["NaN", "-Inf"])
@pytest.mark.parametrize("values", [slice(None), slice(None, None, -1)], ids=["last", "first"])
def test_what_is_no_number_is_not_hidden_by_a_larger_one(bad: str, values: slice) -> None:
    page, series = FakeEngine().page(), "vllm:kv_cache_usage_perc"
    good = "".join(f'{series}{{engine="{n}"}} 0.5\n' for n in (1, 2))
    one, other = ("0.5", bad)[values]
    shown = f'{series}{{engine="1"}} {one}\n{series}{{engine="2"}} {other}\n'
    reader = PageReader()
    for each in (good, good, good):
        assert reader.read((page + each).encode(), pod="p", at_s=0).engine.kv_cache_usage == 0.5
    for _ in range(2):
        with pytest.raises(NotAnEngine, match=f"{series} is {float(bad)}, not a count"):
            reader.read((page + shown).encode(), pod="p", at_s=0)


def _read(reader: PageReader, page: bytes) -> object:
    try:
        return reader.read(page, pod="p", at_s=0)
    except NotAnEngine as refused:
        return str(refused)


def test_looks_that_show_the_same_share_their_keys() -> None:
    reader, page = PageReader(), FakeEngine().page().encode()
    *_, one, another = (reader.read(page, pod=pod, at_s=0) for pod in ("a", "b") * 3)
    assert isinstance(one.cells, PackedCounts)
    assert isinstance(another.cells, PackedCounts)
    assert one.cells.order is another.cells.order


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            'fathom_context_drafts_total{context_ge="4096",context_le="8191"} 1',
            "fathom_context_draft_tokens_total is missing",
        ),
        (
            'fathom_context_drafts_total{context_ge="long",context_le="8191"} 1',
            "fathom_context_drafts_total has labels, or values of them",
        ),
    ],
)
def test_counts_by_context_are_whole_or_refused(line: str, words: str) -> None:
    """Read as 0 they would be drafts none of which was accepted."""
    with pytest.raises(NotAnEngine, match=words):
        parse(f"{FakeEngine().page()}{line}\n", pod="p", at_s=0)
