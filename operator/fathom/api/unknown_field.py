"""Where a field goes that its place does not know."""

from collections.abc import Sequence

from pydantic import BaseModel

from fathom.api.familiar import FAMILIAR, Familiar, familiar
from fathom.api.model_fields import Location, model_at, names_of, path_of, paths_by_name
from fathom.api.near import VERY_NEAR, nearest, plain


def unknown_field(root: type[BaseModel], location: Location) -> str:
    """The sentence that refuses it.

    Args:
        root: the model of the whole manifest.
        location: of the field.
    """
    return f"unknown field{_advice(root, str(location[-1]), location[:-1])}"


def _advice(root: type[BaseModel], name: str, place: Location) -> str:
    here = names_of(model_at(root, place))
    rows = familiar(name)
    meant = [row.path(spelling).rsplit(".", 1)[-1] for spelling, row in rows]
    if same := nearest(name, here, 1) or next((each for each in meant if each in here), ""):
        return f". Did you mean {same}?"
    for spelling, row in rows:
        if not row.beside:
            return f": {row.advice(spelling)}."
    elsewhere = paths_by_name(root).get(nearest(name, paths_by_name(root), 1), ())
    if near := _begun(name, here) or nearest(name, here):
        return f". Did you mean {', or '.join((near, *elsewhere))}?"
    if elsewhere:
        return f": set {' or '.join(elsewhere)} instead."
    return _misspelt(root, name) or f": remove it, or see `kubectl explain {_explained(place)}`."


def _begun(name: str, names: Sequence[str]) -> str:
    """The only one of the names that begins so; empty: none does, or several do."""
    found = [each for each in names if plain(each).startswith(plain(name))]
    return found[0] if len(found) == 1 else ""


def _misspelt(root: type[BaseModel], name: str) -> str:
    """The advice for what is nearly a name that would go elsewhere; empty: it is near none."""
    by_name = {each: row for row in FAMILIAR for each in row.names if not row.beside}
    ours = {each: Familiar((each,), field=paths[0]) for each, paths in paths_by_name(root).items()}
    rows = {**by_name, **ours}
    found = nearest(name, rows, VERY_NEAR)
    return f": {rows[found].advice(found)}." if found else ""


def _explained(place: Location) -> str:
    """A place as `kubectl explain` takes it: without the numbers of items."""
    return path_of(["sd", *(part for part in place if isinstance(part, str))])
