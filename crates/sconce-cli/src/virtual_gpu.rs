//! Cards that are not there: the virtual GPU for a run, whose library this program carries.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use sconce_compat::tables;
use sconce_schema::Bytes;
use sconce_schema::event::GpuSummary;
use sconce_schema::request::{Mount, Root, RunRequest};

use crate::failure::{CliError, Result};

/// The library, as build.rs made it.
static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libsconce_vgpu.so"));

const NAME: &str = "libsconce_vgpu.so";
/// Names under which programs open NVIDIA's libraries.
const STANDS_FOR: [&str; 2] = ["libcuda.so.1", "libnvidia-ml.so.1"];
/// The file that describes the cards.
const CARDS: &str = "cards";
/// Where a container sees the folder.
const INSIDE: &str = "/run/sconce/virtual-gpu";

/// The cards that a run is to see, and a folder with what makes it see them, for as long as this is.
#[derive(Debug)]
pub(crate) struct VirtualGpus {
    folder: PathBuf,
    cards: Vec<GpuSummary>,
}

impl Drop for VirtualGpus {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl VirtualGpus {
    /// Those of these names, in a folder below `scratch`. `None` where none is named.
    ///
    /// # Errors
    /// A card that is not known, or too little known; a folder that cannot be written.
    pub(crate) fn prepare(names: &[String], scratch: &Path) -> Result<Option<Self>> {
        if names.is_empty() {
            return Ok(None);
        }
        let mut described = String::new();
        let mut cards = Vec::new();
        for (index, name) in (0..).zip(names) {
            let card = tables::virtual_card(name)?;
            let _ = writeln!(described, "{}", line(&card));
            cards.push(GpuSummary {
                index,
                uuid: format!("virtual-{index}"),
                name: format!("{} (virtual)", card.name),
                memory: Some(card.memory),
            });
        }
        let folder = scratch
            .join("virtual-gpu")
            .join(std::process::id().to_string());
        let made = Self { folder, cards };
        made.write(&described).map_err(|source| CliError::File {
            action: "write",
            path: made.folder.clone(),
            source,
        })?;
        Ok(Some(made))
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

    pub(crate) fn summaries(&self) -> Vec<GpuSummary> {
        self.cards.clone()
    }

    /// Lets the run see the cards. `outer` tells a variable that the command inherits.
    pub(crate) fn give(&self, request: &mut RunRequest, outer: impl Fn(&str) -> Option<String>) {
        let at = match request.root {
            Root::Host => self.folder.clone(),
            Root::Image(_) => {
                request.mounts.push(Mount {
                    source: self.folder.clone(),
                    target: PathBuf::from(INSIDE),
                    read_only: true,
                });
                PathBuf::from(INSIDE)
            }
        };
        let library = at.join(NAME).display().to_string();
        let folder = at.display().to_string();
        for (name, first) in [("LD_PRELOAD", library), ("LD_LIBRARY_PATH", folder)] {
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

/// A card as the library reads it (`sconce_vgpu::card`).
fn line(card: &tables::VirtualCard) -> String {
    let Bytes(memory) = card.memory;
    let Bytes(context) = card.context;
    format!(
        "card\tname={}\tcapability={}\tmemory_bytes={memory}\tcontext_bytes={context}\
         \tmultiprocessors={}\tl2_bytes={}\tmemory_rate={}\tmatrix_rate={}",
        card.name,
        card.capability,
        card.multiprocessors,
        card.l2.0,
        card.memory_rate,
        card.matrix_rate,
    )
}
