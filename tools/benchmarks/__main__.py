"""`python -m benchmarks`: each benchmark as a command, which `make bench-…` calls."""

import typer

from benchmarks.engine.command import bench_engine_command, bench_parts_command
from benchmarks.gpu.command import bench_gpu_command
from benchmarks.hook.command import bench_hook_command
from benchmarks.job.command import bench_job_command
from benchmarks.pages.command import bench_pages_command
from benchmarks.scale.command import bench_scale_command
from benchmarks.tuner.command import bench_tuner_command

app = typer.Typer(
    name="benchmarks",
    help="What Fathom's parts cost and gain, measured.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("engine")(bench_engine_command)
app.command("parts")(bench_parts_command)
app.command("gpu")(bench_gpu_command)
app.command("hook")(bench_hook_command)
app.command("job")(bench_job_command)
app.command("scale")(bench_scale_command)
app.command("pages")(bench_pages_command)
app.command("tuner")(bench_tuner_command)

if __name__ == "__main__":
    app()
