//! What NVIDIA's drivers serve: `drivers.txt`.

use std::sync::LazyLock;

use sconce_schema::{ComputeCapability, CudaVersion, DriverVersion};

use super::{TableError, TableSource, rows};

/// A toolkit and the driver that it came with.
#[derive(Debug, Clone, Copy)]
pub struct Toolkit {
    /// The toolkit.
    pub cuda: CudaVersion,
    /// The driver.
    pub driver: DriverVersion,
    /// Where that is from.
    pub source: TableSource,
}

/// Cards of one make, and which drivers and toolkits know them.
#[derive(Debug, Clone, Copy)]
pub struct GpuArchitecture {
    /// `Volta`.
    pub name: &'static str,
    /// Lowest compute capability.
    pub from: ComputeCapability,
    /// Highest compute capability.
    pub to: ComputeCapability,
    /// The driver branch that knew them first; absent where that is older than anything here.
    pub first_branch: Option<u32>,
    /// The last driver branch that knows them; absent where all newer ones do.
    pub last_branch: Option<u32>,
    /// The first CUDA that compiles for them.
    pub first_cuda: Option<CudaVersion>,
    /// The last CUDA that compiles for them and whose libraries have code for them.
    pub last_cuda: Option<CudaVersion>,
    /// Where that is from.
    pub source: TableSource,
}

/// Driver branches that a forward-compatibility library works with.
#[derive(Debug, Clone)]
pub struct ForwardCompatibility {
    /// From this CUDA on.
    pub cuda: CudaVersion,
    /// Branches of the kernel module.
    pub branches: Vec<u32>,
    /// Where that is from.
    pub source: TableSource,
}

struct Drivers {
    toolkits: Vec<Toolkit>,
    architectures: Vec<GpuArchitecture>,
    ptx: Vec<((u16, u16), CudaVersion)>,
    forward: Vec<ForwardCompatibility>,
}

static DRIVERS: LazyLock<Drivers> =
    LazyLock::new(|| read().expect("the compiled-in table is read by a test"));

fn read() -> Result<Drivers, TableError> {
    let table = rows::parse_table(include_str!("drivers.txt"))?;
    let mut drivers = Drivers {
        toolkits: Vec::new(),
        architectures: Vec::new(),
        ptx: Vec::new(),
        forward: Vec::new(),
    };
    for row in &table.rows {
        match row.kind {
            "toolkit" => drivers.toolkits.push(Toolkit {
                cuda: row.value(0)?,
                driver: row.value(1)?,
                source: row.source(2, &table.sources)?,
            }),
            "architecture" => drivers.architectures.push(GpuArchitecture {
                name: row.text(0)?,
                from: row.value(1)?,
                to: row.value(2)?,
                first_branch: row.option(3)?,
                last_branch: row.option(4)?,
                first_cuda: row.option(5)?,
                last_cuda: row.option(6)?,
                source: row.source(7, &table.sources)?,
            }),
            "ptx" => {
                let (major, minor) = row.text(0)?.split_once('.').ok_or_else(|| row.to_error())?;
                let number = |text: &str| text.parse().map_err(|_| row.to_error());
                row.source(2, &table.sources)?;
                let version = (number(major)?, number(minor)?);
                drivers.ptx.push((version, row.value(1)?));
            }
            "forward" => drivers.forward.push(ForwardCompatibility {
                cuda: row.value(0)?,
                branches: row.values(1)?,
                source: row.source(2, &table.sources)?,
            }),
            _ => return Err(row.to_error()),
        }
    }
    Ok(drivers)
}

/// The driver that a toolkit came with: from it on, its PTX and all of its features work. Where the
/// toolkit is not listed, the next newer one's.
#[must_use]
pub fn toolkit_driver(cuda: CudaVersion) -> Option<&'static Toolkit> {
    let mut newer = DRIVERS.toolkits.iter().filter(|row| row.cuda >= cuda);
    newer.next()
}

/// The newest CUDA that a driver says it serves.
#[must_use]
pub fn driver_cuda(driver: DriverVersion) -> Option<CudaVersion> {
    let older = DRIVERS.toolkits.iter().rev().find(|row| {
        // A branch serves what its first driver serves, whatever the later numbers are.
        row.driver <= driver || row.driver.major == driver.major
    });
    older.map(|row| row.cuda)
}

/// What is known of cards of a compute capability.
#[must_use]
pub fn gpu_architecture(capability: ComputeCapability) -> Option<&'static GpuArchitecture> {
    let mut all = DRIVERS.architectures.iter();
    all.find(|row| (row.from..=row.to).contains(&capability))
}

/// The first CUDA whose driver compiles this version of PTX. A version that is newer than the table
/// needs at least the newest CUDA of the table, and more.
#[must_use]
pub fn ptx_cuda(major: u16, minor: u16) -> Option<CudaVersion> {
    let version = (major, minor);
    let known = DRIVERS.ptx.iter().find(|(row, _)| *row >= version);
    known.or_else(|| DRIVERS.ptx.last()).map(|(_, cuda)| *cuda)
}

/// Which driver branches the forward-compatibility library of a CUDA works with.
#[must_use]
pub fn forward_compatibility(cuda: CudaVersion) -> Option<&'static ForwardCompatibility> {
    DRIVERS.forward.iter().rev().find(|row| row.cuda <= cuda)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_order() {
        let drivers = read().unwrap();
        let toolkits = &drivers.toolkits;
        assert!(toolkits.is_sorted_by(|a, b| a.cuda < b.cuda && a.driver < b.driver));
        let kinds = &drivers.architectures;
        assert!(kinds.is_sorted_by(|a, b| a.to < b.from));
        assert!(kinds.iter().all(|row| row.from <= row.to));
        assert!(drivers.ptx.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1));
        assert!(drivers.forward.is_sorted_by(|a, b| a.cuda < b.cuda));
        for row in &drivers.forward {
            assert!(row.branches.is_sorted(), "{row:?}");
        }
    }

    #[test]
    fn a_toolkits_driver_is_not_below_its_floor() {
        for row in &DRIVERS.toolkits {
            let floor = row.cuda.lowest_driver().unwrap();
            // 11.0's first driver came before minor version compatibility.
            assert!(
                row.driver >= floor || row.cuda == CudaVersion::new(11, 0),
                "{row:?}"
            );
        }
    }

    #[test]
    fn every_known_card_has_an_architecture() {
        for card in super::super::gpu_products() {
            assert!(gpu_architecture(card.capability).is_some(), "{}", card.name);
        }
    }

    #[test]
    fn drivers_and_ptx_tell_their_cuda() {
        let cuda = |text: &str| driver_cuda(text.parse().unwrap()).map(|v| v.to_string());
        for (driver, expected) in [
            ("535.104.05", Some("12.2")),
            ("535.43.02", Some("12.2")),
            ("550.144.03", Some("12.4")),
            ("565.57.01", Some("12.6")),
            ("580.65.06", Some("13.0")),
            ("999.1", Some("13.4")),
            ("390.157", None),
        ] {
            assert_eq!(cuda(driver).as_deref(), expected, "{driver}");
        }
        assert_eq!(ptx_cuda(8, 7), Some(CudaVersion::new(12, 8)));
        assert_eq!(ptx_cuda(99, 0), Some(CudaVersion::new(13, 4)));
        let branches = |major, minor| {
            let row = forward_compatibility(CudaVersion::new(major, minor));
            row.map_or(&[][..], |row| &row.branches)
        };
        assert_eq!(branches(12, 9), [470, 525, 535, 550]);
        assert!(branches(11, 8).is_empty());
    }
}
