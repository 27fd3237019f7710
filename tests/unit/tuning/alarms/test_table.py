"""The list of alarms is whole: what has a name has a row, and each row a function of its own."""

import inspect

from fathom.api.conditions import AlarmKind
from fathom.tuning.alarms import detectors, reference_detector
from fathom.tuning.alarms.table import ALARMS


def test_every_kind_has_a_row_and_every_row_a_reason_of_its_own() -> None:
    assert list(dict.fromkeys(row.kind for row in ALARMS)) == list(AlarmKind)
    assert len({row.reason for row in ALARMS}) == len(ALARMS)


def test_every_function_that_sees_something_has_a_row() -> None:
    functions = {
        each
        for module in (detectors, reference_detector)
        for name, each in inspect.getmembers(module, inspect.isfunction)
        if each.__module__ == module.__name__ and not name.startswith("_")
    }
    assert [row.sees.__name__ for row in ALARMS] == [row.reason.name.lower() for row in ALARMS]
    assert {row.sees for row in ALARMS} == functions


def test_what_a_person_reads_is_a_sentence_and_fits_a_cell_of_a_table() -> None:
    assert all(row.advice.endswith(".") and row.lasts_s > 0 for row in ALARMS)
    assert not any("|" in row.when + row.advice for row in ALARMS)
