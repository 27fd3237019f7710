"""What is said of the engine: its version, and whether its depth is live."""

from support.bench import Bench


async def test_a_live_engine_needs_no_reason(bench: Bench) -> None:
    assert bench.status["engine"] == {"version": "0.32.0", "actuation": "Live"}


async def test_an_engine_whose_depth_is_not_live_says_why() -> None:
    bench = Bench({"engine.image": "vllm/vllm-openai:v0.28.0"})
    await bench.until_ready()
    engine = bench.status["engine"]
    assert (engine["version"], engine["actuation"]) == ("0.28.0", "None")
    assert "0.28.0" in engine["reason"]
