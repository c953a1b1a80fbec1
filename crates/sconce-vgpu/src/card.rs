//! The cards that the virtual machine has, from the file that `SCONCE_VGPU` names.
//!
//! One line a card: `card KEY=VALUE …` with the values divided by tabs, as `sconce` writes it.

/// One card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuProperties {
    pub name: String,
    /// Compute capability.
    pub major: i32,
    pub minor: i32,
    /// What CUDA reports as the card's total, in bytes.
    pub memory_bytes: u64,
    /// What the CUDA context and the loaded modules take of it, in bytes.
    pub context_bytes: u64,
    /// What NCCL's buffers of one communicator take of it, in bytes.
    pub nccl_bytes: u64,
    pub multiprocessors: i32,
    pub l2_bytes: i32,
    /// Peak rates for the model of time: of memory, in bytes per second, and of dense 16-bit matrix
    /// products, in operations per second.
    pub memory_rate: u64,
    pub matrix_rate: u64,
}

/// Per multiprocessor, by compute capability (CUDA C++ Programming Guide, "Technical Specifications
/// per Compute Capability").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Multiprocessor {
    pub threads: i32,
    pub blocks: i32,
    pub shared_bytes: i32,
    /// The most that one block may ask for.
    pub shared_optin_bytes: i32,
}

impl GpuProperties {
    /// Compute capability, times ten.
    pub fn compute_capability(&self) -> u32 {
        let major = self.major.unsigned_abs().saturating_mul(10);
        major.saturating_add(self.minor.unsigned_abs())
    }

    pub fn multiprocessor_limits(&self) -> Multiprocessor {
        let (threads, blocks, shared) = match (self.major, self.minor) {
            (7, 5) => (1024, 16, 64),
            (..=7, _) => (2048, 32, 96),
            (8, 0) => (2048, 32, 164),
            (8, 7) => (1536, 16, 164),
            (8, 9) => (1536, 24, 100),
            (8, _) => (1536, 16, 100),
            (9, _) | (10, _) => (2048, 32, 228),
            _ => (1536, 24, 100),
        };
        let optin = match shared {
            64 | 96 => shared,
            more => more - 1,
        };
        Multiprocessor {
            threads,
            blocks,
            shared_bytes: shared << 10,
            shared_optin_bytes: optin << 10,
        }
    }
}

/// Reads the cards. A line that is not understood is an error, with its number.
pub fn parse(text: &str) -> Result<Vec<GpuProperties>, String> {
    let mut cards = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let card = one(line).map_err(|why| format!("line {}: {why}", number + 1))?;
        cards.push(card);
    }
    Ok(cards)
}

fn one(line: &str) -> Result<GpuProperties, String> {
    let rest = line.strip_prefix("card\t").ok_or("it is not a card")?;
    let mut card = GpuProperties {
        name: "virtual GPU".to_owned(),
        major: 0,
        minor: 0,
        memory_bytes: 0,
        context_bytes: 0,
        nccl_bytes: 0,
        multiprocessors: 0,
        l2_bytes: 0,
        memory_rate: 0,
        matrix_rate: 0,
    };
    for pair in rest.split('\t') {
        let (key, value) = pair.split_once('=').ok_or(format!("`{pair}` has no `=`"))?;
        let wrong = || format!("`{value}` is not a {key}");
        let number = || value.parse::<u64>().map_err(|_| wrong());
        let small = || value.parse::<i32>().map_err(|_| wrong());
        match key {
            "name" => value.clone_into(&mut card.name),
            "capability" => {
                let (major, minor) = value.split_once('.').ok_or_else(wrong)?;
                card.major = major.parse().map_err(|_| wrong())?;
                card.minor = minor.parse().map_err(|_| wrong())?;
            }
            "memory_bytes" => card.memory_bytes = number()?,
            "context_bytes" => card.context_bytes = number()?,
            "nccl_bytes" => card.nccl_bytes = number()?,
            "multiprocessors" => card.multiprocessors = small()?,
            "l2_bytes" => card.l2_bytes = small()?,
            "memory_rate" => card.memory_rate = number()?,
            "matrix_rate" => card.matrix_rate = number()?,
            _ => return Err(format!("`{key}` is not known")),
        }
    }
    match card.major > 0 && card.memory_bytes > 0 && card.multiprocessors > 0 {
        true => Ok(card),
        false => Err("capability, memory_bytes and multiprocessors are needed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_read() {
        let line =
            "card\tname=NVIDIA H100\tcapability=9.0\tmemory_bytes=85899345920\tmultiprocessors=132";
        let cards = parse(&format!("# two\n\n{line}\n{line}\n")).unwrap();
        assert_eq!(cards.len(), 2);
        assert_eq!((cards[0].major, cards[0].minor), (9, 0));
        assert_eq!(cards[0].name, "NVIDIA H100");
        assert_eq!(
            cards[0].multiprocessor_limits().shared_optin_bytes,
            227 << 10
        );
    }

    #[test]
    fn what_is_not_a_card_is_an_error_with_its_line() {
        for (text, said) in [
            ("x", "line 1: it is not a card"),
            ("\ncard\tname", "line 2: `name` has no `=`"),
            ("card\tcapability=9", "line 1: `9` is not a capability"),
            ("card\tcolour=red", "line 1: `colour` is not known"),
            (
                "card\tname=x",
                "line 1: capability, memory_bytes and multiprocessors are needed",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err(), said);
        }
    }
}
