#!/usr/bin/env python3
"""What NVML says of a card in six states: idle, one block that spins (as a rank that waits in a collective does),
thousands of tiny kernels, a training that waits for its data, copies, matrix products. Utilisation is 100 % in the
second; SM activity (GPM, from Hopper on) tells it from the last.
  states.py OUT.json

Needs torch and nvidia-ml-py. Percents but for power (W), clocks (MHz), temperature (°C) and PCIe (MiB/s)."""

import json
import sys
import threading
import time

import pynvml as nvml
import torch

METRICS = {"graphics": 1, "sm": 2, "sm-occupancy": 3, "tensor": 5, "dram-bandwidth": 10, "pcie-tx": 20, "pcie-rx": 21}


def gpm_sample(card):
    sample = nvml.nvmlGpmSampleAlloc()
    nvml.nvmlGpmSampleGet(card, sample)
    return sample


def gpm_metrics(before, after):
    asked = nvml.c_nvmlGpmMetricsGet_t()
    asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(METRICS)
    asked.sample1, asked.sample2 = before, after
    for index, number in enumerate(METRICS.values()):
        asked.metrics[index].metricId = number
    nvml.nvmlGpmMetricsGet(asked)
    values = [(metric.value, metric.nvmlReturn) for metric in asked.metrics[: len(METRICS)]]
    return {name: round(value, 3) if failed == 0 else None for name, (value, failed) in zip(METRICS, values)}


def reading(card):
    before = gpm_sample(card)
    time.sleep(0.5)
    after = gpm_sample(card)
    share = nvml.nvmlDeviceGetUtilizationRates(card)
    row = {
        "utilization": share.gpu,
        "memory-utilization": share.memory,
        "power-w": nvml.nvmlDeviceGetPowerUsage(card) / 1000,
        "sm-mhz": nvml.nvmlDeviceGetClockInfo(card, nvml.NVML_CLOCK_SM),
        "memory-mhz": nvml.nvmlDeviceGetClockInfo(card, nvml.NVML_CLOCK_MEM),
        "celsius": nvml.nvmlDeviceGetTemperature(card, nvml.NVML_TEMPERATURE_GPU),
        "reasons": nvml.nvmlDeviceGetCurrentClocksThrottleReasons(card),
        "gpm": gpm_metrics(before, after),
    }
    nvml.nvmlGpmSampleFree(before)
    nvml.nvmlGpmSampleFree(after)
    return row


def main():
    nvml.nvmlInit()
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    square = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    one = torch.zeros(1, device="cuda")
    big = torch.empty(1 << 30, device="cuda", dtype=torch.uint8)
    other = torch.empty_like(big)

    def repeat(times, kernel):
        for _ in range(times):
            kernel()
        torch.cuda.synchronize()

    def starved():
        repeat(1, lambda: square @ square)
        time.sleep(0.02)

    states = {
        "idle": lambda: time.sleep(0.1),
        "spin": lambda: repeat(1, lambda: torch.cuda._sleep(200_000_000)),
        "tiny": lambda: repeat(2000, lambda: one.add_(1)),
        "starved": starved,
        "copy": lambda: repeat(20, lambda: other.copy_(big)),
        "product": lambda: repeat(20, lambda: square @ square),
    }
    table = {"card": torch.cuda.get_device_name(), "driver": nvml.nvmlSystemGetDriverVersion(), "states": {}}
    table["gpm"] = bool(nvml.nvmlGpmQueryDeviceSupport(card).isSupportedDevice)
    for name, load in states.items():
        ends = threading.Event()

        def work(load=load, ends=ends):
            while not ends.is_set():
                load()

        worker = threading.Thread(target=work)
        worker.start()
        time.sleep(1)
        table["states"][name] = [reading(card) for _ in range(5)]
        ends.set()
        worker.join()
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(table, file, indent=0)


if __name__ == "__main__":
    main()
