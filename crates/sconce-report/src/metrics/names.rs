//! Every metric: its name, its kind and what it says, in the order in which they are told.

pub(super) const ALL: &[(&str, &str, &str)] = &[
    ("sconce_build_info", "gauge", "The Sconce that tells this."),
    ("sconce_run_info", "gauge", "A run that goes on."),
    (
        "sconce_run_start_time_seconds",
        "gauge",
        "When it began, seconds since 1970.",
    ),
    (
        "sconce_run_cpu_limit_cores",
        "gauge",
        "CPU time per time that it may use.",
    ),
    (
        "sconce_run_memory_limit_bytes",
        "gauge",
        "Memory that it may use.",
    ),
    ("sconce_run_gpus", "gauge", "Cards that it was given."),
    (
        "sconce_run_cpu_seconds_total",
        "counter",
        "CPU time of all its processes.",
    ),
    (
        "sconce_run_cpu_throttled_seconds_total",
        "counter",
        "Time in which its CPU limit held it back.",
    ),
    (
        "sconce_run_memory_bytes",
        "gauge",
        "Memory charged to it, file cache included.",
    ),
    (
        "sconce_run_memory_peak_bytes",
        "gauge",
        "The most memory that was charged to it.",
    ),
    (
        "sconce_run_memory_cache_bytes",
        "gauge",
        "File cache in its memory.",
    ),
    (
        "sconce_run_proportional_memory_bytes",
        "gauge",
        "Proportional set size of all its processes.",
    ),
    (
        "sconce_run_resident_memory_bytes",
        "gauge",
        "Resident set size of all its processes; shared pages count more than once.",
    ),
    ("sconce_run_swap_bytes", "gauge", "Swap that it holds."),
    ("sconce_run_shm_bytes", "gauge", "In use in its /dev/shm."),
    ("sconce_run_processes", "gauge", "Its processes."),
    ("sconce_run_threads", "gauge", "Its threads."),
    (
        "sconce_run_disk_read_bytes_total",
        "counter",
        "Bytes that it read from block devices.",
    ),
    (
        "sconce_run_disk_written_bytes_total",
        "counter",
        "Bytes that it wrote to block devices.",
    ),
    (
        "sconce_run_network_receive_bytes_total",
        "counter",
        "Bytes that its own network received.",
    ),
    (
        "sconce_run_network_transmit_bytes_total",
        "counter",
        "Bytes that its own network sent.",
    ),
    (
        "sconce_run_oom_kills_total",
        "counter",
        "Its processes that the kernel killed because memory ran out.",
    ),
    (
        "sconce_run_pressure_seconds_total",
        "counter",
        "Time in which some or all of its tasks waited for a resource.",
    ),
    (
        "sconce_run_gpu_memory_bytes",
        "gauge",
        "Memory of a card that its processes hold.",
    ),
    (
        "sconce_train_steps_total",
        "counter",
        "Training steps that ended.",
    ),
    ("sconce_train_step_seconds_total", "counter", "Their time."),
    (
        "sconce_train_phase_seconds_total",
        "counter",
        "Their time by phase, on the host.",
    ),
    (
        "sconce_train_samples_total",
        "counter",
        "Rows of their batches.",
    ),
    (
        "sconce_train_tokens_total",
        "counter",
        "Tokens of their batches.",
    ),
    (
        "sconce_train_flops_per_step",
        "gauge",
        "Floating point operations of a step, where they were counted.",
    ),
    (
        "sconce_train_sharded_steps_total",
        "counter",
        "Steps that FSDP's exchange is timed of.",
    ),
    (
        "sconce_train_sharded_seconds_total",
        "counter",
        "Time of FSDP's all-gathers and reduce-scatters in them.",
    ),
    (
        "sconce_train_sharded_exposed_seconds_total",
        "counter",
        "The part of it that no computation hid.",
    ),
    (
        "sconce_train_loader_batches_total",
        "counter",
        "Batches taken from the loader.",
    ),
    (
        "sconce_train_loader_empty_total",
        "counter",
        "Batches for which none stood ready when they were asked for.",
    ),
    (
        "sconce_train_loader_ready_batches",
        "gauge",
        "Batches that stand ready.",
    ),
    (
        "sconce_train_evaluation_batches_total",
        "counter",
        "Batches that trained nothing.",
    ),
    (
        "sconce_train_evaluation_seconds_total",
        "counter",
        "Their time.",
    ),
    (
        "sconce_torch_allocated_bytes",
        "gauge",
        "Memory of a card that PyTorch's tensors hold.",
    ),
    (
        "sconce_torch_allocated_peak_bytes",
        "gauge",
        "The most that they held.",
    ),
    (
        "sconce_torch_reserved_bytes",
        "gauge",
        "Memory of a card that PyTorch's allocator holds.",
    ),
    (
        "sconce_torch_reserved_peak_bytes",
        "gauge",
        "The most that it held.",
    ),
    (
        "sconce_torch_inactive_split_bytes",
        "gauge",
        "Of it, rests of split blocks that nothing uses.",
    ),
    (
        "sconce_torch_alloc_retries_total",
        "counter",
        "Allocations that first had to give cached memory back.",
    ),
    (
        "sconce_torch_ooms_total",
        "counter",
        "Allocations for which there was no memory.",
    ),
    ("sconce_gpu_info", "gauge", "A card of this machine."),
    (
        "sconce_gpu_utilization_ratio",
        "gauge",
        "Share of the last moments in which a kernel ran.",
    ),
    (
        "sconce_gpu_memory_utilization_ratio",
        "gauge",
        "Share of the last moments in which memory was read or written.",
    ),
    (
        "sconce_gpu_memory_used_bytes",
        "gauge",
        "Memory in use by everyone.",
    ),
    ("sconce_gpu_memory_total_bytes", "gauge", "Its memory."),
    ("sconce_gpu_power_watts", "gauge", "Its draw."),
    (
        "sconce_gpu_energy_joules_total",
        "counter",
        "Energy since its driver was loaded.",
    ),
    (
        "sconce_gpu_temperature_celsius",
        "gauge",
        "Its temperature.",
    ),
    (
        "sconce_gpu_sm_clock_hertz",
        "gauge",
        "Clock of its multiprocessors.",
    ),
    (
        "sconce_gpu_memory_clock_hertz",
        "gauge",
        "Clock of its memory.",
    ),
    (
        "sconce_gpu_pcie_receive_bytes_per_second",
        "gauge",
        "Bytes a second over PCIe to it.",
    ),
    (
        "sconce_gpu_pcie_transmit_bytes_per_second",
        "gauge",
        "Bytes a second over PCIe from it.",
    ),
    (
        "sconce_gpu_clock_held_down",
        "gauge",
        "A reason for which its clocks are held down.",
    ),
    ("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C)."),
    ("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W)."),
    (
        "DCGM_FI_DEV_SM_CLOCK",
        "gauge",
        "SM clock frequency (in MHz).",
    ),
    ("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %)."),
    (
        "DCGM_FI_DEV_FB_USED",
        "gauge",
        "Framebuffer memory used (in MiB).",
    ),
    (
        "DCGM_FI_DEV_FB_FREE",
        "gauge",
        "Framebuffer memory free (in MiB).",
    ),
    (
        "DCGM_FI_DEV_MEM_CLOCK",
        "gauge",
        "Memory clock frequency (in MHz).",
    ),
    (
        "DCGM_FI_DEV_MEM_COPY_UTIL",
        "gauge",
        "Memory utilization (in %).",
    ),
    (
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "counter",
        "Total energy consumption since boot (in mJ).",
    ),
];
