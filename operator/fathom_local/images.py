"""Which local programs stand in for a container image.

Nothing is pulled and nothing is unpacked: a container sees the machine's own files, plus what its
image's entry here adds.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from fathom_local.paths import cache_dir

ENGINE_REPOSITORY = "vllm/vllm-openai"
OPERATOR_REPOSITORY = "ghcr.io/fathom-dev/operator"
SHELL_REPOSITORY = "fathom.local/shell"
MODELS_MOUNT = Path("/models")
BASE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Bind(BaseModel):
    """A host path that an image brings along."""

    model_config = ConfigDict(frozen=True)

    source: Path
    target: Path
    read_only: bool = True


class Image(BaseModel):
    """What stands in for every tag of one repository."""

    model_config = ConfigDict(frozen=True)

    repository: str
    entrypoint: tuple[str, ...] = ()
    """What a container without `command` executes, its `args` appended."""
    path_prefix: tuple[Path, ...] = ()
    env: dict[str, str] = {}
    binds: tuple[Bind, ...] = ()
    requires: tuple[Path, ...] = ()
    """What has to be there, or the image counts as not pullable."""
    hint: str = ""
    """What to do when something required is missing; a sentence."""

    def environment(self) -> dict[str, str]:
        """The environment that a container of this image starts from."""
        path = ":".join([*map(str, self.path_prefix), BASE_PATH])
        return {"PATH": path, "HOME": "/root", "LANG": "C.UTF-8"} | self.env

    def missing(self) -> str | None:
        """Why the image cannot be used, or None."""
        absent = [path for path in self.requires if not path.exists()]
        if not absent:
            return None
        return f"{self.repository} needs {absent[0]}, which is not there. {self.hint}".strip()


class ImageTable(BaseModel):
    """All known images."""

    model_config = ConfigDict(frozen=True)

    images: tuple[Image, ...]

    def find(self, reference: str) -> Image | None:
        """The entry for an image reference, whatever its tag or digest."""
        repository = repository_of(reference)
        return next((image for image in self.images if image.repository == repository), None)


def repository_of(reference: str) -> str:
    """An image reference without tag, digest and the default registry."""
    without_digest = reference.partition("@")[0]
    folder, slash, name = without_digest.rpartition("/")
    repository = f"{folder}{slash}{name.partition(':')[0]}"
    return repository.removeprefix("docker.io/")


def engine_venv() -> Path:
    """`FATHOM_ENGINE_VENV`, else `engine-venv` in the cache: where `vllm` is installed."""
    override = os.environ.get("FATHOM_ENGINE_VENV")
    return Path(override).absolute() if override else cache_dir() / "engine-venv"


def default_images(extra: Sequence[Image] = ()) -> ImageTable:
    """The images that this project's manifests name, and `extra`, which win."""
    engine = engine_venv()
    models = cache_dir() / "models"
    operator = Path(sys.executable).parent
    return ImageTable(
        images=(
            *extra,
            Image(
                repository=ENGINE_REPOSITORY,
                # As upstream's image: arguments follow the subcommand's name.
                entrypoint=("vllm", "serve"),
                path_prefix=(engine / "bin",),
                env={"VIRTUAL_ENV": str(engine)},
                binds=(Bind(source=models, target=MODELS_MOUNT),) if models.exists() else (),
                requires=(engine / "bin" / "vllm",),
                hint="Install the engine with `fathom local engine install`.",
            ),
            Image(
                repository=OPERATOR_REPOSITORY,
                entrypoint=("fathom",),
                path_prefix=(operator,),
                env={"PYTHONUNBUFFERED": "1"},
                requires=(operator / "fathom",),
                hint="Install this project into the environment that runs the cluster.",
            ),
            Image(repository=SHELL_REPOSITORY, entrypoint=("sh",), path_prefix=(operator,)),
        )
    )
