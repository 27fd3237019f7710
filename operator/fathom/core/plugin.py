"""The engine plugin as the operator delivers it: files, and one name for exactly these files."""

from fathom.core.delivered_code import DeliveredCode
from fathom_vllm.bundle import bundle_files
from fathom_vllm.content import content_hash


class PluginBundle(DeliveredCode):
    """One version of the plugin."""

    __slots__ = ()


def plugin_bundle() -> PluginBundle:
    """The plugin that comes with this Fathom."""
    files = bundle_files()
    return PluginBundle(files, content_hash(files))
