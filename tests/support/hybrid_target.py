"""A target that keeps states for each request: most of its layers are gated delta-nets."""

from fathom.model_facts import ModelConfig, ModelFacts

HYBRID = ModelFacts(
    config=ModelConfig.from_json(
        {
            "architectures": ["Qwen3NextForCausalLM"],
            "model_type": "qwen3_next",
            "num_hidden_layers": 48,
            "full_attention_interval": 4,
            "linear_num_value_heads": 32,
            "num_nextn_predict_layers": 1,
        }
    )
)
