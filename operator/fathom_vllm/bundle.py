"""The plugin as files for a ConfigMap. Runs in the operator; imports nothing but the stdlib."""

from io import BytesIO
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from fathom_vllm import __version__
from fathom_vllm.plugin_version import content_hash, package_files

STAT_LOGGER_GROUP = "vllm.stat_logger_plugins"
STAT_LOGGER_NAME = "fathom"
"""What `VLLM_PLUGINS` must list where it is set: it filters entry points by name."""
STAT_LOGGER_CLASS = "fathom_vllm.stat_logger:FathomStatLogger"
SCHEDULER_CLASS = "fathom_vllm.scheduler.LiveDepthScheduler"
"""The value of `--scheduler-cls`."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The first moment that a zip can name."""
_UNIX = 3
_FILE_MODE = 0o100644


def bundle_files() -> dict[str, str]:
    """Everything a directory on `PYTHONPATH` needs: relative path → text, in a fixed order.

    The `.dist-info` makes the entry point visible to `importlib.metadata` without an installation.
    """
    info = f"fathom_vllm-{__version__}.dist-info"
    return {
        **package_files(),
        f"{info}/METADATA": (f"Metadata-Version: 2.1\nName: fathom-vllm\nVersion: {__version__}\n"),
        f"{info}/entry_points.txt": (
            f"[{STAT_LOGGER_GROUP}]\n{STAT_LOGGER_NAME} = {STAT_LOGGER_CLASS}\n"
        ),
    }


def bundle_zip() -> bytes:
    """The same files as one zip, which is put on `PYTHONPATH` itself. Equal bundles, equal bytes.

    Not packed: what packing makes of a text depends on the library that packs.
    """
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_STORED) as archive:
        for path, text in sorted(bundle_files().items()):
            entry = ZipInfo(path, date_time=_EPOCH)
            entry.create_system, entry.external_attr = _UNIX, _FILE_MODE << 16
            archive.writestr(entry, text)
    return packed.getvalue()


def bundle_hash() -> str:
    """The `content` label of `fathom_plugin_info` in every pod that runs this bundle."""
    return content_hash(package_files())
