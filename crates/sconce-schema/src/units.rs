//! Units: every number that crosses a crate's border has its unit in its type.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A text that is not a value of the unit it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {expected}")]
pub struct UnitError {
    /// The text that was given.
    pub text: String,
    /// What would have been accepted, as the end of the sentence "… is not …".
    pub expected: &'static str,
}

impl UnitError {
    pub(crate) fn new(text: &str, expected: &'static str) -> Self {
        Self {
            text: text.to_owned(),
            expected,
        }
    }
}

/// A number of bytes. Reads `512MiB`, `4GiB`, `1.5GiB`, `4g` (as Docker does: 1024-based) and
/// plain bytes; prints KiB, MiB, GiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(pub u64);

const BYTES_EXPECTED: &str = "a size such as 512MiB or 4GiB";

impl Bytes {
    /// `n` KiB.
    #[must_use]
    pub const fn from_kib(n: u64) -> Self {
        Self(n << 10)
    }
    /// `n` MiB.
    #[must_use]
    pub const fn from_mib(n: u64) -> Self {
        Self(n << 20)
    }
    /// `n` GiB.
    #[must_use]
    pub const fn from_gib(n: u64) -> Self {
        Self(n << 30)
    }
}

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError::new(text, BYTES_EXPECTED);
        let trimmed = text.trim();
        let split = trimmed
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(wrong()),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(factor).map(Self).ok_or_else(wrong);
        }
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let bytes = number * factor as f64;
        if !bytes.is_finite() || bytes >= 9e18 || factor == 1 {
            return Err(wrong());
        }
        Ok(Self(bytes.round() as u64))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        // 1023.5 would print as 1024 of the smaller unit.
        while value >= 1023.5 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        if value >= 99.95 || value.fract() < 1e-9 {
            write!(f, "{value:.0} {}", UNITS[unit])
        } else {
            write!(f, "{value:.1} {}", UNITS[unit])
        }
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl de::Visitor<'_> for V {
            type Value = Bytes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(BYTES_EXPECTED)
            }
            fn visit_str<E: de::Error>(self, v: &str) -> Result<Bytes, E> {
                v.parse().map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, v: u64) -> Result<Bytes, E> {
                Ok(Bytes(v))
            }
            fn visit_i64<E: de::Error>(self, v: i64) -> Result<Bytes, E> {
                u64::try_from(v)
                    .map(Bytes)
                    .map_err(|_| E::custom("a size cannot be negative"))
            }
        }
        d.deserialize_any(V)
    }
}

/// How much memory a process may keep from being swapped out (`RLIMIT_MEMLOCK`, getrlimit(2)):
/// a size, or `unlimited`, which RDMA wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockedMemory {
    /// This much.
    Limited(Bytes),
    /// As much as there is.
    Unlimited,
}

impl FromStr for LockedMemory {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        if text.trim() == "unlimited" {
            return Ok(Self::Unlimited);
        }
        text.parse()
            .map(Self::Limited)
            .map_err(|_| UnitError::new(text, "a size such as 64MiB, or `unlimited`"))
    }
}

impl fmt::Display for LockedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limited(bytes) => bytes.fmt(f),
            Self::Unlimited => f.write_str("unlimited"),
        }
    }
}

impl Serialize for LockedMemory {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Limited(bytes) => bytes.serialize(s),
            Self::Unlimited => s.serialize_str("unlimited"),
        }
    }
}

impl<'de> Deserialize<'de> for LockedMemory {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl de::Visitor<'_> for V {
            type Value = LockedMemory;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as 64MiB, or `unlimited`")
            }
            fn visit_str<E: de::Error>(self, v: &str) -> Result<LockedMemory, E> {
                v.parse().map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, v: u64) -> Result<LockedMemory, E> {
                Ok(LockedMemory::Limited(Bytes(v)))
            }
            fn visit_i64<E: de::Error>(self, v: i64) -> Result<LockedMemory, E> {
                let size = u64::try_from(v).map_err(|_| E::custom("a size cannot be negative"))?;
                Ok(LockedMemory::Limited(Bytes(size)))
            }
        }
        d.deserialize_any(V)
    }
}

/// CPU time per time, in thousandths of a core: 2000 is two cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millicores(pub u32);

const CPUS_EXPECTED: &str = "a number of cores above 0 such as 2 or 0.5";

impl Millicores {
    /// From a number of cores; `None` unless it is a number between 0.001 and 65,536.
    #[must_use]
    pub fn from_cores(cores: f64) -> Option<Self> {
        (cores.is_finite() && (0.001..=65_536.0).contains(&cores))
            .then(|| Self((cores * 1000.0).round() as u32))
    }

    /// The number of cores.
    #[must_use]
    pub fn as_cores(self) -> f64 {
        f64::from(self.0) / 1000.0
    }
}

impl FromStr for Millicores {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        text.trim()
            .parse()
            .ok()
            .and_then(Self::from_cores)
            .ok_or_else(|| UnitError::new(text, CPUS_EXPECTED))
    }
}

impl fmt::Display for Millicores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.as_cores())
    }
}

impl Serialize for Millicores {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_f64(self.as_cores())
    }
}

impl<'de> Deserialize<'de> for Millicores {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let cores = f64::deserialize(d)?;
        Self::from_cores(cores)
            .ok_or_else(|| de::Error::custom(UnitError::new(&cores.to_string(), CPUS_EXPECTED)))
    }
}

/// Written and read as text, by `Display` and `FromStr`.
macro_rules! serde_as_text {
    ($name:ident) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(d)?
                    .parse()
                    .map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use serde_as_text;

/// A version of two numbers that reads and prints as `A.B`.
macro_rules! dotted_pair {
    ($(#[$doc:meta])* $name:ident, $expected:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            /// The first number.
            pub major: u32,
            /// The second number.
            pub minor: u32,
        }

        impl $name {
            /// `major.minor`.
            #[must_use]
            pub const fn new(major: u32, minor: u32) -> Self {
                Self { major, minor }
            }
        }

        impl FromStr for $name {
            type Err = UnitError;

            /// Takes the first two numbers; what follows a second dot is ignored.
            fn from_str(text: &str) -> Result<Self, UnitError> {
                let mut parts = text.trim().splitn(3, '.').map(|p| p.parse::<u32>());
                match (parts.next(), parts.next()) {
                    (Some(Ok(major)), Some(Ok(minor))) => Ok(Self { major, minor }),
                    _ => Err(UnitError::new(text, $expected)),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}.{}", self.major, self.minor)
            }
        }

        serde_as_text!($name);
    };
}

dotted_pair!(
    /// A CUDA toolkit version, `13.2`.
    CudaVersion,
    "a CUDA version such as 13.2"
);

dotted_pair!(
    /// A GPU's compute capability, `9.0`.
    ComputeCapability,
    "a compute capability such as 9.0"
);

impl CudaVersion {
    /// The oldest Linux driver that runs programs built with this CUDA version: the floor of
    /// minor-version compatibility (NVIDIA's CUDA compatibility guide, "minor version
    /// compatibility": 11.x needs 450.80.02, 12.x needs 525.60.13, 13.x needs 580.65.06).
    /// `None` for a major version that this program does not know.
    #[must_use]
    pub fn lowest_driver(self) -> Option<DriverVersion> {
        let (major, minor, patch) = match self.major {
            11 => (450, 80, 2),
            12 => (525, 60, 13),
            13 => (580, 65, 6),
            _ => return None,
        };
        Some(DriverVersion {
            major,
            minor,
            patch: Some(patch),
        })
    }
}

/// An NVIDIA driver version, `580.65.06` or `595.45`. Orders by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DriverVersion {
    /// The branch, `580`.
    pub major: u32,
    /// The second number.
    pub minor: u32,
    /// The third number, where there is one. It prints with two digits, as NVIDIA writes it.
    pub patch: Option<u32>,
}

impl FromStr for DriverVersion {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError::new(text, "a driver version such as 580.65.06");
        let mut parts = text
            .trim()
            .split('.')
            .map(|p| p.parse::<u32>().map_err(|_| wrong()));
        let major = parts.next().ok_or_else(wrong)??;
        let minor = parts.next().ok_or_else(wrong)??;
        let patch = parts.next().transpose()?;
        if parts.next().is_some() {
            return Err(wrong());
        }
        Ok(Self {
            major,
            minor,
            patch,
        })
    }
}

impl fmt::Display for DriverVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:02}", self.major, self.minor)?;
        self.patch.map_or(Ok(()), |patch| write!(f, ".{patch:02}"))
    }
}

serde_as_text!(DriverVersion);

/// A SHA-256 digest. Reads 64 hexadecimal digits, with or without `sha256:` before them; prints
/// the digits alone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha256(pub [u8; 32]);

impl FromStr for Sha256 {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError::new(text, "a SHA-256 digest (64 hexadecimal digits)");
        let digits = text.strip_prefix("sha256:").unwrap_or(text).as_bytes();
        if digits.len() != 64 {
            return Err(wrong());
        }
        let mut out = [0_u8; 32];
        for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
            let high = (pair[0] as char).to_digit(16).ok_or_else(wrong)?;
            let low = (pair[1] as char).to_digit(16).ok_or_else(wrong)?;
            *byte = (high * 16 + low) as u8;
        }
        Ok(Self(out))
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{self}")
    }
}

serde_as_text!(Sha256);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_read_what_people_write() {
        for (text, bytes) in [
            ("0", 0),
            ("512MiB", 512 << 20),
            ("4GiB", 4 << 30),
            ("1.5 GiB", 3 << 29),
            ("4g", 4 << 30),
            ("64m", 64 << 20),
            ("1GB", 1_000_000_000),
        ] {
            assert_eq!(text.parse::<Bytes>(), Ok(Bytes(bytes)), "{text}");
        }
        for text in [
            "",
            "GiB",
            "-1",
            "1.2.3GiB",
            "4 gigs",
            "99999999999TiB",
            "1.5",
        ] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_print_in_binary_units() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (1_048_063, "1023 KiB"),
            (1_048_064, "1.0 MiB"),
            (1536, "1.5 KiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (512 << 20, "512 MiB"),
            (3_030_000_000, "2.8 GiB"),
        ] {
            assert_eq!(Bytes(bytes).to_string(), text);
        }
    }

    #[test]
    fn cores_are_positive() {
        assert_eq!("0.5".parse(), Ok(Millicores(500)));
        for text in ["0", "-1", "nan", "inf", "two"] {
            assert!(text.parse::<Millicores>().is_err(), "{text}");
        }
    }

    #[test]
    fn drivers_order_by_number() {
        let driver = |text: &str| text.parse::<DriverVersion>().unwrap();
        assert!(driver("525.60.13") < driver("580.65.06"));
        assert!(driver("580.65.06") < driver("580.126.09"));
        assert_eq!(driver("580.65.06").to_string(), "580.65.06");
        assert!("580".parse::<DriverVersion>().is_err());
        assert_eq!(
            CudaVersion::new(13, 2).lowest_driver(),
            Some(driver("580.65.06"))
        );
        assert_eq!(CudaVersion::new(99, 0).lowest_driver(), None);
    }

    proptest! {
        #[test]
        fn digests_survive_text(bytes: [u8; 32]) {
            let digest = Sha256(bytes);
            prop_assert_eq!(digest.to_string().parse::<Sha256>(), Ok(digest));
            prop_assert_eq!(format!("{digest:?}").parse::<Sha256>(), Ok(digest));
        }

        #[test]
        fn no_text_panics(text in "\\PC*") {
            let _ = text.parse::<Bytes>();
            let _ = text.parse::<Sha256>();
            let _ = text.parse::<DriverVersion>();
            let _ = text.parse::<CudaVersion>();
        }
    }
}
