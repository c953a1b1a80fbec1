//! `--ranks`: a command as the first rank of a world whose other ranks are not there.

use std::net::{Ipv4Addr, TcpListener};

use sconce_compat::tables::Hardware;
use sconce_schema::request::RunRequest;

use crate::failure::{AppError, Result};
use crate::launcher::find_launcher;

/// Cards of one machine where one kind of card was named: what most machines for training have.
const DEFAULT_CARDS_PER_MACHINE: u32 = 8;
/// Where torchrun meets by default, for machines that have no port to give.
const DEFAULT_PORT: u16 = 29500;
const MASTER_PORT: &str = "MASTER_PORT";

/// The world that a command finds itself in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankWorld {
    ranks: u32,
    /// Ranks on this machine.
    local: u32,
}

impl RankWorld {
    /// The world of so many ranks, on machines with the cards that are named. `None` without ranks.
    ///
    /// # Errors
    /// No card is named, or the command starts ranks itself.
    pub fn for_ranks(ranks: Option<u32>, cards: usize, command: &[String]) -> Result<Option<Self>> {
        let Some(ranks) = ranks else {
            return Ok(None);
        };
        if cards == 0 {
            return Err(AppError::RanksWithoutCards.into());
        }
        if let Some(launcher) = find_launcher(command) {
            return Err(AppError::RanksByLauncher { launcher }.into());
        }
        let cards = match u32::try_from(cards) {
            Ok(cards) if cards > 1 => cards,
            _ => DEFAULT_CARDS_PER_MACHINE,
        };
        Ok(Some(Self {
            ranks,
            local: cards.min(ranks),
        }))
    }

    /// The cards of its first machine: one that is named stands for all.
    pub fn first_host_gpus<'a>(&self, named: &[&'a Hardware]) -> Vec<&'a Hardware> {
        match named {
            [one] => vec![*one; self.local as usize],
            several => several.to_vec(),
        }
    }

    /// What one trial is told that others are told otherwise, where several have one environment.
    pub fn of_trial() -> (&'static str, String) {
        (MASTER_PORT, port().to_string())
    }

    /// Tells the command what torchrun would have, apart from what the flags set themselves.
    pub fn apply_to(&self, request: &mut RunRequest) {
        let machines = self.ranks.div_ceil(self.local);
        let zero = || "0".to_owned();
        let told = [
            ("RANK", zero()),
            ("LOCAL_RANK", zero()),
            ("GROUP_RANK", zero()),
            ("ROLE_RANK", zero()),
            ("WORLD_SIZE", self.ranks.to_string()),
            ("LOCAL_WORLD_SIZE", self.local.to_string()),
            ("GROUP_WORLD_SIZE", machines.to_string()),
            ("ROLE_WORLD_SIZE", self.ranks.to_string()),
            ("ROLE_NAME", "default".to_owned()),
            ("MASTER_ADDR", "127.0.0.1".to_owned()),
            (MASTER_PORT, port().to_string()),
            ("TORCHELASTIC_RUN_ID", "none".to_owned()),
            ("TORCHELASTIC_RESTART_COUNT", zero()),
            ("TORCHELASTIC_MAX_RESTARTS", zero()),
            ("SCONCE_RANKS", self.ranks.to_string()),
        ];
        for (name, value) in told {
            request.env.entry(name.to_owned()).or_insert(value);
        }
    }
}

/// A port that is free now: the command's first rank listens on it.
fn port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = listener.and_then(|listener| listener.local_addr());
    address.map_or(DEFAULT_PORT, |address| address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_compat::tables;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn world(ranks: u32, cards: usize) -> RankWorld {
        let world = RankWorld::for_ranks(Some(ranks), cards, &words("python train.py")).unwrap();
        world.unwrap()
    }

    #[test]
    fn one_card_stands_for_a_machine_of_eight() {
        assert_eq!(RankWorld::for_ranks(None, 1, &[]).unwrap(), None);
        for (ranks, cards, local) in [(64, 1, 8), (4, 1, 4), (64, 2, 2), (2, 4, 2)] {
            assert_eq!(world(ranks, cards).local, local, "{ranks} {cards}");
        }
        let h100 = tables::find_hardware("h100").unwrap().hardware;
        assert_eq!(world(64, 1).first_host_gpus(&[h100]).len(), 8);
        assert_eq!(world(64, 2).first_host_gpus(&[h100, h100]).len(), 2);
    }
}
