#!/usr/bin/env python3
"""Every allocation of a training of models.py on a card, with what PyTorch's allocator says at its end.
  allocations.py OUT.json.gz MODEL --batch N […]

Events are [action, address, bytes, stream]; addresses count from the lowest one. Segments are [address, bytes,
stream, pool, [[bytes, state] of each block]]. What the simulator of the allocator is to be held against."""

import gzip
import json
import pathlib
import runpy
import sys

import torch


def main():
    out, sys.argv = sys.argv[1], ["models.py", *sys.argv[2:]]
    torch.cuda.memory._record_memory_history(context=None, max_entries=1_000_000)
    runpy.run_path(str(pathlib.Path(__file__).with_name("models.py")), run_name="__main__")
    snapshot = torch.cuda.memory._snapshot()
    events = snapshot["device_traces"][0]
    base = min(event["addr"] for event in events if event.get("addr"))
    stats = torch.cuda.memory_stats()
    segments = []
    for segment in snapshot["segments"]:
        blocks = [[block["size"], block["state"]] for block in segment["blocks"]]
        place = [segment["address"] - base, segment["total_size"], segment["stream"], segment["segment_type"]]
        segments.append([*place, blocks])
    table = {
        "argv": sys.argv[1:],
        "torch": torch.__version__,
        "card": torch.cuda.get_device_name(),
        "stats": {name: value for name, value in stats.items() if "peak" in name or name.startswith("num_")},
        "segments": segments,
        "events": [[event["action"], event.get("addr", 0) - base, event["size"], event.get("stream", 0)] for event in events],
    }
    with gzip.open(out, "wt", compresslevel=9) as file:
        json.dump(table, file, separators=(",", ":"))


if __name__ == "__main__":
    main()
