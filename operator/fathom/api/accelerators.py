"""Node types the API knows.

Sources: GPU Feature Discovery's labels and public GB200 recipes; AMD's k8s-device-plugin, whose
labeller counts memory in GiB, and nodes of which others published the labels.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from fathom.api.choices import Accelerator, AdaptiveVerification
from fathom.api.methods import Method
from fathom.api.problem import Rule
from fathom.api.spec import NodePoolSpec, SpeculativeDeploymentSpec

CLIQUE_LABEL: Final = "nvidia.com/gpu.clique"
"""Label of a node, set by GPU Feature Discovery: `<cluster>.<clique>`, its NVLink partition."""
DATA_CENTRE_BLACKWELL: Final = 10
"""The `compute_capability` of GB200, GB300 and B200; Blackwell on a workstation's board has 12."""
_MIB: Final = 1 << 20
_GIB: Final = 1 << 30
_GB: Final = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
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
    name="NVIDIA",
    resource="nvidia.com/gpu",
    product_label="nvidia.com/gpu.product",
    labelled_by="GPU Feature Discovery",
    has_nvlink=True,
)
AMD: Final = Vendor(
    name="AMD",
    resource="amd.com/gpu",
    product_label="amd.com/gpu.product-name",
    labelled_by="AMD's node labeller",
    has_nvlink=False,
)
VENDORS: Final = (NVIDIA, AMD)


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceleratorPreset:
    """What is known of one node type."""

    product: str
    """Value of the vendor's `product_label`; empty: none is required."""
    gpus_per_node: int
    """0: these nodes have none, and an engine computes on their processors."""
    memory_bytes: int
    """Memory of one GPU, as GPU Feature Discovery labels its nodes; where that is not known, as
    built in, of which a node reports less. 0: unknown, as for Custom, or no GPU."""
    architecture: str
    """`kubernetes.io/arch` of the nodes; empty: unknown."""
    compute_capability: int = 0
    """CUDA's major version of the GPUs; 0: unknown, or not CUDA's."""
    domain_key: str = ""
    """Node label whose value the nodes of one NVLink domain share; empty: each node is one. Beyond
    a node NVLink needs an IMEX channel in every pod that takes part."""
    vendor: Vendor | None = NVIDIA
    """None: there are no GPUs."""

    @property
    def has_gpus(self) -> bool:
        """Whether engines run on GPUs; else on processors, as one process."""
        return self.vendor is not None

    @property
    def ranks_per_node(self) -> int:
        """Ranks of engines that one node carries: one for each GPU, and one without any."""
        return self.gpus_per_node or 1


PRESETS: Final[Mapping[Accelerator, AcceleratorPreset]] = MappingProxyType(
    {
        # One GB200 node is one NVL72 compute tray: 4 GPUs, 2 Grace CPUs.
        Accelerator.GB200: AcceleratorPreset(
            product="NVIDIA-GB200",
            gpus_per_node=4,
            memory_bytes=189_471 * _MIB,
            architecture="arm64",
            compute_capability=10,
            domain_key=CLIQUE_LABEL,
        ),
        # The memory of GB300 and B200 is that on NVIDIA's product pages.
        Accelerator.GB300: AcceleratorPreset(
            product="NVIDIA-GB300",
            gpus_per_node=4,
            memory_bytes=288 * _GB,
            architecture="arm64",
            compute_capability=10,
            domain_key=CLIQUE_LABEL,
        ),
        Accelerator.B200: AcceleratorPreset(
            product="NVIDIA-B200",
            gpus_per_node=8,
            memory_bytes=192 * _GB,
            architecture="amd64",
            compute_capability=10,
        ),
        Accelerator.H200: AcceleratorPreset(
            product="NVIDIA-H200",
            gpus_per_node=8,
            memory_bytes=143_771 * _MIB,
            architecture="amd64",
            compute_capability=9,
        ),
        Accelerator.H100: AcceleratorPreset(
            product="NVIDIA-H100-80GB-HBM3",
            gpus_per_node=8,
            memory_bytes=81_559 * _MIB,
            architecture="amd64",
            compute_capability=9,
        ),
        Accelerator.A100: AcceleratorPreset(
            product="NVIDIA-A100-SXM4-80GB",
            gpus_per_node=8,
            memory_bytes=81_920 * _MIB,
            architecture="amd64",
            compute_capability=8,
        ),
        Accelerator.L40S: AcceleratorPreset(
            product="NVIDIA-L40S",
            gpus_per_node=8,
            memory_bytes=46_068 * _MIB,
            architecture="amd64",
            compute_capability=8,
        ),
        Accelerator.RTXPRO6000: AcceleratorPreset(
            product="NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
            gpus_per_node=8,
            memory_bytes=97_887 * _MIB,
            architecture="amd64",
            compute_capability=12,
        ),
        # The drivers of the last two leave out the X.
        Accelerator.MI300X: AcceleratorPreset(
            product="AMD_Instinct_MI300X_OAM",
            gpus_per_node=8,
            memory_bytes=192 * _GIB,
            architecture="amd64",
            vendor=AMD,
        ),
        Accelerator.MI325X: AcceleratorPreset(
            product="AMD_Instinct_MI325_OAM",
            gpus_per_node=8,
            memory_bytes=256 * _GIB,
            architecture="amd64",
            vendor=AMD,
        ),
        Accelerator.MI355X: AcceleratorPreset(
            product="AMD_Instinct_MI355_OAM",
            gpus_per_node=8,
            memory_bytes=288 * _GIB,
            architecture="amd64",
            vendor=AMD,
        ),
        # For trying. Whatever processors the nodes have.
        Accelerator.CPU: AcceleratorPreset(
            product="", gpus_per_node=0, memory_bytes=0, architecture="", vendor=None
        ),
    }
)


def preset_for(pool: NodePoolSpec) -> AcceleratorPreset:
    """The preset of a node pool; Custom, NVIDIA's, by `gpusPerNode` alone (default 1)."""
    if pool.accelerator is Accelerator.CUSTOM:
        return AcceleratorPreset(
            product="", gpus_per_node=pool.gpus_per_node or 1, memory_bytes=0, architecture=""
        )
    return PRESETS[pool.accelerator]


def vendor_of(pool: NodePoolSpec) -> Vendor | None:
    """Whose GPUs a node pool has; None: it has none."""
    return preset_for(pool).vendor


_NO_GPUS: Final = [each.value for each, preset in PRESETS.items() if not preset.has_gpus]
_ON_GPUS: Final = f"!(self.nodePool.accelerator in {_NO_GPUS})"
_NEEDS_GPU: Final = [method.value for method in Method if method.row.needs_gpu]
_RANKS: Final = (
    "self.engine.tensorParallelSize * self.engine.pipelineParallelSize "
    "* self.engine.dataParallelSize"
)


def _asks_for_processors(spec: SpeculativeDeploymentSpec) -> bool:
    resources = spec.engine.resources
    return "cpu" in resources.requests or "cpu" in resources.limits


def _is_one_process(spec: SpeculativeDeploymentSpec) -> bool:
    engine = spec.engine
    sizes = (engine.tensor_parallel_size, engine.pipeline_parallel_size, engine.data_parallel_size)
    return set(sizes) == {1}


RULES_WITHOUT_GPUS: Final[tuple[Rule[SpeculativeDeploymentSpec], ...]] = (
    Rule(
        field="nodePool.gpusPerNode",
        message="accelerator CPU is for nodes whose GPUs, if any, are not used: leave out "
        "gpusPerNode.",
        cel=f"{_ON_GPUS} || !has(self.nodePool.gpusPerNode)",
        holds=lambda spec: (
            preset_for(spec.node_pool).has_gpus or spec.node_pool.gpus_per_node is None
        ),
    ),
    Rule(
        field="nodePool.products",
        message="products are names of GPUs, and accelerator CPU uses none: leave them out, and "
        "choose nodes with nodePool.nodeSelector.",
        cel=f"{_ON_GPUS} || !has(self.nodePool.products) || self.nodePool.products.size() == 0",
        holds=lambda spec: preset_for(spec.node_pool).has_gpus or not spec.node_pool.products,
    ),
    Rule(
        field="nodePool.accelerator",
        message="with accelerator CPU an engine is one process on one node: set "
        "engine.tensorParallelSize, pipelineParallelSize and dataParallelSize to 1, or name the "
        "GPUs of the nodes here.",
        cel=f"{_ON_GPUS} || {_RANKS} == 1",
        holds=lambda spec: preset_for(spec.node_pool).has_gpus or _is_one_process(spec),
    ),
    Rule(
        field="engine.resources",
        message="with accelerator CPU an engine needs processors of its own: set "
        "engine.resources.requests.cpu.",
        cel=f"{_ON_GPUS} || (has(self.engine.resources) && ("
        "(has(self.engine.resources.requests) && 'cpu' in self.engine.resources.requests) "
        "|| (has(self.engine.resources.limits) && 'cpu' in self.engine.resources.limits)))",
        holds=lambda spec: preset_for(spec.node_pool).has_gpus or _asks_for_processors(spec),
    ),
    Rule(
        field="draft.method",
        message="this method makes its drafts on a GPU, and accelerator CPU uses none: set "
        "draft.method to ngram, or name the GPUs of the nodes in nodePool.accelerator.",
        cel=f"{_ON_GPUS} || !(self.draft.method in {_NEEDS_GPU})",
        holds=lambda spec: (
            preset_for(spec.node_pool).has_gpus or not spec.draft.method.row.needs_gpu
        ),
    ),
    Rule(
        field="speculation.adaptiveVerification",
        message="adaptive verification replays CUDA graphs, and accelerator CPU has none: set "
        "speculation.adaptiveVerification to Disabled.",
        cel=f"{_ON_GPUS} || self.speculation.adaptiveVerification == 'Disabled'",
        holds=lambda spec: (
            preset_for(spec.node_pool).has_gpus
            or spec.speculation.adaptive_verification is AdaptiveVerification.DISABLED
        ),
    ),
)
"""What an engine on processors cannot be. Part of `fathom.api.cel_rules.RULES`."""
