"""Which local programs stand in for a container image.

Nothing is pulled and nothing is unpacked: a container sees the machine's own files, plus what its
image's entry here adds.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from local_cluster.engine.environment import DEFAULT_ENGINE_VERSION, engine_variables
from local_cluster.engine.model_pair import pair_directory
from local_cluster.paths import SOURCES, cache_dir

ENGINE_REPOSITORY = "vllm/vllm-openai"
CPU_ENGINE_REPOSITORY = "vllm/vllm-openai-cpu"
"""vLLM's own image for processors, as docs/kind.md has it: it brings no models."""
OPERATOR_REPOSITORY = "ghcr.io/fathom-dev/operator"
SHELL_REPOSITORY = "fathom.local/shell"
MODELS_MOUNT = Path("/models")
BASE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Bind(BaseModel):
    """A host path that an image brings along, where it exists."""

    model_config = ConfigDict(frozen=True)

    source: Path
    target: Path
    read_only: bool = True


class Image(BaseModel):
    """What stands in for one repository.

    `{version}` in a path or a variable stands for the tag without its leading "v".
    """

    model_config = ConfigDict(frozen=True)

    repository: str
    default_version: str = ""
    """What `{version}` is without a tag, and with the tag `latest`."""
    entrypoint: tuple[str, ...] = ()
    """What a container without `command` executes, its `args` appended."""
    path_prefix: tuple[Path, ...] = ()
    env: dict[str, str] = {}
    binds: tuple[Bind, ...] = ()
    requires: tuple[Path, ...] = ()
    """What has to be there, or the image counts as not pullable."""
    hint: str = ""
    """What to do when something required is missing; a sentence."""
    keeps: tuple[Path, ...] = ()
    """Host paths that stay visible also below a mounted volume, such as one at /tmp."""

    def at_version(self, version: str) -> "Image":
        """The image with `{version}` filled in."""

        def filled(paths: tuple[Path, ...]) -> tuple[Path, ...]:
            return tuple(Path(str(path).replace("{version}", version)) for path in paths)

        return self.model_copy(
            update={
                "path_prefix": filled(self.path_prefix),
                "requires": filled(self.requires),
                "env": {
                    name: value.replace("{version}", version) for name, value in self.env.items()
                },
                "keeps": filled(self.keeps),
                "hint": self.hint.replace("{version}", version),
            }
        )

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
        """What stands in for an image reference; a digest says nothing here."""
        repository, tag = split_reference(reference)
        for image in self.images:
            if image.repository == repository:
                version = image.default_version if tag in ("", "latest") else tag.removeprefix("v")
                return image.at_version(version)
        return None


def split_reference(reference: str) -> tuple[str, str]:
    """Repository, without the default registry, and tag, which may be empty."""
    without_digest = reference.partition("@")[0]
    folder, slash, name = without_digest.rpartition("/")
    name, _, tag = name.partition(":")
    return f"{folder}{slash}{name}".removeprefix("docker.io/"), tag


def default_images(extra: Sequence[Image] = ()) -> ImageTable:
    """The images that this project's manifests name, and `extra`, which win.

    `FATHOM_ENGINE_VENV` names one environment for every version of the engine; without it each
    version has its own in the cache.
    """
    override = os.environ.get("FATHOM_ENGINE_VENV")
    engine = Path(override).absolute() if override else cache_dir() / "engine-venv-{version}"
    scripts = Path(sys.executable).parent
    python = (Path(sys.prefix), Path(sys.base_prefix))
    models = pair_directory(cache_dir())
    without_models = Image(
        repository=CPU_ENGINE_REPOSITORY,
        default_version=DEFAULT_ENGINE_VERSION,
        # As upstream's image: arguments follow the subcommand's name.
        entrypoint=("vllm", "serve"),
        path_prefix=(engine / "bin",),
        env=engine_variables(engine),
        requires=(engine / "bin" / "vllm",),
        hint="Install it with `fathom local engine --version {version}`.",
        keeps=(engine, Path(sys.base_prefix)),
    )
    with_models = {
        "repository": ENGINE_REPOSITORY,
        "binds": (Bind(source=models, target=MODELS_MOUNT),),
        "requires": (*without_models.requires, models),
    }
    return ImageTable(
        images=(
            *extra,
            without_models.model_copy(update=with_models),
            without_models,
            Image(
                repository=OPERATOR_REPOSITORY,
                entrypoint=("fathom",),
                path_prefix=(scripts,),
                env={"PYTHONUNBUFFERED": "1"},
                requires=(scripts / "fathom",),
                hint="Install this project into the environment that runs the cluster.",
                keeps=(*python, *SOURCES),
            ),
            Image(
                repository=SHELL_REPOSITORY,
                entrypoint=("sh",),
                path_prefix=(scripts,),
                keeps=(*python, *SOURCES),
            ),
        )
    )
