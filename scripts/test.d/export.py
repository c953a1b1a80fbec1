"""Exports every record there is, and one that is made here, and compares what readers read."""

import csv
import io
import json
import math
import os
import subprocess
import sys

import pyarrow.parquet as parquet
from checks import same, stop
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

SCONCE, WORK = sys.argv[1:3]
RUNS = f"{WORK}/state/sconce/runs"
GIB = 1 << 30
PHASES = ["data", "copy", "forward", "backward", "optimizer", "other"]


def made(ident, seconds, plain=False):
    """A record of two ranks on two cards; the second card comes late, one figure comes and goes."""
    os.makedirs(f"{RUNS}/{ident}", mode=0o700)
    with open(f"{RUNS}/{ident}/events.jsonl", "w") as file:
        def line(t_us, event, **more):
            file.write(json.dumps({"t_us": t_us, "event": event, **more}) + "\n")

        line(0, "started", format=2, id=ident, **{"unix-ms": 1795221240123}, command=["python"],
             folder="/", mode="host", **{"sconce-pid": 1}, limits={}, gpus=[],
             host={"hostname": "sun", "kernel": "6", "cpus": 1, "memory": GIB})
        file.write("not an event\n")
        for second in range(1, seconds + 1):
            t_us = second * 1_000_000
            sample = {"cpu-us": 1_500_000 * second, "memory": GIB + second, "cpus-busy-us": [second, 2**63 + second]}
            if second % 3:
                sample["shm"] = second
            sample["by-process"] = [
                {"pid": 7, "parent": 1, "name": '=cmd|"x",\n', "cpu-us": second, "rss": GIB, "threads": 2}]
            sample["gpus"] = [
                {"index": card, "utilisation-percent": second % 101, "memory-by-pid": {"7": GIB, "8": 1},
                 "throttle": ["sw-power-cap", "hw-slowdown"] if second % 2 else []}
                for card in range(1 + (second > 5))]
            sample["training"] = [
                {"pid": 7 + rank, "rank": rank, "steps": 4 * second, "wall-us": 800_000 * second,
                 "phases": {f"{phase}-us": 1000 * number * second for number, phase in enumerate(PHASES)},
                 "recent": [{"step": 4 * (second - 1) + n, "t-us": t_us, "wall-us": 200_000,
                             "data-us": 50_000, "allocated": GIB} for n in range(1, 5)]}
                for rank in range(2)]
            if plain:
                del sample["by-process"], sample["gpus"], sample["training"]
            line(t_us, "sample", **sample)
        line(seconds * 1_000_000 + 1, "ended", exit={"code": 0}, last={"cpu-us": 1})


def export(run, to, file, *more):
    subprocess.run([SCONCE, "export", "--quiet", run, "--to", to, file, *more], check=True, stderr=subprocess.DEVNULL)


def lines(run):
    for text in open(f"{RUNS}/{run}/events.jsonl"):
        if text.startswith("{"):
            yield json.loads(text)


def expected(started, line):
    """A reading's cells, taken from the record by another way than Sconce's."""
    sample = line["last"] if line["event"] == "ended" else line
    row = {"t_us": line["t_us"], "unix_ms": started["unix-ms"] + line["t_us"] // 1000}
    for key, column in {"cpu-us": "cpu.used_us", "throttled-us": "cpu.throttled_us", "memory": "memory.charged_bytes",
                        "memory-peak": "memory.peak_bytes", "cache": "memory.cache_bytes", "pss": "memory.pss_bytes",
                        "rss": "memory.rss_bytes", "swap": "memory.swap_bytes", "oom-kills": "memory.oom_kills",
                        "shm": "shm.used_bytes", "processes": "tasks.processes", "threads": "tasks.threads",
                        "pids-refused": "tasks.pids_refused", "read-bytes": "disk.read_bytes",
                        "write-bytes": "disk.written_bytes", "received-bytes": "network.received_bytes",
                        "sent-bytes": "network.sent_bytes"}.items():
        row[column] = sample.get(key)
    for number, busy in enumerate(sample.get("cpus-busy-us", [])):
        row[f"host_cpu.{number}.busy_us"] = busy
    for card in sample.get("gpus", []):
        prefix = f"card.{card['index']}"
        row[f"{prefix}.utilisation_percent"] = card.get("utilisation-percent")
        row[f"{prefix}.memory_of_run_bytes"] = sum(card.get("memory-by-pid", {}).values()) or None
        row[f"{prefix}.throttle"] = " ".join(card["throttle"]) if "throttle" in card else None
    for training in sample.get("training", []):
        rank = training.get("rank")
        prefix = f"training.rank{rank}" if rank is not None else f"training.pid{training['pid']}"
        row[f"{prefix}.steps"] = training["steps"]
        for phase in PHASES:
            row[f"{prefix}.phase.{phase}_us"] = training["phases"][f"{phase}-us"]
    return row


def steps(line):
    sample = line["last"] if line["event"] == "ended" else line
    for training in sample.get("training", []):
        for step in training.get("recent", []):
            yield (training["pid"], training.get("rank"), step["step"], step["t-us"], step["wall-us"],
                   step["data-us"], step.get("allocated"))


def check(run):
    record = list(lines(run))
    started, readings = record[0], [line for line in record if line["event"] in ("sample", "ended")]
    rows = [expected(started, line) for line in readings]
    all_steps = [step for line in readings for step in steps(line)]
    file = f"{WORK}/{run}"

    export(run, "parquet", f"{file}.parquet")
    table = parquet.read_table(f"{file}.parquet")
    same("rows of parquet", table.num_rows, len(rows))
    same("the run's name", table.schema.metadata[b"sconce.run"], run.encode())
    columns = table.to_pydict()
    for number, row in enumerate(rows):
        for column, value in row.items():
            same(f"parquet, {column}, row {number}", columns[column][number], value)
    nothing = [name for row in rows[-1:] for name in columns if name not in row and name.startswith("card.")]
    same("a card that is not there", [columns[name][-1] for name in nothing], [None] * len(nothing))

    export(run, "parquet", f"{file}.steps.parquet", "--table", "steps")
    table = parquet.read_table(f"{file}.steps.parquet")
    same("steps of parquet", table.num_rows, len(all_steps))
    if all_steps:
        names = ["pid", "rank", "step", "t_us", "wall_us", "data_us", "allocated_bytes"]
        same("steps of parquet", list(zip(*(table[name].to_pylist() for name in names))), all_steps)

    export(run, "parquet", f"{file}.processes.parquet", "--table", "processes")
    names = parquet.read_table(f"{file}.processes.parquet").to_pydict().get("name", [])
    # A process's name stands in its first reading alone.
    told, wanted = {}, []
    for line in readings:
        for process in line.get("by-process", []) if line["event"] == "sample" else []:
            wanted.append(told.setdefault(process["pid"], process.get("name")))
    same("processes of parquet", names, wanted)

    export(run, "csv", f"{file}.csv")
    seen = list(csv.DictReader(io.StringIO(open(f"{file}.csv", newline="").read())))
    same("rows of csv", len(seen), len(rows))
    for number, row in enumerate(rows):
        for column, value in row.items():
            same(f"csv, {column}, row {number}", seen[number][column], "" if value is None else str(value))

    export(run, "json", f"{file}.json")
    whole = json.load(open(f"{file}.json"))
    same("rows of json", len(whole["readings"]), len(rows))
    for number, row in enumerate(rows):
        for column, value in row.items():
            same(f"json, {column}, row {number}", whole["readings"][number].get(column), value)
    same("steps of json", len(whole["steps"]), len(all_steps))
    same("events of json", [event["event"] for event in whole["events"]],
         [line["event"] for line in record[1:] if line["event"] != "sample"])

    export(run, "perfetto", f"{file}.trace.json")
    events = json.load(open(f"{file}.trace.json"))["traceEvents"]
    for event in events:
        if event["ph"] not in "MXCi" or not isinstance(event["pid"], int) or not isinstance(event["name"], str):
            stop(f"no trace event: {event}")
        if event["ph"] != "M" and event["ts"] < 0 or event["ph"] == "X" and event["dur"] < 0:
            stop(f"a trace event out of time: {event}")
    slices = [event for event in events if event["ph"] == "X" and event["name"] == "step"]
    same("steps of the trace", [(event["args"]["step"], event["ts"] + event["dur"], event["dur"]) for event in slices],
         [(step[2], step[3], step[4]) for step in all_steps])
    memory = [event["args"]["value"] for event in events if event["ph"] == "C" and event["name"] == "memory.charged_bytes"]
    same("memory of the trace", memory, [row["memory.charged_bytes"] for row in rows if row["memory.charged_bytes"] is not None])

    export(run, "tensorboard", f"{file}.tb")
    board = EventAccumulator(f"{file}.tb", size_guidance={"scalars": 0})
    board.Reload()
    tags = set(board.Tags()["scalars"])
    gauges = [column for column in ("memory.charged_bytes", "memory.pss_bytes", "shm.used_bytes", "tasks.threads",
                                    "card.0.utilisation_percent", "card.1.utilisation_percent")]
    for column in gauges:
        tag = column.replace(".", "/")
        wanted = [(row["t_us"] // 1000, row[column]) for row in rows if row.get(column) is not None]
        seen = board.Scalars(tag) if tag in tags else []
        same(f"tensorboard, steps of {tag}", [event.step for event in seen], [step for step, _ in wanted])
        for event, (_, value) in zip(seen, wanted):
            same(f"tensorboard, {tag}", math.isclose(event.value, value, rel_tol=1e-6), True)
    cores = {event.step: event.value for event in board.Scalars("cpu/used_s_per_s")}
    for earlier, later in zip(rows, rows[1:]):
        more = later["cpu.used_us"] - earlier["cpu.used_us"]
        if more >= 0 and later["t_us"] // 1000 != earlier["t_us"] // 1000:
            wanted = more / (later["t_us"] - earlier["t_us"])
            seen = cores.get(later["t_us"] // 1000, -1)
            same("tensorboard, cores", math.isclose(seen, wanted, rel_tol=1e-6), True)
    for rank in {step[1] for step in all_steps}:
        seen = [(event.step, event.value) for event in board.Scalars(f"steps/rank{rank}/wall_us")]
        same("tensorboard, steps", seen, [(step[2], step[4]) for step in all_steps if step[1] == rank])
    print(f"export: {run}: {len(rows)} readings, {len(all_steps)} steps, {len(tags)} tags: as the record says")


made("made-20261121-0034-0001", 40)
# More rows than one group of Parquet has.
made("made-20261121-0034-0002", 17_000, plain=True)
for name in sorted(os.listdir(RUNS)):
    check(name)
