"""The nodes of a local cluster: GB200 trays that are not there, and one plain machine."""

from local_cluster.kubelet.config import NodeConfig

GPUS_PER_TRAY = 4
# What NVIDIA's feature discovery writes on a GB200 tray.
GPU_PRODUCT = "NVIDIA-GB200"
GPU_MEMORY_MIB = 189471
MAX_PODS = "110"


def local_nodes(gpu_nodes: int) -> tuple[NodeConfig, ...]:
    """So many trays of one NVLink domain, and a node for everything else."""
    trays = (_tray(number) for number in range(gpu_nodes))
    return (_plain_node(), *trays)


def _tray(number: int) -> NodeConfig:
    name = f"gb200-{number}"
    return NodeConfig(
        name=name,
        architecture="arm64",
        labels={
            "kubernetes.io/arch": "arm64",
            "kubernetes.io/os": "linux",
            "kubernetes.io/hostname": name,
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.product": GPU_PRODUCT,
            "nvidia.com/gpu.count": str(GPUS_PER_TRAY),
            "nvidia.com/gpu.memory": str(GPU_MEMORY_MIB),
            "nvidia.com/gpu.clique": "local.0",
        },
        taints=(
            {"key": "kubernetes.io/arch", "value": "arm64", "effect": "NoSchedule"},
            {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
        ),
        capacity={
            "cpu": "144",
            "memory": "960Gi",
            "ephemeral-storage": "1Ti",
            "pods": MAX_PODS,
            "nvidia.com/gpu": str(GPUS_PER_TRAY),
        },
    )


def _plain_node() -> NodeConfig:
    return NodeConfig(
        name="cpu-0",
        labels={
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "kubernetes.io/hostname": "cpu-0",
        },
        capacity={
            "cpu": "16",
            "memory": "64Gi",
            "ephemeral-storage": "100Gi",
            "pods": MAX_PODS,
        },
    )
