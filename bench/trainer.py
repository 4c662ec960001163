"""The trainer beside the codelab's on the same files: images/s, memory, and what more replicas bring on these cores.

    python bench/trainer.py [--images 3670] [--epochs 3] [--rounds 1] [--only NAME …]

Prints a Markdown table; beside each figure, how many times the codelab's it is. The files are 320 x 240 JPEGs cut from
scikit-learn's two sample photographs, by default as many as the codelab's flowers. Each round runs every job once, so
that a machine that slows down meanwhile slows all of them; figures are medians over the rounds.
"""

import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, fields
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
Job = list[tuple[list[str], dict[str, str]]]
"""The command and the variables of each of its processes."""
CODELAB = "codelab (tf_keras, Flatten)"


@dataclass(frozen=True)
class Row:
    """Images a second in the first and (median) later epochs, and the largest process, MiB."""

    first: float
    later: float
    memory_mib: float


def write_images(root: Path, count: int) -> None:
    """Random cuts in five classes, each with a tint of its own so that there is something to learn."""
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_sample_images

    random = np.random.default_rng(0)
    photographs = load_sample_images().images
    for index in range(count):
        label = index % 5
        photograph = photographs[index % len(photographs)]
        top, left = random.integers(0, photograph.shape[0] - 240), random.integers(0, photograph.shape[1] - 320)
        cut = photograph[top : top + 240, left : left + 320].astype(np.float32)
        cut[..., label % 3] *= 0.6 + 0.1 * label
        path = root / f"class{label}" / f"{index:05d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(cut.clip(0, 255).astype(np.uint8)).save(path, quality=90)


def measure(name: str, commands: Job) -> Row:
    """Runs the processes of one job; figures are the first one's, memory is the largest of any."""
    jobs = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for command, env in commands
    ]
    text = jobs[0].stdout.read() if jobs[0].stdout else ""
    memory = []
    for job in jobs:
        _, status, usage = os.wait4(job.pid, 0)
        job.returncode = os.waitstatus_to_exitcode(status)
        memory.append(usage.ru_maxrss / 1024)
        if job.returncode:
            raise SystemExit(f"{name} ended with {job.returncode}:\n{text}")
    rates = [float(rate) for rate in re.findall(r"^epoch .* ([\d.]+) images/s$", text, re.M)]
    return Row(rates[0], statistics.median(rates[1:] or rates), max(memory))


def ours(data: Path, output: Path, epochs: int, replicas: int, *more: str) -> Job:
    arguments = [f"--data={data}", f"--output={output}/model", "--model=flowers", f"--epochs={epochs}"]
    command = [sys.executable, "-m", "trainer.task", *arguments, "--checkpoint-minutes=60", *more]
    if replicas == 1:
        return [(command, {})]
    ports = free_ports(replicas)
    cluster = {"chief": [f"127.0.0.1:{ports[0]}"], "worker": [f"127.0.0.1:{port}" for port in ports[1:]]}
    tasks = [("chief", 0)] + [("worker", index) for index in range(replicas - 1)]
    return [
        (command, {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})})
        for kind, index in tasks
    ]


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for sock in sockets:
        sock.bind(("127.0.0.1", 0))
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


def model_alone(head: str, batches: int = 40) -> Job:
    """The same step on one batch that is already there: no input pipeline can be faster."""
    code = f"""
import time, resource, numpy as np, tensorflow as tf
from trainer.arguments import parse_arguments
from trainer.loop import Steps
from trainer.models import build_model
from trainer.update import Update
from trainer.strategies import create_strategy
strategy = create_strategy("none", None, [], 0)
options = parse_arguments(["--data=x", "--output=y", "--model=flowers", "--head={head}"], {{}})
model = build_model(tf.keras, options, 5)
optimizer = tf.keras.optimizers.Adam(); optimizer.build(model.trainable_variables)
steps = Steps(strategy, Update(tf.keras, model, optimizer))
images = tf.constant(np.random.default_rng(0).integers(0, 255, (32, 180, 180, 3)).astype(np.uint8))
batch = (images, tf.zeros(32, tf.int32), tf.ones(32), tf.constant(32.0), tf.zeros((32, 2), tf.int32))
requests = tf.zeros(2)
for _ in range(3): steps.train(batch, requests)
began = time.perf_counter()
for _ in range({batches}): steps.train(batch, requests)
print(f"epoch 1 {{32 * {batches} / (time.perf_counter() - began):.1f}} images/s")
"""
    return [([sys.executable, "-c", code], {})]


def list_jobs(data: Path, root: Path, epochs: int, images: int) -> dict[str, Job]:
    """What is compared; each leaves what it makes below `root`."""
    codelab = [sys.executable, "bench/trainer_codelab.py", str(data), str(epochs), str(root / "saved")]
    return {
        CODELAB: [([*codelab, str(round(images * 0.8))], {})],
        "ours, Flatten head": ours(data, root / "flatten", epochs, 1, "--head=flatten"),
        "ours": ours(data, root / "one", epochs, 1),
        "ours, 2 replicas": ours(data, root / "two", epochs, 2, "--batch-size=16"),
        "ours, 3 replicas": ours(data, root / "three", epochs, 3, "--batch-size=11"),
        "the model alone, Flatten head": model_alone("flatten"),
        "the model alone": model_alone("pool"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="The trainer beside the codelab's.")
    parser.add_argument("--images", type=int, default=3670)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kickoff-bench-") as directory:
        root, data, epochs = Path(directory), Path(directory) / "images", arguments.epochs
        write_images(data, arguments.images)
        load = os.getloadavg()[0]
        rounds = []
        for number in range(arguments.rounds):
            jobs = list_jobs(data, root / str(number), epochs, arguments.images)
            chosen = {name: jobs[name] for name in arguments.only or jobs}
            rounds.append({name: measure(name, commands) for name, commands in chosen.items()})
        print(f"{arguments.images} images of 320 x 240, {os.cpu_count()} cores, load {load:.1f} before, ", end="")
        print(f"{arguments.rounds} rounds, {time.strftime('%Y-%m-%d')}")
        print("| trainer | first epoch, images/s | later epochs, images/s | peak memory of a process, MiB |")
        print("| --- | ---: | ---: | ---: |")
        rows = {name: median([results[name] for results in rounds]) for name in rounds[0]}
        for name, row in rows.items():
            print(f"| {name} | {format_row(row, rows.get(CODELAB))} |")


def median(rows: list[Row]) -> Row:
    return Row(*(statistics.median(getattr(row, field.name) for row in rows) for field in fields(Row)))


def format_row(row: Row, yardstick: Row | None) -> str:
    cells = []
    for field in fields(Row):
        value = getattr(row, field.name)
        beside = f" ({value / getattr(yardstick, field.name):.2f} x)" if yardstick else ""
        cells.append(f"{value:.0f}{beside}")
    return " | ".join(cells)


if __name__ == "__main__":
    main()
