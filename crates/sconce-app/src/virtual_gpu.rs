//! Cards that are not there: the virtual GPU for a run, whose library this program carries.

use std::fmt::Write as _;
use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use sconce_compat::tables::{self, Hardware, HardwareMatch};
use sconce_schema::Bytes;
use sconce_schema::event::GpuSummary;
use sconce_schema::request::{Mount, RunRequest, RunRoot};

use crate::context::AppContext;
use crate::failure::{AppError, Result};
use crate::file_action::FileAction;
use crate::ranks::RankWorld;
use crate::reporter::AppEvent;

/// The library, as build.rs made it.
static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libsconce_vgpu.so"));

const NAME: &str = "libsconce_vgpu.so";
/// Names under which programs open NVIDIA's libraries.
const STANDS_FOR: [&str; 2] = ["libcuda.so.1", "libnvidia-ml.so.1"];
/// The file that describes the cards.
const CARDS: &str = "cards";
/// Where a container sees the folder.
const CONTAINER_DIR: &str = "/run/sconce/virtual-gpu";
/// The cards that a run is to see, and a folder with what makes it see them, for as long as this is.
#[derive(Debug)]
pub struct VirtualGpus {
    folder: PathBuf,
    cards: Vec<GpuSummary>,
}

impl Drop for VirtualGpus {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl VirtualGpus {
    /// Those of these names, in a folder below `scratch`; in a world of ranks those of its first machine.
    /// `None` where none is named.
    ///
    /// # Errors
    /// A card that is not known, or too little known; a folder that cannot be written.
    pub fn from_names(
        names: &[String],
        world: Option<RankWorld>,
        scratch: &Path,
        context: &AppContext,
    ) -> Result<Option<Self>> {
        if names.is_empty() {
            return Ok(None);
        }
        let mut hardware = Vec::new();
        for name in names {
            let chosen = tables::find_hardware(name)?;
            if !chosen.choice.is_empty() {
                context.report(&AppEvent::VirtualGpuSize(&chosen));
            }
            hardware.push(chosen.hardware);
        }
        let hardware = world.map_or(hardware.clone(), |world| world.first_host_gpus(&hardware));
        Self::from_hardware(&hardware, None, scratch).map(Some)
    }

    /// Those cards, with other memory than their own where that is given.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn from_hardware(
        hardware: &[&Hardware],
        memory: Option<Bytes>,
        scratch: &Path,
    ) -> Result<Self> {
        let mut described = String::new();
        let mut cards = Vec::new();
        for (index, hardware) in (0..).zip(hardware) {
            let memory = memory.unwrap_or(hardware.total);
            let _ = writeln!(described, "{}", format_gpu_line(hardware, memory));
            cards.push(GpuSummary {
                index,
                uuid: format!("virtual-{index}"),
                name: format!("{} (virtual)", product(hardware)),
                memory: Some(memory),
            });
        }
        let folder = scratch.join("virtual-gpu").join(sconce_base::random_name());
        let made = Self { folder, cards };
        made.write(&described).map_err(|source| AppError::File {
            action: FileAction::Write,
            path: made.folder.clone(),
            source,
        })?;
        Ok(made)
    }

    fn write(&self, cards: &str) -> std::io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        fs::write(self.folder.join(NAME), LIBRARY)?;
        fs::write(self.folder.join(CARDS), cards)?;
        for name in STANDS_FOR {
            let link = self.folder.join(name);
            if link.symlink_metadata().is_err() {
                symlink(NAME, link)?;
            }
        }
        Ok(())
    }

    /// Returns the GPUs as a record names them.
    pub fn gpu_summaries(&self) -> Vec<GpuSummary> {
        self.cards.clone()
    }

    /// Lets the run see the cards. `outer` tells a variable that the command inherits.
    pub fn apply_to(&self, request: &mut RunRequest, outer: impl Fn(&str) -> Option<String>) {
        let at = match request.root {
            RunRoot::Host => self.folder.clone(),
            RunRoot::Image(_) => {
                request.mounts.push(Mount {
                    source: self.folder.clone(),
                    target: PathBuf::from(CONTAINER_DIR),
                    read_only: true,
                });
                PathBuf::from(CONTAINER_DIR)
            }
        };
        let library = at.join(NAME).display().to_string();
        let folder = at.display().to_string();
        let ahead = [("LD_PRELOAD", library), ("LD_LIBRARY_PATH", folder)];
        for (name, first) in ahead {
            let behind = request.env.get(name).cloned().or_else(|| outer(name));
            let value = match behind.filter(|value| !value.is_empty()) {
                Some(behind) => format!("{first}:{behind}"),
                None => first,
            };
            request.env.insert(name.to_owned(), value);
        }
        let cards = at.join(CARDS).display().to_string();
        request.env.insert("SCONCE_VGPU".to_owned(), cards);
    }
}

/// Says which size was taken of a GPU that was sold with several.
pub fn format_chosen_size(chosen: &HardwareMatch) -> String {
    let hardware = chosen.hardware;
    let sizes: Vec<String> = chosen.choice.iter().map(Bytes::to_string).collect();
    format!(
        "virtual GPU: the {} was sold with {}; this is the one with {}",
        product(hardware),
        sizes.join(" and "),
        hardware.memory
    )
}

/// Its name as CUDA would say it.
fn product(hardware: &Hardware) -> String {
    let name = hardware.card.name;
    format!("NVIDIA {}", name.strip_prefix("NVIDIA ").unwrap_or(name))
}

/// What a context takes of a card. It is known of few: of the others it is the most that was reported,
/// as a run that is said to fit shall fit.
pub fn context_bytes(hardware: &Hardware) -> Bytes {
    match hardware.context {
        Some(context) => context.size,
        None => *tables::context_range().end(),
    }
}

/// What NCCL's buffers of one communicator take, from the least to the most; as with contexts, the most is
/// counted with.
pub fn communicator_range(hardware: &Hardware) -> RangeInclusive<Bytes> {
    tables::communicator_range(hardware.card)
}

/// A card as the library reads it (`sconce_vgpu::card`).
pub fn format_gpu_line(hardware: &Hardware, memory: Bytes) -> String {
    let context = context_bytes(hardware);
    let tflops = hardware.tensor_tflops.unwrap_or(hardware.fp32_tflops);
    format!(
        "card\tname={}\tcapability={}\tmemory_bytes={}\tcontext_bytes={}\tnccl_bytes={}\
         \tmultiprocessors={}\tl2_bytes={}\tmemory_rate={}\tmatrix_rate={}",
        product(hardware),
        hardware.card.capability,
        memory.0,
        context.0,
        communicator_range(hardware).end().0,
        hardware.multiprocessors,
        hardware.l2.0,
        (hardware.bandwidth_gb_s * 1e9) as u64,
        (tflops * 1e12) as u64,
    )
}
