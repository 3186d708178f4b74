"""The speed of the studio with many runs: writes runs with invented numbers, opens the page in a browser, and measures.

python examples/studio_at_scale.py [--runs 200] [--tasks 51] [--chromium /usr/bin/chromium]
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
import yaml
from safetensors.numpy import save_file

BASE = 50
OPTIONS = {
    "dataset": "cifar100",
    "base": BASE,
    "increment": 1,
    "order": "paper:0",
    "memory_per_class": 20,
    "epochs": 160,
    "lambda_c": 3.0,
}


def make_run(folder, tasks=51, total=None, method="podnet", seed=1, epochs=180, images=5, base=BASE, **options):
    """A run of invented predictions, all its files consistent with them; `total` tasks are expected."""
    draws = np.random.default_rng(seed)
    (folder / "predictions").mkdir(parents=True)
    config = {"method": method, "seed": seed, **OPTIONS, "base": base, **options}
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    environment = {"date": "2026-11-16T12:00:00+00:00", "command": "podnet run", "cores": 2}
    (folder / "environment.json").write_text(json.dumps([environment]))
    history = {"cnn": [], "nme": []}
    with open(folder / "results.jsonl", "w") as results, open(folder / "epochs.jsonl", "w") as lines:
        for task in range(tasks):
            for epoch in range(epochs):
                lines.write(json.dumps(_epoch(task, total or tasks, epoch, epochs)) + "\n")
            results.write(json.dumps(_result(folder, task, total or tasks, images, base, draws, history)) + "\n")
    return folder


def _epoch(task, tasks, epoch, epochs):
    losses = {"nca": 2 / (epoch + 1), "pod": 0.3, "pod_flat": 0.2}
    return {
        "task": task,
        "tasks": tasks,
        "stage": 0,
        "phase": "train",
        "epoch": epoch,
        "epochs": epochs,
        "rate": 0.1,
        "losses": losses,
        "seconds": 1.5,
    }


def _result(folder, task, tasks, images, base, draws, history):
    seen = base + task
    targets = np.repeat(np.arange(seen), images)
    task_of = np.maximum(0, targets - base + 1)
    line = {"task": task, "tasks": tasks, "seen": seen, "memory": 20 * seen}
    line["new_classes"] = [f"class {i}" for i in (range(base) if task == 0 else [seen - 1])]
    tensors = {"targets": targets}
    measures = ("accuracy", "accuracy_top5", "average_incremental_accuracy", "forgetting", "old_accuracy")
    line |= {measure: {} for measure in (*measures, "new_accuracy", "accuracy_per_task")}
    for inference, skill in (("cnn", 0.75), ("nme", 0.72)):
        right = draws.random(len(targets)) < skill - 0.005 * task
        tensors[inference] = np.where(right, targets, draws.integers(0, seen, len(targets)))
        hit = 100.0 * (tensors[inference] == targets)
        row = [float(hit[task_of == t].mean()) for t in range(task + 1)]
        history[inference].append((float(hit.mean()), row))
        best = [max(r[t] for _, r in history[inference] if len(r) > t) for t in range(task)]
        line["accuracy"][inference] = line["accuracy_top5"][inference] = float(hit.mean())
        line["average_incremental_accuracy"][inference] = float(np.mean([a for a, _ in history[inference]]))
        line["forgetting"][inference] = float(np.mean(np.array(best) - row[:task])) if task else 0.0
        line["old_accuracy"][inference] = float(hit[task_of < task].mean()) if task else None
        line["new_accuracy"][inference] = float(hit[task_of == task].mean())
        line["accuracy_per_task"][inference] = row
    save_file(tensors, folder / "predictions" / f"task-{task:04d}.safetensors")
    line["seconds"] = {"grow": 0.1, "train": 240.0, "herd": 2.0, "means": 1.0, "evaluate": 2.0}
    return line


def start(folder, *options):
    """A server, and its address."""
    command = [sys.executable, "-m", "podnet", "studio", str(folder), "--no-browser", "--port", "0", *options]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for line in server.stdout:
        if line.startswith("http://"):
            return server, line.strip()
    raise SystemExit("the server did not start")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--tasks", type=int, default=51)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    known = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for i in range(known.runs):
            method = ("podnet", "ucir", "icarl", "bic")[i % 4]
            make_run(folder / f"{method}-{i:03d}", known.tasks, method=method, seed=i, lambda_c=float(i // 40))
        print(
            f"{known.runs} runs of {known.tasks} tasks, {sum(f.stat().st_size for f in folder.rglob('*')) / 1e6:.0f} MB"
        )
        began = time.perf_counter()
        server, address = start(folder)
        try:
            urllib.request.urlopen(f"{address}api/runs").read()
            print(f"from the command to the first list of runs: {time.perf_counter() - began:.2f} s")
            _in_a_browser(address, known)
        finally:
            server.terminate()


def _in_a_browser(address, known):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=known.chromium, args=["--no-sandbox"])

        def opened(view, shown):
            """A new page with an empty cache, the only one, and the seconds until it shows something."""
            for context in browser.contexts:
                context.close()
            page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
            began = time.perf_counter()
            page.goto(f"{address}{view}")
            shown(page).wait_for()
            return page, time.perf_counter() - began

        def rows(page):
            return page.locator(".runs tbody tr").nth(known.runs - 1)

        def chart(page):
            return page.locator(".plot[data-drawn=yes]").first

        times = [opened("", rows)[1] for _ in range(5)]
        print(f"first view, all {known.runs} rows: {', '.join(f'{t:.2f}' for t in times)} s")
        page, _ = opened("", rows)
        keys = page.eval_on_selector_all(".runs tbody tr", "rows => rows.map(row => row.dataset.id)")
        chosen = ",".join(random.Random(0).sample(keys, min(20, len(keys))))
        for name, view in (("comparison of 20 runs", f"#/compare/{chosen}"), ("one run", f"#/run/{keys[0]}")):
            page, _ = opened("", rows)
            page.wait_for_timeout(2000)  # a person looks at the list first
            began = time.perf_counter()
            page.goto(f"{address}{view}")
            chart(page).wait_for()
            warm = time.perf_counter() - began
            print(f"{name}: {warm:.2f} s from the list, {opened(view, chart)[1]:.2f} s by its address in a new page")
        browser.close()


if __name__ == "__main__":
    main()
