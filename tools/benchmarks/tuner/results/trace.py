"""What `--trace` writes: our tuner's windows beside the clairvoyant's, and every decision.

Besides, each world that was drawn at random, as a file to change and to run again.
"""

import csv
from pathlib import Path

import numpy as np
import tomli_w

from benchmarks.tuner.course.course import Bools, Ints, WorldCourse, bucket_index
from benchmarks.tuner.outcome import CourseOutcome
from benchmarks.tuner.simulate import CLAIRVOYANT, Campaign
from benchmarks.tuner.worlds.world import SimulatedWorld
from fathom.engine.depth import DepthDocument, summary
from fathom_vllm.buckets import last_batch


def write_trace(folder: Path, campaign: Campaign, policy: str) -> None:
    """Two files for one world, seed and policy: `…-windows.csv` and `…-decisions.csv`.

    Raises:
        OSError: a file cannot be written, for want of the folder, say.
    """
    own, best = campaign.outcomes[policy], campaign.outcomes[CLAIRVOYANT]
    stem = f"{campaign.course.world.name}-{campaign.course.seed}-{policy}"
    with (folder / f"{stem}-windows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["minute", "own", "clairvoyant", "fraction", "lost_share", "batches", "depths", "best"]
        )
        writer.writerows(_window_rows(campaign.course, own, best))
    with (folder / f"{stem}-decisions.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["minute", "action", "reason", "depths", "overrides", "message"])
        writer.writerows(
            [f"{e.at_s / 60:.2f}", e.action, e.reason, *_depths(e.document), e.message]
            for e in own.log
        )


def write_world(folder: Path, world: SimulatedWorld) -> None:
    """The world's file; what it leaves out is as the format's defaults say.

    Raises:
        OSError: the file cannot be written.
    """
    parts = world.model_dump(mode="json", exclude={"name"}, exclude_defaults=True)
    (folder / f"{world.name}.toml").write_text(tomli_w.dumps(parts))


def _depths(document: DepthDocument) -> tuple[str, str]:
    overrides = (f"{pod}={summary(each)}" for pod, each in document.pods.items())
    return summary(document.schedule), "; ".join(overrides)


def _window_rows(
    course: WorldCourse, own: CourseOutcome, best: CourseOutcome
) -> list[list[object]]:
    """`depths` and `best` name each bucket in use by its largest batch, `16:4`."""
    clock, buckets = course.clock, bucket_index(own.batch)
    total = best.tokens.sum()
    rows: list[list[object]] = []
    for window in range(clock.windows):
        ticks = slice(window * clock.ticks_per_window, (window + 1) * clock.ticks_per_window)
        made, possible = own.tokens[ticks].sum(), best.tokens[ticks].sum()
        bucket, busy = buckets[ticks], own.batch[ticks] > 0
        rows.append(
            [
                f"{ticks.start * clock.tick_s / 60:.1f}",
                f"{made:.0f}",
                f"{possible:.0f}",
                f"{made / possible:.4f}" if possible else "",
                f"{(possible - made) / total:.6f}",
                " ".join(str(each) for each in own.batch[ticks].mean(axis=0).round(1)),
                _by_bucket(bucket, own.depth[ticks], busy),
                _by_bucket(bucket, best.depth[ticks], busy),
            ]
        )
    return rows


def _by_bucket(bucket: Ints, depth: Ints, busy: Bools) -> str:
    found = [
        (last_batch(int(each)), np.unique(depth[(bucket == each) & busy]))
        for each in np.unique(bucket[busy])
    ]
    return " ".join(f"{largest}:{'|'.join(str(k) for k in depths)}" for largest, depths in found)
