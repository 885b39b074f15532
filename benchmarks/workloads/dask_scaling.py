"""The Dask engine on loopback: speed of 1 and 2 workers, overhead, the driver's memory, a projection."""

import json
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.context import Context
from benchmarks.data import load
from benchmarks.registry import benchmark
from benchmarks.scaling_figure import draw
from benchmarks.scaling_model import Costs, bottleneck, iteration
from benchmarks.workloads.scale import write_folder
from cavity.data import ArraySource
from cavity.data.scaling import Scaling
from cavity.engines.local import LocalEngine
from cavity.engines.threads import Threads, one_blas_thread
from cavity.gp.inducing import default_kernel
from cavity.gp.parameters import ParameterSpace
from cavity.inference.optimizers import Adam
from cavity.inference.rule import ExpectationPropagation
from cavity.inference.sweep import Sweep, SweepOptions
from cavity.inference.trainer import Trainer, make_problem

NODES = (1, 2, 4, 8, 12)
MANY = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
MNIST_ROWS = 60_000
LARGE_ROWS = 1_000_000_000

_DRIVER = """
import json, sys, threading, time, warnings
import psutil
warnings.simplefilter("ignore")
from cavity import DaskSEPClassifier

def main():
    me, peak, over = psutil.Process(), [0], threading.Event()
    def watch():
        while not over.wait(0.05):
            peak[0] = max(peak[0], me.memory_info().rss)
    before = me.memory_info().rss
    threading.Thread(target=watch, daemon=True).start()
    model = DaskSEPClassifier(n_inducing=50, optimizer=None, max_epochs=2, random_state=0, n_jobs=2)
    begin = time.perf_counter()
    model.fit(sys.argv[1], "y")
    over.set()
    print(json.dumps({"seconds": time.perf_counter() - begin, "growth": peak[0] - before}))

if __name__ == "__main__":
    main()
"""


def trainer_of(engine, Z):
    space = ParameterSpace(default_kernel(Z.shape[1], np.sqrt(2.0 * Z.shape[1])), Z)
    options = SweepOptions(damping=0.5, max_leverage=0.5, trace_penalty=1.0)
    return Trainer(make_problem(engine, ExpectationPropagation(), space, 1.0), Adam(0.1), options)


def timed_steps(trainer, repeats):
    """Seconds of each step, and of the sweep inside it; the first is a warm-up."""
    sweep, inside = trainer.engine.run, []

    def timed_sweep(*args, **kwargs):
        begin = time.perf_counter()
        sums = sweep(*args, **kwargs)
        inside.append(time.perf_counter() - begin)
        return sums

    trainer.engine.run = timed_sweep
    state, steps = trainer.init(), []
    with one_blas_thread, np.errstate(all="ignore"):
        for _ in range(repeats + 1):
            begin = time.perf_counter()
            state, _ = trainer.step(state)
            steps.append(time.perf_counter() - begin)
    return np.array(steps[1:]), np.array(inside[1:])


@contextmanager
def cluster(n_workers):
    import distributed

    with (
        distributed.LocalCluster(
            n_workers=n_workers, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as own,
        distributed.Client(own) as client,
    ):
        yield client


def dask_engine(client, folder):
    """An engine over the rows that lie in a folder, which its workers read."""
    import dask.array as da

    from cavity.engines.dask.cluster import Cluster
    from cavity.engines.dask.collections import lazy_table
    from cavity.engines.dask.engine import DaskEngine
    from cavity.engines.dask.shards import ShardedSource

    X, y = (da.from_npy_stack(f"{folder}/{name}", mmap_mode=None) for name in "Xy")
    source = ShardedSource(lazy_table(X, y), Cluster(client))
    return DaskEngine(source, Scaling.identity(source.n_features), 1, Threads(1))


def write_rows(folder, X, y):
    import dask.array as da

    rows = -(-len(X) // 8)
    da.to_npy_stack(f"{folder}/X", da.from_array(X, chunks=(rows, -1)))
    da.to_npy_stack(f"{folder}/y", da.from_array(y, chunks=(rows,)))


def _time_keeping():
    """On a worker: from now on, add up the seconds in which a task hands its state to the cluster."""
    from cavity.engines.dask import worker as tasks

    keep = tasks.put_state if not hasattr(tasks, "_plain_keep") else tasks._plain_keep
    tasks._plain_keep, tasks._keeping = keep, 0.0

    def timed(*args, **kwargs):
        begin = time.perf_counter()
        keep(*args, **kwargs)
        tasks._keeping += time.perf_counter() - begin

    tasks.put_state = timed


def _keeping_seconds():
    from cavity.engines.dask import worker as tasks

    return tasks._keeping


def overhead(client, trainer, repeats):
    """Seconds a sweep takes beyond the computation of its busiest worker, on average."""
    from distributed import get_task_stream

    timed_steps(trainer, 1)
    client.run(_time_keeping)
    with get_task_stream(client=client) as stream:
        _, sweeps = timed_steps(trainer, repeats)
    kept, busy = client.run(_keeping_seconds), {}
    for task in stream.data:
        if task["key"].startswith(("cavity-pass", "cavity-sum")):
            for part in task["startstops"]:
                if part["action"] == "compute":
                    busy.setdefault(task["worker"], 0.0)
                    busy[task["worker"]] += part["stop"] - part["start"]
    computing = max(seconds - kept.get(worker, 0.0) for worker, seconds in busy.items())
    n_sweeps = repeats + 1  # the warm-up is in the stream too
    return float(np.mean(sweeps) - computing / n_sweeps)


def _nothing(x):
    return None


def messages(client):
    """Latency, cost of one more task, and bandwidth of this cluster."""
    client.gather(client.map(_nothing, range(50), pure=False))
    begin = time.perf_counter()
    for i in range(20):
        client.submit(_nothing, i, pure=False).result()
    latency = (time.perf_counter() - begin) / 20
    begin = time.perf_counter()
    client.gather(client.map(_nothing, range(1000), pure=False))
    scheduler = max(1e-5, (time.perf_counter() - begin - latency) / 1000)
    first, *others = sorted(client.nthreads())
    size = 16_000_000
    block = client.submit(np.ones, size // 8, workers=[first], pure=False)
    block.result()
    begin = time.perf_counter()
    client.submit(_nothing, block, workers=[others[0] if others else first], pure=False).result()
    return latency, scheduler, size / max(1e-4, time.perf_counter() - begin - latency)


def costs_of(trainer, client, row_seconds, driver_seconds):
    from cavity.engines.dask.comm import pack

    latency, scheduler, bandwidth = messages(client)
    state = trainer.init()
    prior, m, d = trainer.problem.prior(state.x), *trainer.problem.space.Z.shape
    problem = trainer.problem
    sweep = Sweep(prior, problem.posterior, problem.rule, trainer.options)
    message = trainer.engine.message(sweep)
    sent = len(pack(message).data)
    sums = 8 * (m * (m + 1) // 2 + m) + prior.dtype.itemsize * m * (m + d)
    return Costs(row_seconds, driver_seconds, latency, scheduler, bandwidth, sent, sums)


def speed(context, X, y):
    """Seconds an iteration of the local engine and of 1 and 2 workers, and the model's costs."""
    repeats = 2 if context.quick else 6
    Z = X[:: len(X) // 200][:200].astype(np.float64)
    local = LocalEngine(ArraySource(X, y), Scaling.identity(X.shape[1]), 1, Threads(2))
    seconds = {"local, 2 threads": float(np.median(timed_steps(trainer_of(local, Z), repeats)[0]))}
    costs = lost = None
    with tempfile.TemporaryDirectory(prefix="cavity-benchmark-") as folder:
        write_rows(folder, X, y)
        for n_workers in (1, 2):
            with cluster(n_workers) as client:
                trainer = trainer_of(dask_engine(client, folder), Z)
                steps, sweeps = timed_steps(trainer, repeats)
                seconds[f"{n_workers} workers"] = float(np.median(steps))
                if n_workers == 1:
                    row = float(np.median(sweeps)) / len(X)
                else:
                    lost = overhead(client, trainer, repeats)
                    driver = float(np.median(steps - sweeps))
                    costs = costs_of(trainer, client, row, driver)
    return seconds, costs, lost


def overhead_at(context, m, rows, d):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, d)).astype(np.float32)
    y = (X[:, 0] + rng.standard_normal(rows) > 0).astype(np.int8)
    with tempfile.TemporaryDirectory(prefix="cavity-benchmark-") as folder, cluster(2) as client:
        write_rows(folder, X, y)
        trainer = trainer_of(dask_engine(client, folder), X[:m].astype(np.float64))
        return overhead(client, trainer, 2 if context.quick else 8)


def driver_memory(context):
    millions = 1 if context.quick else 10
    with tempfile.TemporaryDirectory(prefix="cavity-benchmark-") as name:
        script, data = Path(name) / "fit.py", Path(name) / "rows"
        data.mkdir()
        write_folder(data, 1_000_000 * millions)
        script.write_text(_DRIVER)
        command = [sys.executable, str(script), str(data)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {"rows": 1_000_000 * millions, **json.loads(done.stdout.splitlines()[-1])}


def draw_study(repetitions, stem):
    """The figure of the scaling study, from what was recorded."""
    notes = {repetition.label: repetition.extra for repetition in repetitions}
    if "model" not in notes or "speed" not in notes:
        return []
    costs = Costs(**{name: notes["model"][name] for name in Costs.__dataclass_fields__})
    measured = {k: notes["speed"][f"{k} workers"] for k in (1, 2)}
    return draw(stem, (MNIST_ROWS, costs), measured, (LARGE_ROWS, costs), NODES, MANY)


@benchmark(
    "dask",
    "Dask on loopback: 1 and 2 workers, overhead, the driver's memory, scaling model",
    draw=draw_study,
    minutes=6,
)
def run(context: Context) -> None:
    """Speed, overhead and memory of the Dask engine, and the scaling study."""
    if context.noted("speed", "overhead", "driver memory", "model"):
        return
    context.ready()
    data = load("mnist")
    n_rows = 6_000 if context.quick else MNIST_ROWS
    X, y = data.X[:n_rows].astype(np.float32) / 255.0, (data.y[:n_rows] > 0).astype(np.int8)
    seconds, costs, lost = speed(context, X, y)
    one, two, local = seconds["1 workers"], seconds["2 workers"], seconds["local, 2 threads"]
    print("| MNIST odd/even, m=200, batch | seconds an iteration |\n|---|---|")
    for name, value in seconds.items():
        print(f"| {name} | {value:.3f} |")
    print(f"\n2 workers: {one / two:.2f}× one worker, {two / local:.2f}× the local engine's time")
    context.note("speed", {**seconds, "speed_up": one / two, "against_local": two / local})
    wide = overhead_at(context, 1000, 8_192 if context.quick else 32_768, 8)
    print(f"overhead an iteration: {1e3 * lost:.0f} ms at m=200, {1e3 * wide:.0f} ms at m=1000")
    context.note("overhead", {"m=200": lost, "m=1000": wide})
    memory = driver_memory(context)
    print(f"driver: +{memory['growth'] / 1e6:.0f} MB in a fit on {memory['rows']:,} rows", flush=True)
    context.note("driver memory", memory)
    study(context, n_rows, costs, {1: one, 2: two})


def study(context, n_rows, costs, measured):
    """Simulated iterations on more workers, checked against those that were measured."""
    print("\n| workers | simulated s | speed-up | measured s |\n|---|---|---|---|")
    first = iteration(n_rows, 1, costs).seconds
    for k in NODES:
        parts = iteration(n_rows, k, costs)
        seen = f"{measured[k]:.3f}" if k in measured else ""
        print(f"| {k} | {parts.seconds:.3f} | {first / parts.seconds:.1f} | {seen} |")
    errors = {k: iteration(n_rows, k, costs).seconds / s - 1 for k, s in measured.items()}
    print("model against measurement:", ", ".join(f"{100 * e:+.0f} % ({k})" for k, e in errors.items()))
    where = bottleneck(LARGE_ROWS, costs)
    last = iteration(LARGE_ROWS, MANY[-1], costs)
    share = 100 * last.communication / last.seconds
    print(
        f"projected, {LARGE_ROWS:,} such rows on {MANY[-1]:,} workers: {last.seconds:.1f} s an "
        f"iteration, {share:.1f} % of it communication"
    )
    for rows, limit in ((LARGE_ROWS, where), (n_rows, bottleneck(n_rows, costs))):
        print(f"{rows:,} rows: communication outlasts the sweep from {limit or 'no'} workers on")
    context.note("model", {**vars(costs), "errors": {str(k): e for k, e in errors.items()}})
