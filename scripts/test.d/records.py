"""Writes records of runs that never were, with training and cards, for the pages' tests:
records.py FOLDER [--long | --going]. Times are chosen so that each has something to see."""

import fcntl
import json
import math
import os
import random
import sys
import time

GIB = 1 << 30


def started(run, began, command, cards=0, **limits):
    names = [{"index": at, "uuid": f"GPU-{at}", "name": "NVIDIA H100 80GB HBM3", "memory": 80 * GIB} for at in range(cards)]
    return {"t_us": 0, "event": "started", "format": 2, "id": run, "name": run.split("-")[0], "unix-ms": began, "command": command,
            "folder": "/home/ada/<b>digits</b>", "mode": "container", "sconce-pid": 1, "limits": limits,
            "host": {"hostname": "sun", "kernel": "6.18.44", "cpus": 16, "memory": 128 * GIB, "cpu-model": "A CPU"}, "gpus": names}


def record(folder, run, seconds, data_share, cards, ranks, command, end={"code": 0}, began=1795221240000, step_us=250_000):
    chance = random.Random(run)
    os.makedirs(f"{folder}/{run}", mode=0o700, exist_ok=True)
    with open(f"{folder}/{run}/events.jsonl", "w") as file:
        put = lambda line: file.write(json.dumps(line, separators=(",", ":")) + "\n")
        put(started(run, began, command, cards, cpus=8.0, memory=32 * GIB))
        for rank in range(ranks):
            put({"t_us": 900_000, "event": "setup", "pid": 100 + rank, "rank": rank, "world-size": ranks, "python": "3.12.1", "torch": "2.15.0",
                 "model": "ResNet<script>alert(1)</script>", "parameters": 25_000_000, "optimizers": ["SGD"]})
        cpu, totals, peak = 0, [[0] * 7 for _ in range(ranks)], 0
        for second in range(1, seconds):
            t_us = second * 1_000_000 + chance.randrange(2000)
            wave = 0.5 + 0.5 * math.sin(second / 40)
            cpu += int(1e6 * (2 + 3 * wave + chance.random()))
            memory = int(GIB * (4 + min(second / 60, 8) + wave))
            peak = max(peak, memory)
            sample = {"t_us": t_us, "event": "sample", "cpu-us": cpu, "throttled-us": second * 900, "memory": memory, "memory-peak": peak,
                      "cache": GIB, "pss": memory - GIB, "rss": memory, "processes": 9, "threads": 60 + second % 5,
                      "read-bytes": second * 30_000_000, "write-bytes": second * 100_000, "shm": 200_000_000,
                      "pressure": {"cpu-some-us": second * 30_000, "io-some-us": second * 90_000}, "gpus": [], "training": []}
            for card in range(cards):
                use = int(max(0, min(100, 100 * (1 - data_share) - 6 * wave + chance.gauss(0, 3))))
                sample["gpus"].append({"index": card, "utilisation-percent": use, "memory-used": 41 * GIB, "memory-by-pid": {str(100 + card): 40 * GIB},
                                       "power-mw": 90_000 + use * 5_000, "energy-mj": second * 400_000, "temperature-c": 40 + use // 4,
                                       "sm-clock-mhz": 1980, "pcie-received-bytes-per-s": 2_000_000_000, "pcie-sent-bytes-per-s": 100_000_000, "throttle": []})
            for rank in range(ranks):
                total = totals[rank]
                steps = 1_000_000 // step_us
                wall = steps * step_us
                data = int(wall * data_share)
                rest = wall - data
                total[0] += steps
                for at, us in enumerate([data, rest // 50, rest * 3 // 10, rest // 2, rest // 10], 1):
                    total[at] += us
                total[6] = total[0] * step_us - sum(total[1:6])
                names = ["data-us", "copy-us", "forward-us", "backward-us", "optimizer-us", "other-us"]
                recent = [{"step": total[0], "t-us": t_us - 5000, "wall-us": int(step_us * chance.uniform(0.95, 1.1)) + (step_us if second % 97 == 0 else 0),
                           "data-us": data // steps, "rss": memory // 2, "allocated": 30 * GIB, "reserved": 38 * GIB}]
                sample["training"].append({"pid": 100 + rank, "rank": rank, "steps": total[0], "wall-us": total[0] * step_us, "phases": dict(zip(names, total[1:])),
                                           "samples": total[0] * 64, "loader": {"batches": total[0], "empty": int(total[0] * data_share), "ready": int(4 * (1 - data_share) * wave)},
                                           "card-memory": {"device": rank, "allocated": 30 * GIB, "reserved": 38 * GIB, "allocated-peak": 36 * GIB, "reserved-peak": 39 * GIB}, "recent": recent})
            put(sample)
        if end:
            put({"t_us": seconds * 1_000_000, "event": "ended", "exit": end, "last": {"cpu-us": cpu, "memory-peak": peak}})


def going(folder, run="going-20261121-0100-0006"):
    """A run that goes on until this program is ended: its file is held as its writer would hold it."""
    os.makedirs(f"{folder}/{run}", exist_ok=True)
    with open(f"{folder}/{run}/.new", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        put = lambda line: (file.write(json.dumps(line) + "\n"), file.flush())
        put(started(run, 1795224240000, ["python", "train.py"], memory=GIB))
        os.rename(f"{folder}/{run}/.new", f"{folder}/{run}/events.jsonl")
        for second in range(1, 600):
            memory = (1 << 28) + second * 1_000_000
            training = {"pid": 7, "steps": second * 10, "wall-us": second * 1_000_000, "phases": {"data-us": second * 100_000, "forward-us": second * 900_000},
                        "samples": second * 640, "loader": {"batches": second * 10, "empty": 0, "ready": 2}, "card-memory": {"allocated": 1, "reserved": 2}}
            put({"t_us": second * 1_000_000, "event": "sample", "cpu-us": second * 900_000, "memory": memory, "memory-peak": memory, "processes": 1, "threads": 2,
                 "training": [training]})
            time.sleep(1)


def main(folder, how=None):
    if how == "--going":
        going(folder)
    elif how == "--long":
        record(folder, "day-20261121-0000-0001", 86_400, 0.1, 8, 8, ["torchrun", "train.py"])
    else:
        several(folder)


def several(folder):
    record(folder, "starved-20261121-0010-0001", 300, 0.45, 1, 1, ["python", "train.py", "--workers", "0"])
    record(folder, "mended-20261121-0020-0002", 240, 0.04, 1, 1, ["python", "train.py", "--workers", "8"], began=1795221840000, step_us=150_000)
    record(folder, "ranks-20261121-0030-0003", 1200, 0.08, 2, 2, ["torchrun", "--nproc-per-node", "2", "train.py", "<img src=x onerror=alert(1)>"], began=1795222440000)
    record(folder, "stopped-20261121-0040-0004", 90, 0.1, 0, 1, ["python", "train.py"], end=None, began=1795223040000)
    os.makedirs(f"{folder}/broken-20261121-0050-0005", exist_ok=True)
    with open(f"{folder}/broken-20261121-0050-0005/events.jsonl", "w") as file:
        file.write("<script>alert(1)</script>\n")


main(*sys.argv[1:])
