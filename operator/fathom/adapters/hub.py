"""The Hugging Face Hub, or a mirror of it: small files and sizes, never weights.

HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE, HF_HOME and HF_HUB_CACHE are read by huggingface_hub itself.
"""

import asyncio
import json
import time
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import quote

from huggingface_hub import (
    constants,
    get_session,
    hf_hub_url,
    try_to_load_from_cache,
)
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import (  # type: ignore[attr-defined] # documented, not in __all__
    build_hf_headers,
    hf_raise_for_status,
)

from fathom import __version__
from fathom.adapters.model_files import (
    CONFIG,
    INDEX,
    LENGTH_BYTES,
    LONGEST_HEADER_BYTES,
    MAX_CONFIG_BYTES,
    SINGLE_FILE,
    UnreadableConfigError,
    header_bytes,
    lacking,
    only_pickles,
    parse_config,
    parsed_header,
    read_bytes,
    read_index,
    weight_bytes,
    weight_files,
)
from fathom.model_facts import Absence, ModelConfig, ModelFacts
from fathom.model_refs import ModelRef
from fathom.text import scrubbed
from fathom_intake.model_weights import Tensor, Weights, tensors_named, tensors_of

TIMEOUT_S: Final = 10.0
"""Time limit of one request."""
_REQUESTS: Final = 4
"""A look-up makes as many at most."""
_LONGEST_LISTING_BYTES: Final = 8 << 20
"""Limit for the list of a repository's files: some ten thousand."""
_AT_ONCE: Final = 4
_MOST_REDIRECTS: Final = 5
_PLAIN: Final = "identity"
_CODES: Final = ("X-Error-Code", "X-Error-Message")
"""Headers by which the hub says which refusal it is."""
_LIBRARY: Final = "fathom"
_PARTIAL_CONTENT: Final = 206


class _NotAPartError(Exception):
    """A part of a file was asked for, and all of it was to be sent."""


class _PackedError(Exception):
    """It comes packed, unasked: a few bytes of it may be very many."""


class _AstrayError(Exception):
    """One redirect leads to the next."""


class HuggingFaceHub:
    """Looks models up, one small request after the other. Any thread may call it."""

    def __init__(
        self,
        *,
        endpoint: str | None = None,
        token: str | None = None,
        offline: bool = False,
        timeout_s: float = TIMEOUT_S,
        without_access: str = "set HF_TOKEN to a token that has access",
        cache: Path | None = None,
    ) -> None:
        """Ask nothing yet.

        Args:
            endpoint: the hub's address; None: HF_ENDPOINT's, else huggingface.co.
            token: None: HF_TOKEN's, else the one that `hf auth login` saved.
            offline: ask no hub and look into the cache only, as with HF_HUB_OFFLINE=1.
            timeout_s: of one request, in seconds.
            without_access: what to do about a model that needs a token, in half a sentence.
            cache: where other programs keep what they downloaded; None: HF_HUB_CACHE.
        """
        self._endpoint = endpoint or constants.ENDPOINT
        self._shown = scrubbed(self._endpoint)
        self._token = token
        self._offline = offline or constants.HF_HUB_OFFLINE
        self._timeout_s = timeout_s
        self._without_access = without_access
        self._cache = cache
        # Its own: a hub that is slow must not hold up what else waits for a thread.
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="hub")

    async def look_up(self, ref: ModelRef) -> ModelFacts:
        """What is known of a model. Idempotent; never raises: an absence says what stood between.

        Takes at most four times `timeout_s`.
        """
        try:
            async with asyncio.timeout(_REQUESTS * self._timeout_s):
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(self._threads, self._look_up, ref)
        except TimeoutError:
            return self._unreachable()

    def _look_up(self, ref: ModelRef) -> ModelFacts:
        until_s = time.monotonic() + _REQUESTS * self._timeout_s
        try:
            config = ModelConfig.from_json(parse_config(self._config_text(ref, until_s)))
        except UnreadableConfigError as error:
            return ModelFacts(absence=Absence.UNREADABLE, explanation=str(error))
        except Exception as error:  # noqa: BLE001  # what huggingface_hub's transport raises varies
            return self._absent(ref, error)
        return ModelFacts(config=config, weights=self._weights(ref, config, until_s))

    def _config_text(self, ref: ModelRef, until_s: float) -> bytes:
        """A config.json, from the hub, or, where that does not answer, from its cache.

        Not by `hf_hub_download`: it tries a hub that is down for half a minute, and writes files.

        Raises:
            Exception: it cannot be had.
        """
        if not self._offline:
            try:
                return self._body(self._url(ref, CONFIG), MAX_CONFIG_BYTES, until_s)
            except Exception:
                if self._cached(ref) is None:
                    raise
        cached = self._cached(ref)
        if cached is None:
            raise OfflineModeIsEnabled
        return read_bytes(cached)

    def _cached(self, ref: ModelRef) -> Path | None:
        """Where an earlier download of another program left the config.json."""
        found = try_to_load_from_cache(
            ref.id, CONFIG, cache_dir=self._cache, revision=ref.revision or None
        )
        return Path(found) if isinstance(found, str) else None

    def _absent(self, ref: ModelRef, error: Exception) -> ModelFacts:
        """An absence, from what huggingface_hub raised. The order is that of its subclasses."""
        at = self._shown
        match error:
            case GatedRepoError():
                absence, why = Absence.GATED, f"it is gated at {at}; {self._without_access}"
            case RevisionNotFoundError():
                absence, why = Absence.MISSING, f"{at} knows no revision {ref.revision} of it"
            case RepositoryNotFoundError():
                absence, why = (
                    Absence.MISSING,
                    f"{at} shows no such repository; if it is private, {self._without_access}",
                )
            case OfflineModeIsEnabled():
                absence, why = (
                    Absence.OFFLINE,
                    "it is not in the cache, and the hub is not to be asked",
                )
            case EntryNotFoundError():
                absence, why = Absence.MISSING, "the repository has none"
            case HFValidationError():
                absence, why = (
                    Absence.MISSING,
                    "that is neither an absolute path nor a Hugging Face id",
                )
            case HfHubHTTPError():
                status = error.response.status_code
                absence, why = Absence.UNREACHABLE, f"{at} answers with HTTP status {status}"
            case _PackedError():
                absence, why = Absence.UNREADABLE, f"{at} sends it packed, though asked not to"
            case _AstrayError():
                absence, why = Absence.UNREACHABLE, f"{at} redirects without an end"
            case _:
                return self._unreachable()
        return ModelFacts(absence=absence, explanation=why)

    def _unreachable(self) -> ModelFacts:
        return ModelFacts(
            absence=Absence.UNREACHABLE, explanation=f"{self._shown} cannot be reached"
        )

    def _weights(self, ref: ModelRef, config: ModelConfig, until_s: float) -> Weights:
        """What the hub says of the weights. A failure here makes them unknown, and no more."""
        if self._offline:
            return Weights()
        try:
            sizes = self._sizes(ref, until_s)
        except Exception:  # noqa: BLE001  # what huggingface_hub's transport raises varies
            return Weights()
        known = Weights(total_bytes=weight_bytes(sizes), pickled=only_pickles(sizes))
        if not config.named_eagle3:
            return known
        try:
            return self._with_tensors(known, ref, sizes, until_s)
        except Exception:  # noqa: BLE001  # as above
            return known

    def _sizes(self, ref: ModelRef, until_s: float) -> Mapping[str, int | None]:
        """Bytes by path within the repository, where the hub tells.

        Not by `HfApi.model_info`, which takes whatever is sent.
        """
        revision = f"/revision/{quote(ref.revision, safe='')}" if ref.revision else ""
        url = f"{self._endpoint}/api/models/{ref.id}{revision}?blobs=true"
        listing = self._body(url, _LONGEST_LISTING_BYTES, until_s)
        sizes: dict[str, int | None] = {}
        for file in json.loads(listing)["siblings"]:
            size = file.get("size")
            sizes[str(file["rfilename"])] = size if type(size) is int else None
        return sizes

    def _with_tensors(
        self, known: Weights, ref: ModelRef, sizes: Collection[str], until_s: float
    ) -> Weights:
        """With what the header of a single file says, or the index of several."""
        files = weight_files(sizes)
        if files == {SINGLE_FILE}:
            return replace(known, tensors=self._header_tensors(ref, until_s))
        if len(files) <= 1 or INDEX not in sizes:
            return known
        # Of several files vLLM fetches the index, too, and heeds it.
        index = read_index(self._body(self._url(ref, INDEX), LONGEST_HEADER_BYTES, until_s))
        if index is None:
            return known
        return replace(known, tensors=tensors_named(index), index_lacks=lacking(index, sizes))

    def _header_tensors(self, ref: ModelRef, until_s: float) -> tuple[Tensor, ...] | None:
        """None: it cannot be read by itself."""
        size = header_bytes(self._part(ref, 0, LENGTH_BYTES, until_s))
        if not size:
            return None
        return tensors_of(parsed_header(self._part(ref, LENGTH_BYTES, size, until_s), size))

    def _part(self, ref: ModelRef, first: int, size: int, until_s: float) -> bytes:
        """A few bytes of a weight file.

        Not by huggingface_hub's own function: that one takes whatever is sent.

        Raises:
            _NotAPartError: the server would rather send all of it.
        """
        return self._body(self._url(ref, SINGLE_FILE), size, until_s, first=first)

    def _url(self, ref: ModelRef, path: str) -> str:
        return hf_hub_url(ref.id, path, revision=ref.revision or None, endpoint=self._endpoint)

    def _body(self, url: str, most: int, until_s: float, *, first: int | None = None) -> bytes:
        """An answer's beginning, or the part from byte `first` on: `most` bytes at most.

        Of redirects and refusals no body is read.
        """
        headers = build_hf_headers(
            token=self._token, library_name=_LIBRARY, library_version=__version__
        )
        headers["Accept-Encoding"] = _PLAIN
        if first is not None:
            headers["Range"] = f"bytes={first}-{first + most - 1}"
        session = get_session()
        request = session.build_request("GET", url, headers=headers, timeout=self._timeout_s)
        for _ in range(_MOST_REDIRECTS + 1):
            with closing(session.send(request, stream=True, follow_redirects=False)) as response:
                if response.next_request is not None:
                    request = response.next_request
                    continue
                # Given the whole response it would read the body to its end, and log what the hub
                # warns of.
                said = {name: response.headers.get(name, "") for name in _CODES}
                hf_raise_for_status(
                    type(response)(response.status_code, headers=said, request=response.request)
                )
                if first is not None and response.status_code != _PARTIAL_CONTENT:
                    raise _NotAPartError
                if response.headers.get("Content-Encoding", _PLAIN) != _PLAIN:
                    raise _PackedError
                received = bytearray()
                for chunk in response.iter_raw():
                    received += chunk
                    if len(received) >= most:
                        break
                    if time.monotonic() > until_s:
                        raise TimeoutError
                return bytes(received[:most])
        raise _AstrayError
