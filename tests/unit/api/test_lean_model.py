"""A model without the set of what was given is a model like any other."""

from fathom.api.spec import SpeculationSpec
from fathom.cluster.manifest import ObservedCondition

TOLD = {"type": "Ready", "status": "True"}


def test_no_model_has_a_set_of_its_own() -> None:
    one, other = (ObservedCondition.model_validate(TOLD) for _ in range(2))
    copied = one.model_copy(update={"status": "False"})
    deep = SpeculationSpec(tokens=4).model_copy(deep=True)

    for each in (other, copied, deep):
        assert each.__pydantic_fields_set__ is one.__pydantic_fields_set__


def test_it_is_compared_copied_and_written_as_before() -> None:
    read = SpeculationSpec(tokens=4)

    assert read == SpeculationSpec.model_validate({"tokens": 4})
    assert read != read.model_copy(update={"tokens": 5})
    assert read.model_copy(update={"tokens": 5}).tokens == 5
    assert read.model_dump(exclude_defaults=True) == {"tokens": 4}
