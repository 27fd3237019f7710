"""A line of a metrics page says the same to Fathom, at first sight and again, as to the library."""

from collections.abc import Callable
from math import isfinite

from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from fathom.adapters.metrics_page import PageReader, point
from fathom.adapters.series import NotAnEngine, Point

_LABEL = st.tuples(
    st.sampled_from(["engine", "model_name", "le", "depth"]),
    st.text(st.sampled_from('ab {}#,= \\"\\\\é')).map(
        lambda value: value.replace("\\", "\\\\").replace('"', '\\"')
    ),
)
_LINE = st.builds(
    "{}{}{}{}{}".format,
    st.sampled_from(["vllm:generation_tokens_total", "fathom_steps_total", "a", "a#b", ""]),
    st.lists(_LABEL, max_size=3, unique_by=lambda label: label[0]).map(
        lambda labels: "{" + ",".join(f'{name}="{value}"' for name, value in labels) + "}"
    )
    | st.sampled_from(["", "{", "}", "{}"]),
    st.sampled_from([" ", "  ", "\t", ""]),
    st.sampled_from(["1", "1.5e3", "NaN", "+Inf", "1_000", "x", ""]),
    st.sampled_from(["", " ", " 1395066363000", " x", ' # {trace_id="a"} 1']),
)


def _library(line: str) -> Point:
    (family,) = text_string_to_metric_families(f"{line}\n")
    (sample,) = family.samples
    return Point(sample.name, sample.labels, float(sample.value))


def _said(read: Callable[[str], Point], line: str) -> str:
    try:
        found = read(line)
    except (ValueError, KeyError, IndexError):
        return "refused"
    return f"{found.name} {dict(found.labels)} {found.value}"


@given(_LINE, _LINE)
@example('a{model_name="}"} 1', 'a{model_name="} 2"} 1')
@example("a 1_000", "a 1 1395066363000")
def test_a_line_says_what_the_library_reads(line: str, another: str) -> None:
    for each in (line, another, line):
        assert _said(point, each) == _said(_library, each), each


@given(_LINE, _LINE)
@example(
    'vllm:generation_tokens_total{model_name="}"} 1',
    'vllm:generation_tokens_total{model_name="} 2"} 1',
)
@example("vllm:generation_tokens_total 1_000", "vllm:generation_tokens_total 1 1395066363000")
@example('vllm:generation_tokens_total{engine="} "}\t1', "vllm:generation_tokens_total 1")
@example("vllm:generation_tokens_total 1", "vllm:generation_tokens_total 2\t3")
def test_a_page_of_a_line_says_it_at_first_sight_and_again(line: str, another: str) -> None:
    reader = PageReader()
    for each in (line, another, line):
        assert _counted(reader, each) == _expected(each), each


def _expected(line: str) -> str:
    if not line.startswith(tuple(f"vllm:generation_tokens_total{end}" for end in "{ \t")):
        return "refused"
    try:
        value = _library(line).value
    except (ValueError, KeyError, IndexError):
        return "refused"
    return str(value) if isfinite(value) else "refused"


def _counted(reader: PageReader, line: str) -> str:
    try:
        found = reader.read(f"{line}\n".encode(), pod="p", at_s=0)
    except NotAnEngine:
        return "refused"
    return str(found.engine.generation_tokens)
