"""Node types the API knows.

Sources: GPU Feature Discovery's labels and public GB200 recipes; AMD's k8s-device-plugin, whose
labeller counts memory in GiB, and nodes of which others published the labels.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from fathom.api.choices import Accelerator
from fathom.api.spec import NodePoolSpec

CLIQUE_LABEL: Final = "nvidia.com/gpu.clique"
"""Of a node, set by GPU Feature Discovery: `<cluster>.<clique>`, the NVLink partition it is in."""
DATA_CENTRE_BLACKWELL: Final = 10
"""The `compute_capability` of GB200, GB300 and B200; Blackwell on a workstation's board has 12."""
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
_GB: Final = 10**9


@dataclass(frozen=True, slots=True)
class Vendor:
    """Whose GPUs they are: how nodes offer them."""

    name: str
    resource: str
    """As the vendor's device plugin offers them, and the key of the taint on such nodes."""
    product_label: str
    """Node label that says which GPUs they are."""
    labelled_by: str
    """What sets it."""
    has_nvlink: bool


NVIDIA: Final = Vendor(
    "NVIDIA", "nvidia.com/gpu", "nvidia.com/gpu.product", "GPU Feature Discovery", has_nvlink=True
)
AMD: Final = Vendor(
    "AMD", "amd.com/gpu", "amd.com/gpu.product-name", "AMD's node labeller", has_nvlink=False
)
VENDORS: Final = (NVIDIA, AMD)


@dataclass(frozen=True, slots=True)
class AcceleratorPreset:
    """What is known of one node type."""

    product: str
    """Value of the vendor's `product_label`; empty: none is required."""
    gpus_per_node: int
    memory_bytes: int
    """Of one GPU, as GPU Feature Discovery labels its nodes; where that is not known, as built in,
    of which a node reports less. 0: unknown, as for Custom."""
    architecture: str
    """`kubernetes.io/arch` of the nodes; empty: unknown."""
    compute_capability: int = 0
    """CUDA's major version of the GPUs; 0: unknown, or not CUDA's."""
    domain_key: str = ""
    """Node label whose value the nodes of one NVLink domain share; empty: each node is one. Beyond
    a node NVLink needs an IMEX channel in every pod that takes part."""
    vendor: Vendor = NVIDIA


PRESETS: Final[Mapping[Accelerator, AcceleratorPreset]] = MappingProxyType(
    {
        # One GB200 node is one NVL72 compute tray: 4 GPUs, 2 Grace CPUs.
        Accelerator.GB200: AcceleratorPreset(
            "NVIDIA-GB200", 4, 189_471 * _MIB, "arm64", 10, CLIQUE_LABEL
        ),
        # The memory of GB300 and B200 is that on NVIDIA's product pages.
        Accelerator.GB300: AcceleratorPreset(
            "NVIDIA-GB300", 4, 288 * _GB, "arm64", 10, CLIQUE_LABEL
        ),
        Accelerator.B200: AcceleratorPreset("NVIDIA-B200", 8, 192 * _GB, "amd64", 10),
        Accelerator.H200: AcceleratorPreset("NVIDIA-H200", 8, 143_771 * _MIB, "amd64", 9),
        Accelerator.H100: AcceleratorPreset("NVIDIA-H100-80GB-HBM3", 8, 81_559 * _MIB, "amd64", 9),
        Accelerator.A100: AcceleratorPreset("NVIDIA-A100-SXM4-80GB", 8, 81_920 * _MIB, "amd64", 8),
        Accelerator.L40S: AcceleratorPreset("NVIDIA-L40S", 8, 46_068 * _MIB, "amd64", 8),
        Accelerator.RTXPRO6000: AcceleratorPreset(
            "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", 8, 97_887 * _MIB, "amd64", 12
        ),
        # The drivers of the last two leave out the X.
        Accelerator.MI300X: AcceleratorPreset(
            "AMD_Instinct_MI300X_OAM", 8, 192 * _GIB, "amd64", vendor=AMD
        ),
        Accelerator.MI325X: AcceleratorPreset(
            "AMD_Instinct_MI325_OAM", 8, 256 * _GIB, "amd64", vendor=AMD
        ),
        Accelerator.MI355X: AcceleratorPreset(
            "AMD_Instinct_MI355_OAM", 8, 288 * _GIB, "amd64", vendor=AMD
        ),
    }
)


def preset_for(pool: NodePoolSpec) -> AcceleratorPreset:
    """The preset of a node pool; Custom, NVIDIA's, by `gpusPerNode` alone (default 1)."""
    if pool.accelerator is Accelerator.CUSTOM:
        return AcceleratorPreset("", pool.gpus_per_node or 1, 0, "")
    return PRESETS[pool.accelerator]


def vendor_of(pool: NodePoolSpec) -> Vendor:
    """Whose GPUs a node pool has."""
    return preset_for(pool).vendor
