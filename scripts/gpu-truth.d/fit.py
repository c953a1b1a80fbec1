#!/usr/bin/env python3
"""Holds `sconce fit` against a card: every model and setting is forecast, then run for three steps.
  fit.py SCONCE OUT.json [--stand-in CARD] [--only WORDS]

Runs with a Python that has torch for CUDA, and needs nothing else: no network, no toolchain. The table goes
to standard output as lines of `kind TAB what TAB seen` for gpu-truth, and whole to OUT.json. With --stand-in a
virtual card takes the real one's place: then both must be equal, which shows that this script works and says
nothing of a card. Exit code 1: something that was said to fit did not, or a pair could not be measured."""

import argparse
import concurrent.futures
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

PAIRS = """
mlp --batch 1024
mlp --batch 8192 --optimizer SGD
mlp --batch 8192 --amp bfloat16
mlp --batch 8192 --checkpoint
resnet18 --batch 64 --optimizer SGD
resnet18 --batch 64 --optimizer SGD --benchmark
resnet18 --batch 128 --amp float16 --channels-last
resnet50 --batch 32 --optimizer SGD
resnet50 --batch 32 --optimizer SGD --benchmark
resnet50 --batch 32
resnet50 --batch 64 --amp bfloat16
resnet50 --batch 64 --amp bfloat16 --channels-last
resnet50 --batch 64 --amp bfloat16 --channels-last --benchmark
resnet50 --batch 64 --checkpoint
vit-b --batch 16
vit-b --batch 32 --amp bfloat16
vit-b --batch 32 --amp float16
vit-b --batch 32 --checkpoint
gpt2 --batch 2
gpt2 --batch 8 --amp bfloat16
gpt2 --batch 8 --amp bfloat16 --checkpoint
gpt2 --batch 4 --optimizer SGD
lstm --batch 64
lstm --batch 64 --amp float16
""".strip().split("\n")

LIMIT_S = 600
# Forecasts take no card: they run beside each other and beside what is measured, on half of the cores.
FORECASTS = max(1, min(6, (os.cpu_count() or 1) // 2))
# What is promised, in percent.
MOST = {"reserved": 2.0, "on-card": 5.0}


def used_bytes():
    """Of the first card, by all that is on it."""
    query = ["nvidia-smi", "-i", "0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(query, capture_output=True, check=True, text=True).stdout.split()[0]) << 20


def forecast(sconce, command, card):
    chosen = ["--gpu", card] if card else []
    call = [sconce, "fit", "-q", "--no-plans", "--host", "--json", *chosen, "--", *command]
    done = subprocess.run(call, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr.strip().split("\n")[-1])
    said = json.loads(done.stdout)
    return said["cards"][0], [doubt["what"] for doubt in said.get("doubts", [])]


def measured(sconce, command, card):
    if card:
        command = [sconce, "run", "-q", "--host", "--virtual-gpu", card, "--", *command]
    before = 0 if card else used_bytes()
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode != 0:
        if "OutOfMemoryError" in done.stderr:
            return None
        raise RuntimeError(done.stderr.strip().split("\n")[-1])
    seen = json.loads(done.stdout.strip().split("\n")[-1])
    return {"allocated": seen["allocated"], "reserved": seen["reserved"], "on-card": seen["used"] - before}


def off(said, seen):
    return round(100 * (said - seen) / seen, 3)


def model_command(words):
    return [sys.executable, str(pathlib.Path(__file__).with_name("models.py")), *words.split()]


def timed_forecast(sconce, words, card):
    began = time.monotonic()
    said, doubts = forecast(sconce, model_command(words), card)
    return said, doubts, time.monotonic() - began


def compare(sconce, words, card, forecasting):
    said, doubts, took = forecasting.result()
    row = {
        "pair": words,
        "verdict": said["verdict"],
        "said": {key: said[f"{key}-bytes"] for key in ("allocated", "reserved", "on-card")},
        "doubts": doubts,
        "forecast-s": round(took, 2),
    }
    row["seen"] = measured(sconce, model_command(words), card)
    row["fits"] = row["seen"] is not None
    if row["seen"]:
        row["off-percent"] = {key: off(row["said"][key], seen) for key, seen in row["seen"].items()}
    return row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sconce")
    parser.add_argument("out")
    parser.add_argument("--stand-in")
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    import torch

    rows, failed = [], False

    def say(kind, what, seen):
        nonlocal failed
        failed = failed or kind == "FAILED"
        print(kind, what, seen, sep="\t", flush=True)

    pool = concurrent.futures.ThreadPoolExecutor(FORECASTS)
    wanted = [words for words in PAIRS if given.only in words]
    forecasts = {words: pool.submit(timed_forecast, given.sconce, words, given.stand_in) for words in wanted}
    for words, forecasting in forecasts.items():
        try:
            row = compare(given.sconce, words, given.stand_in, forecasting)
        except (RuntimeError, subprocess.SubprocessError, OSError, ValueError, KeyError) as error:
            say("FAILED", f"fit: {words}", f"{type(error).__name__}: {error}")
            continue
        rows.append(row)
        wrong = row["verdict"] != "does-not-fit" and not row["fits"]
        seen = ", ".join(f"{key} {value:+} %" for key, value in row.get("off-percent", {}).items())
        say("FAILED" if wrong else "ok", f"fit: {words}", "said to fit and did not" if wrong else seen or "does not fit")
    table = {"format": 1, "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "torch": torch.__version__}
    table |= {"card": given.stand_in or torch.cuda.get_device_name(), "virtual": bool(given.stand_in)}
    table |= {"cudnn": torch.backends.cudnn.version(), "pairs": rows, "median-off-percent": {}}
    for key in ("allocated", "reserved", "on-card"):
        errors = [abs(row["off-percent"][key]) for row in rows if "off-percent" in row]
        if not errors:
            continue
        median = table["median-off-percent"][key] = round(statistics.median(errors), 3)
        print("figure", f"fit: median error of {key}, %", median, sep="\t")
        if key in MOST:
            say("ok" if median <= MOST[key] else "FAILED", f"fit: {key}, median over {len(errors)} pairs", f"{median} %, promised {MOST[key]} %")
    pathlib.Path(given.out).write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
