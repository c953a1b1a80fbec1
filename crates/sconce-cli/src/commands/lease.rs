//! `sconce lease`.

mod list;
pub(crate) use self::list::format_queue_position;
mod serve;

use clap::{Args, Subcommand};
use sconce_lease::{
    AcquireRequest, GpuSelection, Lease, LeaseRefusal, LeaseRequest, LeaseResponse, Millis,
};
use sconce_schema::spec::GpuRequest;
use sconce_schema::{Bytes, duration, exit};

use self::list::format_duration;
use crate::output;
use sconce_app::context::AppContext;
use sconce_app::dirs::SconceDirs;
use sconce_app::failure::Result;
use sconce_app::lease_client::{self, LeaseClient, unexpected_response};

#[derive(Debug, Args)]
pub(crate) struct LeaseArgs {
    #[command(subcommand)]
    what: LeaseCommand,
}

#[derive(Debug, Subcommand)]
enum LeaseCommand {
    /// Take cards for a time; waits for them where others have them.
    Take(TakeArgs),
    /// Who has which card until when, and who waits.
    List {
        /// Print as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Keep a lease for longer, where nobody waits for its cards.
    Extend {
        /// The lease's number.
        #[arg(value_parser = lease_number)]
        lease: u64,
        /// How much longer: 30m, 4h, 1h30m, 2d.
        #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = time)]
        by: Millis,
    },
    /// Give a lease back, or a place in the queue up.
    Return {
        /// The lease's number.
        #[arg(value_parser = lease_number)]
        lease: u64,
    },
    /// Keep the leases of a machine with several users. The owner starts it, as root.
    Serve,
}

#[derive(Debug, Args)]
struct TakeArgs {
    /// Cards: a number, `all`, or `device=0,2` or UUIDs.
    #[arg(long, value_name = "GPUS", default_value = "1")]
    gpus: GpuRequest,
    /// For how long: 30m, 4h, 1h30m, 2d.
    #[arg(long = "for", value_name = "TIME", allow_hyphen_values = true, value_parser = time)]
    length: Millis,
    /// Memory that each card has at least, such as 20GiB.
    #[arg(long, value_name = "SIZE")]
    mem: Option<Bytes>,
    /// Wait for the cards; the place is lost when this command ends. The default.
    #[arg(long, conflicts_with = "no_wait")]
    wait: bool,
    /// Where it cannot start now, say why and when it could, and exit with 1.
    #[arg(long)]
    no_wait: bool,
}

fn time(text: &str) -> Result<Millis, String> {
    match duration::parse_milliseconds(text) {
        Ok(0) => Err("it is no time at all".to_owned()),
        time => time.map_err(|error| format!("not {}", error.expected)),
    }
}

fn lease_number(text: &str) -> Result<u64, String> {
    let wrong = |_| "not a number that `sconce lease list` shows".to_owned();
    text.parse().map_err(wrong)
}

pub(crate) fn lease(args: &LeaseArgs, context: &AppContext) -> Result<u8> {
    match &args.what {
        LeaseCommand::Serve => serve::serve_leases(context),
        LeaseCommand::List { json } => list::list_leases(*json, context),
        LeaseCommand::Take(take) => self::take(take, context),
        LeaseCommand::Extend { lease, by } => {
            let ask = LeaseRequest::Extend {
                id: *lease,
                by_ms: *by,
            };
            match desk(context)?.send_request(&ask)? {
                LeaseResponse::Extended(lease) => {
                    if !context.quiet {
                        output::print_message(&format!(
                            "lease {}: {} more",
                            lease.id,
                            format_duration(by / 1000)
                        ));
                    }
                    Ok(exit::OK)
                }
                other => refused(other),
            }
        }
        LeaseCommand::Return { lease } => {
            match desk(context)?.send_request(&LeaseRequest::Return { id: *lease })? {
                LeaseResponse::Returned(id) => {
                    if !context.quiet {
                        output::print_message(&format!("lease {id}: returned"));
                    }
                    Ok(exit::OK)
                }
                other => refused(other),
            }
        }
    }
}

fn desk(context: &AppContext) -> Result<LeaseClient> {
    let places = SconceDirs::find(context)?;
    let (host, nvml) = lease_client::read_host_profile();
    let nvml = nvml
        .as_ref()
        .map(|nvml| nvml as &dyn sconce_host::GpuMonitor);
    LeaseClient::open(&places.leases, lease_client::list_lease_gpus(&host, nvml))
}

fn refused<T>(answer: LeaseResponse) -> Result<T> {
    Err(match answer {
        LeaseResponse::Refused(refusal) => refusal.into(),
        other => unexpected_response(&other).into(),
    })
}

fn take(args: &TakeArgs, context: &AppContext) -> Result<u8> {
    let places = SconceDirs::find(context)?;
    let (host, nvml) = lease_client::read_host_profile();
    let loaded = nvml
        .as_ref()
        .map(|nvml| nvml as &dyn sconce_host::GpuMonitor);
    let cards = lease_client::list_lease_gpus(&host, loaded);
    let there = host.nvidia.as_ref().map_or(&[][..], |n| &n.cards);
    let wanted = match &args.gpus {
        GpuRequest::Count(cards) => GpuSelection::Any {
            cards: *cards,
            memory: args.mem,
        },
        GpuRequest::All => GpuSelection::Any {
            cards: u32::try_from(cards.len().max(1)).unwrap_or(u32::MAX),
            memory: args.mem,
        },
        listed @ GpuRequest::Listed(_) => {
            let chosen = sconce_host::select_gpus(there, listed)?;
            GpuSelection::These(chosen.into_iter().map(lease_client::gpu_key).collect())
        }
    };
    let mut desk = LeaseClient::open(&places.leases, cards.clone())?;
    let ask = LeaseRequest::Take(AcquireRequest {
        wanted,
        for_ms: Some(args.length),
        while_alive: false,
        wait: !args.no_wait,
    });
    let (id, held) = match desk.send_request(&ask)? {
        LeaseResponse::Granted(Lease { id, cards, .. }) => (id, cards),
        LeaseResponse::Queued(waiting) => {
            let overview = desk.wait(waiting.id, &mut |waiting| {
                if !context.quiet {
                    output::print_message(&list::format_queue_position(waiting));
                }
            })?;
            let found = overview.leases.into_iter().find(|l| l.id == waiting.id);
            (waiting.id, found.map_or_else(Vec::new, |lease| lease.cards))
        }
        LeaseResponse::Refused(refusal) => {
            if let LeaseRefusal::Busy { start_s, .. } = &refusal {
                output::print_message(&list::format_expected_start(*start_s));
            }
            return Err(refusal.into());
        }
        other => return Err(unexpected_response(&other).into()),
    };
    let indices = held.iter().filter_map(|key| {
        let card = cards.iter().find(|card| card.key == *key)?;
        Some(card.index.to_string())
    });
    let indices = indices.collect::<Vec<_>>().join(",");
    if !context.quiet {
        output::print_message(&format!(
            "lease {id}: card {indices} for {}; `sconce lease return {id}` gives it back",
            format_duration(args.length / 1000)
        ));
    }
    // For CUDA_VISIBLE_DEVICES of what is not run with Sconce.
    output::write_data(&indices)?;
    Ok(exit::OK)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_time_below_zero_is_named_as_a_time() {
        for words in [
            ["lease", "take", "--for", "-1h"].as_slice(),
            &["lease", "extend", "3", "--by", "-1h"],
        ] {
            let words = ["sconce"].iter().chain(words);
            let error = crate::args::command()
                .try_get_matches_from(words)
                .unwrap_err();
            let text = error.to_string();
            assert!(text.contains("not a time such as 90s, 30m, 4h"), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_is_said_in_words() {
        for words in [
            ["lease", "return", "abc"].as_slice(),
            &["lease", "return", "99999999999999999999"],
            &["lease", "extend", "-", "--by", "1h30m"],
        ] {
            let words = ["sconce"].iter().chain(words);
            let error = crate::args::command()
                .try_get_matches_from(words)
                .unwrap_err();
            let text = error.to_string();
            assert!(
                text.contains("not a number that `sconce lease list` shows"),
                "{text}"
            );
        }
    }
}
