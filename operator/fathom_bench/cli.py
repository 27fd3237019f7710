"""`fathom local`: the local cluster's commands, and beside them the benchmarks.

It stands here because the benchmarks import the local cluster, which knows nothing of them.
"""

import typer

from fathom_bench.engine.command import bench_engine_command, bench_parts_command
from fathom_bench.gpu.command import bench_gpu_command
from fathom_bench.hook.command import bench_hook_command
from fathom_bench.job.command import bench_job_command
from fathom_bench.pages.command import bench_pages_command
from fathom_bench.scale.command import bench_scale_command
from fathom_bench.tuner.command import bench_tuner_command
from fathom_local.cli import app as cluster

app = typer.Typer(name="local", help="A Kubernetes cluster on this machine.", no_args_is_help=True)
app.add_typer(cluster)
app.command("bench-engine")(bench_engine_command)
app.command("bench-parts")(bench_parts_command)
app.command("bench-gpu")(bench_gpu_command)
app.command("bench-hook")(bench_hook_command)
app.command("bench-job")(bench_job_command)
app.command("bench-scale")(bench_scale_command)
app.command("bench-pages")(bench_pages_command)
app.command("bench-tuner")(bench_tuner_command)
