//! Lines of a record as rows: each figure with its name, its unit in it.
//!
//! Structs are taken apart field by field, so that a field that is added to the schema is not
//! forgotten here.

use std::io;

use sconce_schema::Bytes;
use sconce_schema::event::{
    GpuSample, Pressure, ProcessSample, RecordEvent, RecordLine, RunStarted, Sample,
};
use sconce_schema::training::{
    CollectiveTimes, DataLoaderCounters, EvaluationCounters, GpuAllocatorCounters, PhaseTimes,
    TrainingSample, TrainingStep,
};

use super::ExportTable;
use super::cells::RowSink;

/// The reading of a line, where it has one.
pub(super) fn sample_of_line(line: &RecordLine) -> Option<&Sample> {
    match &line.event {
        RecordEvent::Sample(sample) => Some(sample),
        RecordEvent::Ended(ended) => Some(&ended.last),
        _ => None,
    }
}

/// Gives the rows that a line has in a table.
pub(super) fn write_rows(
    table: ExportTable,
    started: &RunStarted,
    line: &RecordLine,
    cells: &mut dyn RowSink,
) -> io::Result<()> {
    let Some(sample) = sample_of_line(line) else {
        return Ok(());
    };
    match table {
        ExportTable::Readings => reading_row(started, line.t_us, sample, cells)?,
        ExportTable::Steps => {
            for training in &sample.training {
                for step in &training.recent {
                    step_row(started, training, step, cells)?;
                }
            }
        }
        ExportTable::Processes => {
            for process in &sample.by_process {
                let held = (sample.gpus.iter())
                    .filter_map(|card| card.memory_by_pid.get(&process.pid))
                    .fold(None, |sum: Option<u64>, bytes| {
                        Some(sum.unwrap_or(0).saturating_add(bytes.0))
                    });
                process_row(started, line.t_us, process, held, cells)?;
            }
        }
    }
    Ok(())
}

/// Gives a row with every column that a table has whatever the record: a table without rows has its
/// names.
pub(super) fn declare_columns(
    table: ExportTable,
    started: &RunStarted,
    cells: &mut dyn RowSink,
) -> io::Result<()> {
    match table {
        ExportTable::Readings => reading_row(started, 0, &Sample::default(), cells),
        ExportTable::Steps => step_row(
            started,
            &TrainingSample::default(),
            &TrainingStep::default(),
            cells,
        ),
        ExportTable::Processes => process_row(started, 0, &ProcessSample::default(), None, cells),
    }
}

fn reading_row(
    started: &RunStarted,
    t_us: u64,
    sample: &Sample,
    cells: &mut dyn RowSink,
) -> io::Result<()> {
    when(started, t_us, cells);
    write_sample_figures(sample, cells);
    cells.end()
}

fn step_row(
    started: &RunStarted,
    training: &TrainingSample,
    step: &TrainingStep,
    cells: &mut dyn RowSink,
) -> io::Result<()> {
    when(started, step.t_us, cells);
    cells.gauge("pid", Some(training.pid.into()));
    cells.gauge("rank", training.rank.map(Into::into));
    cells.gauge("cell", training.cell.map(Into::into));
    cells.gauge("step", Some(step.step));
    step_figures("", step, cells);
    cells.end()
}

fn process_row(
    started: &RunStarted,
    t_us: u64,
    process: &ProcessSample,
    card_memory: Option<u64>,
    cells: &mut dyn RowSink,
) -> io::Result<()> {
    when(started, t_us, cells);
    process_figures(process, cells);
    cells.gauge("card_memory_bytes", card_memory);
    cells.end()
}

/// The columns that every row begins with.
fn when(started: &RunStarted, t_us: u64, cells: &mut dyn RowSink) {
    cells.gauge("t_us", Some(t_us));
    cells.gauge("unix_ms", Some(started.unix_ms.saturating_add(t_us / 1000)));
}

fn bytes(size: Option<Bytes>) -> Option<u64> {
    size.map(|size| size.0)
}

/// All figures of a reading but its time, its processes and its steps.
pub(super) fn write_sample_figures(sample: &Sample, cells: &mut dyn RowSink) {
    let Sample {
        cpu_us,
        throttled_us,
        memory,
        memory_peak,
        cache,
        pss,
        rss,
        processes,
        threads,
        read_bytes,
        write_bytes,
        shm,
        oom_kills,
        pids_refused,
        pressure,
        swap,
        cpus_busy_us,
        received_bytes,
        sent_bytes,
        by_process: _,
        gpus,
        training,
        // Of what the figures are, and no figure: `report` says it.
        training_left_out: _,
        nccl: _,
    } = sample;
    cells.counter("cpu.used_us", *cpu_us);
    cells.counter("cpu.throttled_us", *throttled_us);
    cells.gauge("memory.charged_bytes", bytes(*memory));
    cells.gauge("memory.peak_bytes", bytes(*memory_peak));
    cells.gauge("memory.cache_bytes", bytes(*cache));
    cells.gauge("memory.pss_bytes", bytes(*pss));
    cells.gauge("memory.rss_bytes", bytes(*rss));
    cells.gauge("memory.swap_bytes", bytes(*swap));
    cells.counter("memory.oom_kills", *oom_kills);
    cells.gauge("shm.used_bytes", bytes(*shm));
    cells.gauge("tasks.processes", processes.map(Into::into));
    cells.gauge("tasks.threads", threads.map(Into::into));
    cells.counter("tasks.pids_refused", *pids_refused);
    cells.counter("disk.read_bytes", *read_bytes);
    cells.counter("disk.written_bytes", *write_bytes);
    cells.counter("network.received_bytes", *received_bytes);
    cells.counter("network.sent_bytes", *sent_bytes);
    let Pressure {
        cpu_some_us,
        memory_some_us,
        memory_full_us,
        io_some_us,
        io_full_us,
    } = pressure.unwrap_or_default();
    cells.counter("pressure.cpu_some_us", cpu_some_us);
    cells.counter("pressure.memory_some_us", memory_some_us);
    cells.counter("pressure.memory_full_us", memory_full_us);
    cells.counter("pressure.io_some_us", io_some_us);
    cells.counter("pressure.io_full_us", io_full_us);
    for (cpu, busy_us) in cpus_busy_us.iter().enumerate() {
        cells.counter(&format!("host_cpu.{cpu}.busy_us"), Some(*busy_us));
    }
    for card in gpus {
        card_figures(card, cells);
    }
    for process in training {
        training_figures(process, cells);
    }
}

fn card_figures(card: &GpuSample, cells: &mut dyn RowSink) {
    let GpuSample {
        index,
        utilisation_percent,
        memory_utilisation_percent,
        memory_used,
        memory_by_pid,
        power_mw,
        energy_mj,
        temperature_c,
        sm_clock_mhz,
        memory_clock_mhz,
        pcie_received_bytes_per_s,
        pcie_sent_bytes_per_s,
        nvlink_received_bytes,
        nvlink_sent_bytes,
        xids,
        throttle,
        instances,
    } = card;
    let name = |figure: &str| format!("card.{index}.{figure}");
    let small = |value: &Option<u32>| value.map(u64::from);
    cells.gauge(&name("utilisation_percent"), small(utilisation_percent));
    let share = small(memory_utilisation_percent);
    cells.gauge(&name("memory_utilisation_percent"), share);
    cells.gauge(&name("memory_used_bytes"), bytes(*memory_used));
    let run = (!memory_by_pid.is_empty())
        .then(|| (memory_by_pid.values()).fold(0_u64, |sum, bytes| sum.saturating_add(bytes.0)));
    cells.gauge(&name("memory_of_run_bytes"), run);
    cells.gauge(&name("power_mw"), small(power_mw));
    cells.counter(&name("energy_mj"), *energy_mj);
    cells.gauge(&name("temperature_c"), small(temperature_c));
    cells.gauge(&name("sm_clock_mhz"), small(sm_clock_mhz));
    cells.gauge(&name("memory_clock_mhz"), small(memory_clock_mhz));
    cells.gauge(
        &name("pcie_received_bytes_per_s"),
        *pcie_received_bytes_per_s,
    );
    cells.gauge(&name("pcie_sent_bytes_per_s"), *pcie_sent_bytes_per_s);
    cells.counter(&name("nvlink_received_bytes"), *nvlink_received_bytes);
    cells.counter(&name("nvlink_sent_bytes"), *nvlink_sent_bytes);
    let xids: Vec<String> = xids.iter().map(u64::to_string).collect();
    let xids = (!xids.is_empty()).then(|| xids.join(" "));
    cells.text(&name("xids"), xids.as_deref());
    let throttle = throttle.as_ref().map(|reasons| reasons.join(" "));
    cells.text(&name("throttle"), throttle.as_deref());
    for instance in instances {
        let name = name(&format!("instance.{}.memory_used_bytes", instance.uuid));
        cells.gauge(&name, bytes(instance.memory_used));
    }
}

/// `rank0`, `group2.rank0`, or `pid4123` where it has no rank, `pid4123.cell5` in a notebook.
pub(super) fn process_label(training: &TrainingSample) -> String {
    match (training.rank, training.group) {
        (Some(rank), None) => format!("rank{rank}"),
        (Some(rank), Some(group)) => format!("group{group}.rank{rank}"),
        (None, _) => match training.cell {
            Some(cell) => format!("pid{}.cell{cell}", training.pid),
            None => format!("pid{}", training.pid),
        },
    }
}

fn training_figures(training: &TrainingSample, cells: &mut dyn RowSink) {
    let TrainingSample {
        pid,
        rank: _,
        group: _,
        cell: _,
        steps,
        wall_us,
        phases,
        on_card,
        on_card_steps,
        samples,
        tokens,
        flops_per_step,
        loader,
        evaluation,
        card_memory,
        exchange,
        recent: _,
        heap: _,
        phase,
    } = training;
    let who = process_label(training);
    let name = |figure: &str| format!("training.{who}.{figure}");
    cells.gauge(&name("pid"), Some((*pid).into()));
    cells.counter(&name("steps"), Some(*steps));
    cells.text(&name("phase_now"), phase.as_deref());
    cells.counter(&name("wall_us"), Some(*wall_us));
    phase_figures(&name("phase"), Some(phases), cells);
    cells.counter(&name("on_card.steps"), *on_card_steps);
    phase_figures(&name("on_card"), on_card.as_ref(), cells);
    cells.counter(&name("samples"), *samples);
    cells.counter(&name("tokens"), *tokens);
    cells.gauge(&name("flops_per_step"), *flops_per_step);

    let taken = loader.as_ref();
    let whole = |get: fn(&DataLoaderCounters) -> Option<u64>| taken.and_then(get);
    cells.counter(
        &name("loader.batches"),
        whole(|loader| Some(loader.batches)),
    );
    cells.counter(&name("loader.empty"), whole(|loader| loader.empty));
    let ready = whole(|loader| loader.ready.map(Into::into));
    cells.gauge(&name("loader.ready"), ready);

    let loop_ = evaluation.as_ref();
    let whole = |get: fn(&EvaluationCounters) -> u64| loop_.map(get);
    cells.counter(&name("evaluation.batches"), whole(|it| it.batches));
    cells.counter(&name("evaluation.wall_us"), whole(|it| it.wall_us));

    let card = card_memory.as_ref();
    let whole = |get: fn(&GpuAllocatorCounters) -> u64| card.map(get);
    let name = |figure: &str| format!("training.{who}.card_memory.{figure}");
    cells.gauge(&name("device"), whole(|card| card.device.into()));
    cells.gauge(&name("allocated_bytes"), whole(|card| card.allocated.0));
    cells.gauge(
        &name("allocated_peak_bytes"),
        whole(|card| card.allocated_peak.0),
    );
    cells.gauge(&name("reserved_bytes"), whole(|card| card.reserved.0));
    cells.gauge(
        &name("reserved_peak_bytes"),
        whole(|card| card.reserved_peak.0),
    );
    cells.gauge(
        &name("inactive_split_bytes"),
        whole(|card| card.inactive_split.0),
    );
    cells.gauge(&name("blocks"), whole(|card| card.blocks));
    cells.counter(&name("allocations"), whole(|card| card.allocations));
    cells.counter(&name("retries"), whole(|card| card.retries));
    cells.counter(&name("ooms"), whole(|card| card.ooms));

    let CollectiveTimes {
        communication_us,
        exposed_us,
        sharded_steps,
        all_gather_us,
        all_gather_exposed_us,
        reduce_scatter_us,
        reduce_scatter_exposed_us,
    } = exchange.unwrap_or_default();
    let name = |figure: &str| format!("training.{who}.exchange.{figure}");
    cells.gauge(&name("communication_us"), communication_us);
    cells.gauge(&name("exposed_us"), exposed_us);
    cells.counter(&name("sharded_steps"), sharded_steps);
    cells.counter(&name("all_gather_us"), all_gather_us);
    cells.counter(&name("all_gather_exposed_us"), all_gather_exposed_us);
    cells.counter(&name("reduce_scatter_us"), reduce_scatter_us);
    cells.counter(
        &name("reduce_scatter_exposed_us"),
        reduce_scatter_exposed_us,
    );
}

fn phase_figures(prefix: &str, phases: Option<&PhaseTimes>, cells: &mut dyn RowSink) {
    for (phase, us) in phases.copied().unwrap_or_default().by_name() {
        let us = phases.map(|_| us);
        cells.counter(&format!("{prefix}.{phase}_us"), us);
    }
}

/// The figures of one step but its number and time.
pub(super) fn step_figures(prefix: &str, step: &TrainingStep, cells: &mut dyn RowSink) {
    let TrainingStep {
        step: _,
        t_us: _,
        wall_us,
        data_us,
        rss,
        allocated,
        reserved,
        blocks,
    } = step;
    let name = |figure: &str| format!("{prefix}{figure}");
    cells.gauge(&name("wall_us"), Some(*wall_us));
    cells.gauge(&name("data_us"), Some(*data_us));
    cells.gauge(&name("rss_bytes"), bytes(*rss));
    cells.gauge(&name("allocated_bytes"), bytes(*allocated));
    cells.gauge(&name("reserved_bytes"), bytes(*reserved));
    cells.gauge(&name("blocks"), *blocks);
}

fn process_figures(process: &ProcessSample, cells: &mut dyn RowSink) {
    let ProcessSample {
        pid,
        inner_pid,
        parent,
        name,
        role,
        cpu_us,
        rss,
        threads,
    } = process;
    cells.gauge("pid", Some((*pid).into()));
    cells.gauge("inner_pid", inner_pid.map(Into::into));
    cells.gauge("parent", Some((*parent).into()));
    cells.text("name", Some(name));
    cells.text("role", role.as_deref());
    cells.counter("cpu_us", Some(*cpu_us));
    cells.gauge("rss_bytes", Some(rss.0));
    cells.gauge("threads", Some((*threads).into()));
}
