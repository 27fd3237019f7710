"""The name of the device, asked of platforms such as vLLM's are."""

import pytest

from fathom_vllm.engine_report import LONGEST_NAME, device_name


class Platform:
    """Its driver calls the device so; an exception is raised."""

    said: object = "NVIDIA GB200"

    def get_device_name(self, device_id: int = 0) -> object:
        if isinstance(self.said, Exception):
            raise self.said
        return f"{self.said}" if device_id == 0 else None


class NvmlCudaPlatform(Platform):
    pass


class RocmPlatform(Platform):
    said = " AMD Instinct MI300X "


class OutOfTree(NvmlCudaPlatform):
    pass


class NoDriver(NvmlCudaPlatform):
    said = RuntimeError("Driver Not Loaded")


class Endless(NvmlCudaPlatform):
    said = "x" * 1000


class NonNvmlCudaPlatform(Platform):
    said = AssertionError("CUDA was started in the API server")


@pytest.mark.parametrize(
    ("platform", "name"),
    [
        (NvmlCudaPlatform(), "NVIDIA GB200"),
        (RocmPlatform(), "AMD Instinct MI300X"),
        (OutOfTree(), "NVIDIA GB200"),
        (NoDriver(), ""),
        (Endless(), "x" * LONGEST_NAME),
        (None, ""),
    ],
    ids=["nvml", "rocm", "derived", "no driver", "endless", "no platform"],
)
def test_the_name_is_the_drivers_or_unknown(platform: object, name: str) -> None:
    assert device_name(platform) == name


def test_a_platform_that_would_start_the_device_is_not_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    assert device_name(NonNvmlCudaPlatform()) == ""
    assert not caplog.text
