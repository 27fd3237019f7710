"""Manifests as tired people write them: what is changed in a good one, and how it is refused."""

from collections.abc import Mapping
from typing import Any, Final

UNKNOWN: Final = "unknown field"
VLLM_CONTAINER: Final = "spec.podTemplate.spec.containers[name: vllm]"

FIELDS: Final = "where an object belongs: write its fields below it, such as"
LINES: Final = "where an object belongs: write lines like `name: value` below it."
ITEMS: Final = "where a list belongs: write each item on a line of its own, after `- `"
ONE: Final = "belongs: write one value."
QUOTES: Final = "is not text: put it in quotes."
WHOLE: Final = "is not a whole number: write one, without quotes."
NEITHER: Final = "is neither true nor false: write one of them, without quotes."
SIZE: Final = "is not a size: write a number and its unit, such as 200Gi."

OTHER_TYPES: Final[Mapping[str, tuple[Any, str]]] = {
    "replicas": ("3", "'3' is text: write 3, without quotes."),
    "model": ("a/b", f"this is text, {FIELDS} id."),
    "model.id": (7, f"7 {QUOTES}"),
    "model.revision": (1.5, f"1.5 {QUOTES}"),
    "model.trustRemoteCode": ("true", "'true' is text: write true, without quotes."),
    "model.tokenSecretRef": ("hf_x", f"this is text, {FIELDS} name."),
    "draft": (["a/b"], f"this is a list, {FIELDS} id."),
    "draft.options": (["a=1"], f"this is a list, {LINES}"),
    "draft.options.prompt_lookup_max": (4, f"4 {QUOTES}"),
    "draft.tensorParallelSize": (1.5, f"1.5 {WHOLE}"),
    "speculation": (3, f"this is a number, {FIELDS} tokens."),
    "speculation.tokens": ("three", f"'three' {WHOLE}"),
    "speculation.maxTokens": (True, f"true {WHOLE}"),
    "speculation.minTokens": ([1], f"this is a list, where a whole number {ONE}"),
    "speculation.depths": ("0,3", f"this is text, {ITEMS}."),
    "speculation.depths.0": (["3"], "'3' is text: write 3, without quotes."),
    "speculation.depths.1": ([3, True], f"true {WHOLE}"),
    "speculation.tuning": ("Auto", f"this is text, {FIELDS} mode."),
    "speculation.tuning.tpotMilliseconds": ("25", "'25' is text: write 25, without quotes."),
    "speculation.tuning.minGainPercent": ({"min": 1}, f"this is an object, where a number {ONE}"),
    "engine": ([{"image": "a"}], f"this is a list, {FIELDS} image."),
    "engine.image": ({"repository": "vllm"}, f"this is an object, where text {ONE}"),
    "engine.tensorParallelSize": ("4", "'4' is text: write 4, without quotes."),
    "engine.args": ("--max-model-len 4096", f"this is text, {ITEMS}."),
    "engine.args.0": ([True], f"true {QUOTES}"),
    "engine.args.1": (["--max-model-len", 4096], f"4096 {QUOTES}"),
    "engine.args.2": (
        ["--seed", "1", None],
        "this is empty, where text belongs: write it, or remove the item.",
    ),
    "engine.env": ({"A": "b"}, f"this is an object, {ITEMS}, beginning with name."),
    "engine.env.0": (["A=b"], f"this is text, {FIELDS} name."),
    "engine.env.0.value": ([{"name": "A", "value": 1}], f"1 {QUOTES}"),
    "engine.resources": ("16", f"this is text, {FIELDS} requests."),
    "engine.resources.limits.memory": (1.5, f"1.5 {QUOTES}"),
    "engine.resources.limits.cpu": ([1], f"this is a list, where text {ONE}"),
    "engine.user": ("root", f"'root' {WHOLE}"),
    "nodePool": ("gpu", f"this is text, {FIELDS} accelerator."),
    "nodePool.products": ("NVIDIA-H100-NVL", f"this is text, {ITEMS}."),
    "nodePool.nodeSelector": ("a=b", f"this is text, {LINES}"),
    "nodePool.nodeSelector.a": (True, f"true {QUOTES}"),
    "nodePool.tolerations": ({"key": "a"}, f"this is an object, {ITEMS}, beginning with key."),
    "cache.accessModes": ("ReadWriteMany", f"this is text, {ITEMS}."),
    "cache.prefetch": ("yes", f"'yes' {NEITHER}"),
    "rollout.paused": (1, f"1 {NEITHER}"),
    "rollout.maxSurge": ("25%", f"'25%' {WHOLE}"),
    "podTemplate": ("x", f"this is text, {LINES}"),
}
"""By field: what stands there, and the sentence. A path with a number is of the list before it."""

BEYOND_BOUNDS: Final[Mapping[str, tuple[Any, str]]] = {
    "speculation.tokens": (-1, "-1 is too small: 1 is the least."),
    "speculation.maxTokens": (65, "65 is too large: 64 is the most."),
    "speculation.tuning.tpotMilliseconds": (0, "0 is too small: it must be more than 0."),
    "speculation.depths": ([], "this list is empty: give it an item, or leave the field out."),
    "nodePool.products": (["x"] * 17, "this list has 17 items: 16 are the most."),
    "model.id": ("", "this is empty: set it."),
    "model.revision": ("x" * 129, "this has 129 characters: 128 are the most."),
    "engine.sharedMemory": ("200 GB", f"'200 GB' {SIZE}"),
    "cache.size": ("800gb", f"'800gb' {SIZE}"),
}

METHODS: Final = (
    "'eagle3', 'eagle', 'mtp', 'draft_model', 'ngram', 'ngram_gpu', 'suffix', 'dflash' or 'dspark'"
)
ACCELERATORS: Final = (
    "'GB200', 'GB300', 'B200', 'H200', 'H100', 'A100', 'L40S', 'RTXPRO6000', 'MI300X', 'MI325X', "
    "'MI355X', 'CPU' or 'Custom'"
)
MODES: Final = "'Auto', 'Advise' or 'Static'"
CHOICES: Final[Mapping[tuple[str, Any], str]] = {
    ("draft.method", "EAGLE3"): f"{METHODS}. Did you mean eagle3?",
    ("draft.method", "eagle-3"): f"{METHODS}. Did you mean eagle3?",
    ("draft.method", "draft-model"): f"{METHODS}. Did you mean draft_model?",
    ("draft.method", "deepseek_mtp"): f"{METHODS}. Did you mean mtp?",
    ("draft.method", "medusa"): f"{METHODS}.",
    ("nodePool.accelerator", "h200"): f"{ACCELERATORS}. Did you mean H200?",
    ("nodePool.accelerator", "NVIDIA-H100-80GB-HBM3"): f"{ACCELERATORS}. Did you mean H100?",
    ("nodePool.accelerator", "custom"): f"{ACCELERATORS}. Did you mean Custom?",
    ("nodePool.accelerator", "mi300x"): f"{ACCELERATORS}. Did you mean MI300X?",
    ("nodePool.computeDomain", "auto"): "'Auto', 'External' or 'Never'. Did you mean Auto?",
    ("nodePool.computeDomain", False): "'Auto', 'External' or 'Never'. Did you mean Never?",
    ("speculation.tuning.mode", "auto"): f"{MODES}. Did you mean Auto?",
    ("speculation.tuning.mode", "Advice"): f"{MODES}. Did you mean Advise?",
    ("speculation.tuning.mode", True): f"{MODES}. Did you mean Auto?",
    ("speculation.tuning.actuation", "live"): "'Auto' or 'Live'. Did you mean Live?",
    ("speculation.tuning.objective", "goodput"): "'Latency', 'Throughput' or 'Goodput'. "
    "Did you mean Goodput?",
    ("speculation.tuning.probing", False): "'Enabled' or 'Disabled'. Did you mean Disabled?",
    ("speculation.drafting", True): "'Enabled', 'Disabled' or 'Canary'. Did you mean Enabled?",
    ("speculation.drafting", 2): "'Enabled', 'Disabled' or 'Canary'.",
    ("speculation.adaptiveVerification", "CANARY"): "'Disabled', 'Enabled' or 'Canary'. "
    "Did you mean Canary?",
    ("metrics.source", "prometheus"): "'Auto', 'Prometheus' or 'Pods'. Did you mean Prometheus?",
    ("metrics.podMonitor", "never"): "'Auto' or 'Never'. Did you mean Never?",
    ("rollout.refresh", "No"): "'Auto' or 'Never'.",
}

PLACES: Final[Mapping[str, str]] = {
    # Misspelt, at every level.
    "spec.speculaton": f"{UNKNOWN}. Did you mean speculation?",
    "spec.draft.methd": f"{UNKNOWN}. Did you mean method?",
    "spec.speculation.tuning.windowSecond": f"{UNKNOWN}. Did you mean windowSeconds?",
    "spec.engine.resources.limit": f"{UNKNOWN}. Did you mean limits?",
    "spec.model.ID": f"{UNKNOWN}. Did you mean id?",
    "spec.metrics.prometheusUrl": f"{UNKNOWN}. Did you mean prometheusURL?",
    "spec.engine.attention_backend": f"{UNKNOWN}. Did you mean attentionBackend?",
    "spec.model.version": f"{UNKNOWN}. Did you mean revision, or spec.engine.version?",
    "spec.frobnicate": f"{UNKNOWN}: remove it, or see `kubectl explain sd.spec`.",
    "spec.cache.frobnicate": f"{UNKNOWN}: remove it, or see `kubectl explain sd.spec.cache`.",
    "frobnicate": f"{UNKNOWN}: remove it, or see `kubectl explain sd`.",
    # Our own, elsewhere.
    "spec.engine.replicas": f"{UNKNOWN}: set spec.replicas instead.",
    "spec.image": f"{UNKNOWN}: set spec.engine.image instead.",
    "spec.env": f"{UNKNOWN}: set spec.engine.env instead.",
    "spec.args": f"{UNKNOWN}: set spec.engine.args instead.",
    "spec.resources": f"{UNKNOWN}: set spec.engine.resources instead.",
    "spec.engine.limits": f"{UNKNOWN}: set spec.engine.resources.limits instead.",
    "spec.nodeSelector": f"{UNKNOWN}: set spec.nodePool.nodeSelector instead.",
    "spec.tolerations": f"{UNKNOWN}: set spec.nodePool.tolerations instead.",
    "spec.tensorParallelSize": f"{UNKNOWN}: set spec.draft.tensorParallelSize or "
    "spec.engine.tensorParallelSize instead.",
    "spec.speculation.method": f"{UNKNOWN}: set spec.draft.method instead.",
    "replicas": f"{UNKNOWN}: set spec.replicas instead.",
    "engine": f"{UNKNOWN}: set spec.engine instead.",
    # Kubernetes'.
    "spec.template": f"{UNKNOWN}. Did you mean podTemplate?",
    "spec.strategy": f"{UNKNOWN}. Did you mean rollout?",
    "spec.engine.strategy": f"{UNKNOWN}: set spec.rollout instead.",
    "spec.affinity": f"{UNKNOWN}: set spec.podTemplate.spec.affinity instead.",
    "spec.serviceAccountName": f"{UNKNOWN}: set spec.podTemplate.spec.serviceAccountName instead.",
    "spec.volumes": f"{UNKNOWN}: set spec.podTemplate.spec.volumes instead.",
    "spec.engine.envFrom": f"{UNKNOWN}: set {VLLM_CONTAINER}.envFrom instead.",
    "spec.engine.livenessProbe": f"{UNKNOWN}: set {VLLM_CONTAINER}.livenessProbe instead.",
    "spec.engine.liveness_probe": f"{UNKNOWN}: set {VLLM_CONTAINER}.livenessProbe instead.",
    "spec.engine.ports": f"{UNKNOWN}: set {VLLM_CONTAINER}.ports instead.",
    "spec.engine.imagePullPolicy": f"{UNKNOWN}: set {VLLM_CONTAINER}.imagePullPolicy instead.",
    "spec.nodePool.affinity": f"{UNKNOWN}: set spec.podTemplate.spec.affinity instead.",
    "spec.engine.volumeMount": f"{UNKNOWN}: set {VLLM_CONTAINER}.volumeMounts instead.",
    "spec.engine.resources.claims": f"{UNKNOWN}: set {VLLM_CONTAINER}.resources.claims instead.",
    "spec.selector": f"{UNKNOWN}: remove it, for pods are selected by labels that the operator "
    "sets.",
    # vLLM's.
    "spec.numSpeculativeTokens": f"{UNKNOWN}: set spec.speculation.tokens instead.",
    "spec.speculation.num_speculative_tokens": f"{UNKNOWN}. Did you mean tokens?",
    "spec.speculation.maxDepth": f"{UNKNOWN}. Did you mean maxTokens?",
    "spec.draft.numSpeculativeTokens": f"{UNKNOWN}: set spec.speculation.tokens instead.",
    "spec.speculative_config": f"{UNKNOWN}: set spec.draft and spec.speculation instead.",
    "spec.engine.tensor_parallel_size": f"{UNKNOWN}. Did you mean tensorParallelSize?",
    "spec.tensor_parallel": f"{UNKNOWN}: set spec.engine.tensorParallelSize instead.",
    "spec.engine.max_model_len": f"{UNKNOWN}: write vLLM's --max-model-len into spec.engine.args.",
    "spec.engine.maxModelLen": f"{UNKNOWN}: write vLLM's --max-model-len into spec.engine.args.",
    "spec.engine.gpu-memory-utilization": f"{UNKNOWN}: write vLLM's --gpu-memory-utilization into "
    "spec.engine.args.",
    "spec.draft.prompt_lookup_max": f"{UNKNOWN}: set spec.draft.options.prompt_lookup_max instead.",
    "spec.engine.model": f"{UNKNOWN}: set spec.model.id instead.",
    "spec.draft.model": f"{UNKNOWN}. Did you mean id?",
    "spec.model.name": f"{UNKNOWN}. Did you mean id?",
    "spec.model.token": f"{UNKNOWN}. Did you mean tokenSecretRef?",
    "spec.cache.path": f"{UNKNOWN}: remove it, or see `kubectl explain sd.spec.cache`.",
    "spec.metrics.url": f"{UNKNOWN}. Did you mean prometheusURL?",
    "spec.metrics.bearerTokenSecretRef": f"{UNKNOWN}: set "
    "spec.metrics.prometheus.bearerTokenSecretRef instead.",
    "spec.metrics.prometheus.token": f"{UNKNOWN}. Did you mean bearerTokenSecretRef?",
    "spec.metrics.prometheus.password": f"{UNKNOWN}. Did you mean basicAuthSecretRef?",
    "spec.name": f"{UNKNOWN}: set metadata.name instead.",
}
"""By the path that is set: the sentence. What is set does not matter."""

NAMES: Final[Mapping[str, str]] = {
    "Kimi-K2": "kimi-k2",
    "kimi_k2.6": "kimi-k2-6",
    "kimi.k2.6": "kimi-k2-6",
    "4bit-kimi": "sd-4bit-kimi",
    "-kimi-": "kimi",
    "Kimi K2 / NVFP4": "kimi-k2-nvfp4",
    "k" * 46: "k" * 45,
    "kimi-" * 10: "-".join(["kimi"] * 9),
    "k" * 44 + "-26": "k" * 44,
}
