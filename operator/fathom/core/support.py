"""What the API can say and this Fathom cannot do yet. Refused with a sentence, never guessed."""

from fathom.api.accelerators import preset_for
from fathom.api.problem import Problem
from fathom.api.spec import Actuation, SpeculativeDeploymentSpec


def not_yet_supported(spec: SpeculativeDeploymentSpec) -> Problem | None:
    """The first thing in a valid spec that this Fathom cannot do yet; None: it can do all."""
    engine = spec.engine
    per_node = preset_for(spec.node_pool).gpus_per_node
    gpus = engine.tensor_parallel_size * engine.pipeline_parallel_size
    if gpus > per_node:
        return Problem(
            "spec.engine.tensorParallelSize",
            f"a replica of {gpus} GPUs spans several nodes of {per_node}, which is not supported "
            "yet: keep tensorParallelSize × pipelineParallelSize within one node.",
        )
    if engine.data_parallel_size > 1:
        return Problem(
            "spec.engine.dataParallelSize",
            "several data-parallel engines in one replica are not supported yet: use more "
            "replicas instead.",
        )
    if spec.speculation.tuning.actuation is Actuation.ROLLOUT:
        return Problem(
            "spec.speculation.tuning.actuation",
            "changing depth by new pods is not supported yet: use Auto or Live.",
        )
    return None
