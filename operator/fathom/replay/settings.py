"""The wishes that a replay goes by: a manifest's, with what the command line says over them."""

from collections.abc import Mapping
from typing import Final

from pydantic import JsonValue, ValidationError

from fathom.adapters.yaml_documents import UnreadableManifestError, read_documents
from fathom.api.spec import SpeculationSpec
from fathom.resource import SpeculativeDeployment, is_speculative_deployment, parse
from fathom.tuning.interface import Settings, settings_from

MAX_BATCH: Final = 256
"""Where neither a manifest nor the command line says: vLLM's own default on most GPUs."""


class BadSettingsError(Exception):
    """The wishes contradict each other, or cannot be read; the message is a sentence."""


def settings_for(
    manifest: str | None,
    speculation: Mapping[str, JsonValue],
    tuning: Mapping[str, JsonValue],
    most: int | None,
) -> Settings:
    """Put the wishes together.

    Args:
        manifest: a file with one SpeculativeDeployment, `-` for stdin; None: the API's defaults.
        speculation: fields of `spec.speculation`, as users write them, that go before the
            manifest's.
        tuning: fields of `spec.speculation.tuning`, likewise.
        most: `--max-num-seqs`; None: the manifest's.

    Raises:
        BadSettingsError: with a sentence for the user.
    """
    resource = None if manifest is None else _resource(manifest)
    written = SpeculationSpec() if resource is None else resource.spec.speculation
    document = written.model_dump(by_alias=True, mode="json")
    document |= {"tuning": {**document["tuning"], **tuning}, **speculation}
    try:
        wished = SpeculationSpec.model_validate(document)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()
        )
        raise BadSettingsError(f"The settings are refused: {problems}.") from error
    batch, named = most or MAX_BATCH, None
    if resource is not None:
        batch = most or resource.engine.max_num_seqs
        spec = resource.spec.model_copy(update={"speculation": wished})
        named = resource.with_spec(spec).engine.depths
    settings = settings_from(wished, batch, named)
    if not settings.min_tokens <= settings.tokens <= settings.max_tokens:
        raise BadSettingsError(
            f"tokens ({settings.tokens}) must lie within minTokens ({settings.min_tokens}) and "
            f"maxTokens ({settings.max_tokens})."
        )
    if settings.tokens not in settings.depths:
        depths = ", ".join(map(str, settings.depths))
        raise BadSettingsError(
            f"tokens ({settings.tokens}) must be one of the manifest's depths ({depths})."
        )
    if settings.objective.keeps_slo and settings.tpot_slo_seconds is None:
        raise BadSettingsError("Objective Goodput needs --tpot-milliseconds.")
    return settings


def _resource(file: str) -> SpeculativeDeployment:
    try:
        documents = [each for each in read_documents(file) if is_speculative_deployment(each)]
    except UnreadableManifestError as error:
        raise BadSettingsError(f"{file}: {error}") from error
    if len(documents) != 1:
        raise BadSettingsError(
            f"{file}: holds {len(documents)} SpeculativeDeployments; a replay goes by exactly one."
        )
    parsed = parse(documents[0])
    if not isinstance(parsed, SpeculativeDeployment):
        raise BadSettingsError(f"{file}: {'; '.join(map(str, parsed))}")
    return parsed
