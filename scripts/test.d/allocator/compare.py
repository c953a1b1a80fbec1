"""Holds what the simulator answered against what the real allocator did: compare.py FOLDER [all]

With `all`, several streams used the memory, and the order in which PyTorch looks at their events is
that of a hash table. Sums and peaks of what is split and free depend on it, and are set aside.
"""

import json
import sys


def lines(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def compared(name, used_by_all):
    return not (used_by_all and name.startswith("inactive_split") and not name.endswith(".current"))


def main():
    folder, used_by_all = sys.argv[1], "all" in sys.argv[2:]
    program, real = lines(f"{folder}/program.jsonl"), lines(f"{folder}/real.jsonl")
    simulated = {answer.get("line"): answer for answer in lines(f"{folder}/simulated.jsonl")}
    addresses = failures = counters = 0
    for number, (call, answer) in enumerate(zip(program, real, strict=True), 1):
        said = simulated.get(number, {})
        if call["op"] == "alloc":
            same = ("error" in answer) == ("error" in said) and answer.get("address") == said.get("address")
            addresses += 1
            failures += "error" in answer
            if not same:
                sys.exit(f"line {number}: {call}\n  real      {answer}\n  simulated {said}")
        elif call["op"] == "stats":
            stats = said["stats"]
            shared = [name for name in answer if name in stats and compared(name, used_by_all)]
            wrong = {name: (answer[name], stats[name]) for name in shared if answer[name] != stats[name]}
            counters += len(shared)
            if len(shared) < 80 or wrong:
                sys.exit(f"line {number}: counters (real, simulated): {wrong}, of {len(shared)}")
    print(f"{addresses} addresses and {counters} counters are the same; {failures} requests found no memory")


main()
