#!/usr/bin/env python3
"""What each NVML call of a reading costs, microseconds on the clock and of this thread's processor time: alone and
beside a matrix product of another process, called back to back and every 0.1 s.
  nvml_cost.py

Needs torch and nvidia-ml-py."""

import subprocess
import sys
import time

import pynvml as nvml

LOAD = """
import time, torch
square = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
end = time.monotonic() + 25
while time.monotonic() < end:
    for _ in range(20):
        square @ square
    torch.cuda.synchronize()
"""
CALLS = 6


def cost(call, pause_s):
    wall = processor = 0.0
    for _ in range(CALLS):
        time.sleep(pause_s)
        began, before = time.monotonic(), time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID)
        try:
            call()
        except nvml.NVMLError:
            return None
        wall += time.monotonic() - began
        processor += time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID) - before
    return [round(1e6 * wall / CALLS), round(1e6 * processor / CALLS)]


def main():
    nvml.nvmlInit()
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    calls = {
        "handle": lambda: nvml.nvmlDeviceGetHandleByIndex(0),
        "utilization": lambda: nvml.nvmlDeviceGetUtilizationRates(card),
        "MIG mode": lambda: nvml.nvmlDeviceGetMigMode(card),
        "processes": lambda: nvml.nvmlDeviceGetComputeRunningProcesses(card),
        "memory": lambda: nvml.nvmlDeviceGetMemoryInfo(card),
        "power": lambda: nvml.nvmlDeviceGetPowerUsage(card),
        "energy": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(card),
        "temperature": lambda: nvml.nvmlDeviceGetTemperature(card, nvml.NVML_TEMPERATURE_GPU),
        "SM clock": lambda: nvml.nvmlDeviceGetClockInfo(card, nvml.NVML_CLOCK_SM),
        "memory clock": lambda: nvml.nvmlDeviceGetClockInfo(card, nvml.NVML_CLOCK_MEM),
        "throttle reasons": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(card),
        "PCIe received": lambda: nvml.nvmlDeviceGetPcieThroughput(card, nvml.NVML_PCIE_UTIL_RX_BYTES),
    }
    print("call, then [clock, processor] back to back and every 0.1 s, µs")
    for state in ("idle", "under load"):
        load = subprocess.Popen([sys.executable, "-c", LOAD]) if state == "under load" else None
        if load:
            time.sleep(7)
        for name, call in calls.items():
            print(state, name, cost(call, 0), cost(call, 0.1), sep="\t", flush=True)
        if load:
            load.kill()
            load.wait()


if __name__ == "__main__":
    main()
