//! Faults that the driver reports in the kernel log: `xids.txt`.

use std::str::FromStr;
use std::sync::LazyLock;

use sconce_schema::finding::{Fix, Severity};

use super::{TableError, TableSource, rows};
use crate::rules::{as_root, as_user};

/// What a number means.
#[derive(Debug, Clone, Copy)]
pub struct XidEntry {
    /// NVIDIA's number.
    pub code: u32,
    /// What NVIDIA's catalogue says to do at once.
    pub bucket: XidResolution,
    /// The catalogue's bucket of what to look for where it comes back; empty where it names none.
    pub investigate: &'static str,
    /// What happened, as the end of a sentence.
    pub meaning: &'static str,
    /// Where that is from.
    pub source: TableSource,
}

/// The catalogue's resolution buckets, by their names there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XidResolution {
    /// `IGNORE`: nothing needs to be done.
    Ignore,
    /// `RESTART_APP`: the program is started again.
    RestartApp,
    /// `RESET_GPU`: the card is reset.
    ResetGpu,
    /// `RESTART_BM`: the machine is started again.
    RestartMachine,
    /// `RESTART_VM`: the virtual machine is started again.
    RestartVm,
    /// `CHECK_MECHANICALS`: cables and seats are looked at.
    CheckMechanicals,
    /// `UPDATE_SWFW`: driver or firmware are brought up to date.
    UpdateSoftware,
    /// `CHECK_UVM`: whether managed memory was in use.
    CheckUvm,
    /// `CONTACT_SUPPORT`.
    ContactSupport,
    /// `WORKFLOW_XID_45`: alone, NVSwitch's manager is started again; else the other Xid counts.
    Xid45,
    /// `WORKFLOW_XID_48`: the card is reset; beside Xid 63 or 64 after its work was moved away.
    Xid48,
    /// `WORKFLOW_NVLINK_ERR`: by the numbers of its line.
    Nvlink,
    /// `WORKFLOW_NVLINK5_ERR`: by the numbers of its line, or by the Xid 154 beside it.
    Nvlink5,
    /// `XID_154`: the line itself says what to do.
    Xid154,
    /// The catalogue names nothing.
    None,
    /// No card since Ampere reports it.
    Unused,
}

impl FromStr for XidResolution {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Ok(match text {
            "IGNORE" => Self::Ignore,
            "RESTART_APP" => Self::RestartApp,
            "RESET_GPU" => Self::ResetGpu,
            "RESTART_BM" => Self::RestartMachine,
            "RESTART_VM" => Self::RestartVm,
            "CHECK_MECHANICALS" => Self::CheckMechanicals,
            "UPDATE_SWFW" => Self::UpdateSoftware,
            "CHECK_UVM" => Self::CheckUvm,
            "CONTACT_SUPPORT" => Self::ContactSupport,
            "WORKFLOW_XID_45" => Self::Xid45,
            "WORKFLOW_XID_48" => Self::Xid48,
            "WORKFLOW_NVLINK_ERR" => Self::Nvlink,
            "WORKFLOW_NVLINK5_ERR" => Self::Nvlink5,
            "XID_154" => Self::Xid154,
            "NONE" => Self::None,
            _ => return Err(()),
        })
    }
}

const REPORT: &str = "nvidia-bug-report.sh";

impl XidEntry {
    /// What it means for the next run: whether the card can be used.
    #[must_use]
    pub fn fault_severity(&self) -> Severity {
        match self.bucket {
            XidResolution::Nvlink5 if self.code == 150 => Severity::Fails,
            // Whether these need a reset is in the numbers of their line.
            XidResolution::Nvlink5 | XidResolution::CheckUvm | XidResolution::Xid154 => {
                Severity::Warns
            }
            XidResolution::Ignore | XidResolution::Xid45 | XidResolution::None => Severity::Notes,
            XidResolution::RestartApp | XidResolution::ContactSupport | XidResolution::Unused => {
                Severity::Warns
            }
            XidResolution::UpdateSoftware | XidResolution::RestartVm => Severity::Warns,
            XidResolution::ResetGpu | XidResolution::Xid48 | XidResolution::Nvlink => {
                Severity::Fails
            }
            XidResolution::RestartMachine | XidResolution::CheckMechanicals => Severity::Fails,
        }
    }

    /// Whether another fault, or somebody who stopped a program, is its usual reason.
    #[must_use]
    pub fn follows_others(&self) -> bool {
        matches!(self.bucket, XidResolution::Xid45 | XidResolution::Xid154)
            || matches!(self.code, 43 | 171 | 172)
    }

    /// What to do, as the catalogue has it, the first thing first.
    #[must_use]
    pub fn catalog_fixes(&self) -> Vec<Fix> {
        let mend = |what: &str, action| Fix {
            what: what.to_owned(),
            action,
        };
        let reset = || as_root("nvidia-smi --gpu-reset -i INDEX");
        let again = "Start the program again";
        let mut mends = match self.bucket {
            XidResolution::Ignore => vec![mend(
                "Nothing needs to be done for this alone; look at what was reported before it",
                None,
            )],
            XidResolution::RestartApp => vec![mend(again, None)],
            XidResolution::ResetGpu => {
                vec![mend("Stop what runs on the card and reset it", reset())]
            }
            XidResolution::RestartMachine => {
                vec![mend("Start the machine again", as_root("systemctl reboot"))]
            }
            XidResolution::RestartVm => vec![mend("Start the virtual machine again", None)],
            XidResolution::CheckMechanicals => vec![mend(
                "Switch the machine off and look whether the card's power cables are plugged in",
                None,
            )],
            XidResolution::UpdateSoftware => vec![mend(
                "Bring the driver of the host and that of the guest to versions that go together",
                None,
            )],
            XidResolution::CheckUvm => vec![mend(
                "Reset the card if the program used managed memory; else nothing needs to be done",
                reset(),
            )],
            XidResolution::ContactSupport => Vec::new(),
            XidResolution::Xid45 => vec![
                mend(
                    "Beside another Xid do what that one needs; where the program was stopped by \
                     somebody nothing needs to be done",
                    None,
                ),
                mend(
                    "Alone, and on a machine with NVSwitch: start its manager again",
                    as_root("systemctl restart nvidia-fabricmanager"),
                ),
            ],
            XidResolution::Xid48 => vec![
                mend("Stop what runs on the card and reset it", reset()),
                mend(
                    "See which memory it was, and whether rows were replaced",
                    as_user("nvidia-smi -q -d ECC,ROW_REMAPPER"),
                ),
            ],
            XidResolution::Nvlink => vec![
                mend(
                    "Stop what runs on the cards of the link and reset them",
                    reset(),
                ),
                mend(
                    "See which links have errors",
                    as_user("nvidia-smi nvlink -e"),
                ),
            ],
            XidResolution::Nvlink5 => vec![
                mend(
                    match self.code {
                        // By the catalogue's table of their numbers: all of the one, and most of the other.
                        149 | 150 => {
                            "Do what the Xid 154 beside it says. Without one, stop what runs on the cards of the \
                             link and reset them"
                        }
                        _ => {
                            "Do what the Xid 154 beside it says. Without one, stop what runs on the cards of the \
                             link and reset them where the line says Fatal or Link Fatal; else start the program \
                             again"
                        }
                    },
                    reset(),
                ),
                mend(
                    "See which links have errors",
                    as_user("nvidia-smi nvlink -e"),
                ),
            ],
            XidResolution::Xid154 => vec![mend(
                "Do what its line says: nothing for None; stop programs that use other cards' memory \
                 for Drain P2P; reset the card for Drain and Reset and for GPU Reset Required; start \
                 the machine again for Node Reboot Required",
                None,
            )],
            XidResolution::None => {
                vec![mend("NVIDIA's catalogue names nothing to do for it", None)]
            }
            XidResolution::Unused => vec![mend(
                "Look it up in NVIDIA's catalogue for older cards: none since Ampere reports it",
                None,
            )],
        };
        match self.investigate {
            "CHECK_APP/CUDA" | "WORKFLOW_XID_13" | "WORKFLOW_XID_31" | "XID_137_FLOW" => {
                mends.push(mend(
                    "If it comes back, look for the kernel at fault",
                    as_user("compute-sanitizer python train.py"),
                ));
            }
            "CONTACT_SUPPORT" | "INVESTIGATE_SW" | "INVESTIGATE_LINK_SI" => mends.push(mend(
                "If it comes back, make a report for who sold the machine or for NVIDIA",
                as_root(REPORT),
            )),
            _ if self.bucket == XidResolution::ContactSupport => mends.push(mend(
                "Make a report for who sold the machine or for NVIDIA",
                as_root(REPORT),
            )),
            _ => {}
        }
        mends
    }
}

/// What is left to do where the table has nothing of a number.
#[must_use]
pub fn unknown_xid() -> Fix {
    Fix {
        what: "Read NVIDIA's catalogue of Xids; a report for its support is made by".to_owned(),
        action: as_root(REPORT),
    }
}

static XIDS: LazyLock<Vec<XidEntry>> =
    LazyLock::new(|| read().expect("the compiled-in table is read by a test"));

fn read() -> Result<Vec<XidEntry>, TableError> {
    let table = rows::parse_table(include_str!("xids.txt"))?;
    let source = table.sources.values().next().copied();
    let mut xids = Vec::new();
    for row in &table.rows {
        let source = source.ok_or_else(|| row.to_error())?;
        match row.kind {
            "xid" => xids.push(XidEntry {
                code: row.value(0)?,
                bucket: row.value(1)?,
                investigate: Some(row.text(2)?)
                    .filter(|&text| text != "NONE")
                    .unwrap_or(""),
                meaning: row.text(3)?,
                source,
            }),
            "unused" => {
                for code in row.text(0)?.split_whitespace() {
                    xids.push(XidEntry {
                        code: code.parse().map_err(|_| row.to_error())?,
                        bucket: XidResolution::Unused,
                        investigate: "",
                        meaning: "a number that cards since Ampere (A100) do not use",
                        source,
                    });
                }
            }
            _ => return Err(row.to_error()),
        }
    }
    xids.sort_by_key(|row| row.code);
    Ok(xids)
}

/// All numbers of the catalogue, in order.
#[must_use]
pub fn xid_entries() -> &'static [XidEntry] {
    &XIDS
}

/// What a number means, where the table has it.
#[must_use]
pub fn find_xid(code: u32) -> Option<&'static XidEntry> {
    let at = XIDS.binary_search_by_key(&code, |row| row.code).ok()?;
    XIDS.get(at)
}

#[cfg(test)]
mod tests {
    use sconce_schema::finding::FixAction;

    use super::*;

    #[test]
    fn every_number_of_the_catalogue_is_told_once() {
        let rows = read().unwrap();
        let codes: Vec<u32> = rows.iter().map(|row| row.code).collect();
        assert_eq!(codes, (1..=172).collect::<Vec<u32>>());
        assert!(rows.iter().all(|row| !row.meaning.is_empty()));
        assert_eq!(
            rows.iter()
                .filter(|row| row.bucket == XidResolution::Unused)
                .count(),
            61
        );
        assert!(find_xid(0).is_none() && find_xid(9999).is_none());
    }

    /// As NVIDIA's catalogue has them; what was wrong here before it was read again.
    #[test]
    fn buckets_are_those_of_the_catalogue() {
        let expected = [
            (XidResolution::RestartApp, &[8, 13, 31, 32, 69, 94][..]),
            (
                XidResolution::Ignore,
                &[37, 38, 43, 44, 63, 66, 92, 121, 137, 141, 157],
            ),
            (
                XidResolution::ResetGpu,
                &[
                    46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158,
                ],
            ),
            (XidResolution::Nvlink5, &[144, 145, 146, 147, 148, 149, 150]),
            (XidResolution::RestartMachine, &[79]),
            (XidResolution::Xid45, &[45]),
            (XidResolution::Xid48, &[48]),
            (XidResolution::Nvlink, &[74]),
            (XidResolution::Xid154, &[154]),
            (XidResolution::Unused, &[56, 61, 122]),
        ];
        for (bucket, codes) in expected {
            for &code in codes {
                assert_eq!(find_xid(code).unwrap().bucket, bucket, "{code}");
            }
        }
        assert_eq!(find_xid(109).unwrap().investigate, "CONTACT_SUPPORT");
    }

    /// Words that send a card away, or take it out.
    const EXCHANGE: [&str; 5] = [
        "replace the card",
        "replacement",
        "exchange",
        "rma",
        "new card",
    ];

    #[test]
    fn no_mend_exchanges_what_the_catalogue_restarts_resets_or_ignores() {
        for row in xid_entries() {
            let mends = row.catalog_fixes();
            assert!(!mends.is_empty(), "{}", row.code);
            for mend in &mends {
                let what = mend.what.to_lowercase();
                let words: Vec<&str> = what.split(|c: char| !c.is_alphanumeric()).collect();
                let sends = EXCHANGE.iter().any(|text| match text.contains(' ') {
                    true => what.contains(text),
                    false => words.contains(text),
                });
                assert!(!sends, "{}: {}", row.code, mend.what);
            }
            let resets = mends.iter().any(|mend| {
                matches!(&mend.action, Some(FixAction::Command { line, .. }) if line.contains("gpu-reset"))
            });
            let may = matches!(
                row.bucket,
                XidResolution::ResetGpu
                    | XidResolution::Xid48
                    | XidResolution::Nvlink
                    | XidResolution::Nvlink5
                    | XidResolution::CheckUvm
            );
            assert_eq!(resets, may, "{}: {mends:?}", row.code);
        }
    }
}
