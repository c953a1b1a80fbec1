//! Values of a spec that have a grammar of their own. Flags of `sconce run` use them too.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::units::UnitError;

/// Which cards a run is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GpuRequest {
    /// Every card of the machine; none on a machine with none.
    All,
    /// That many, chosen by Sconce.
    Count(u32),
    /// These.
    Listed(Vec<GpuId>),
}

/// One card's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum GpuId {
    /// As the driver counts.
    Index(u32),
    /// `GPU-…`, or an unambiguous beginning of it.
    Uuid(String),
}

const GPUS_EXPECTED: &str = "\"all\", a number of cards, or a list of indices and UUIDs";

impl FromStr for GpuRequest {
    type Err = UnitError;

    /// The form of `--gpus`: `all`, a count, or `0,2` / `GPU-…` with `device=` before it where a
    /// single index is meant, as Docker has it.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError {
            text: text.to_owned(),
            expected: GPUS_EXPECTED,
        };
        let (list, explicit) = text
            .strip_prefix("device=")
            .map_or((text, false), |list| (list, true));
        match list {
            "" => return Err(wrong()),
            "all" => return Ok(Self::All),
            "none" => return Ok(Self::Count(0)),
            _ => {}
        }
        if !explicit && let Ok(count) = list.parse() {
            return Ok(Self::Count(count));
        }
        list.split(',')
            .map(GpuId::parse)
            .collect::<Option<_>>()
            .map(Self::Listed)
            .ok_or_else(wrong)
    }
}

impl GpuId {
    fn parse(text: &str) -> Option<Self> {
        if let Ok(index) = text.parse() {
            return Some(Self::Index(index));
        }
        let uuid = text.starts_with("GPU-") || text.starts_with("MIG-");
        uuid.then(|| Self::Uuid(text.to_owned()))
    }
}

impl fmt::Display for GpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "{index}"),
            Self::Uuid(uuid) => f.write_str(uuid),
        }
    }
}

impl Serialize for GpuRequest {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::All => s.serialize_str("all"),
            Self::Count(count) => s.serialize_u32(*count),
            Self::Listed(list) => list.serialize(s),
        }
    }
}

impl<'de> Deserialize<'de> for GpuRequest {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct V;
        impl<'de> de::Visitor<'de> for V {
            type Value = GpuRequest;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(GPUS_EXPECTED)
            }
            fn visit_str<E: de::Error>(self, v: &str) -> Result<GpuRequest, E> {
                v.parse().map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, v: u64) -> Result<GpuRequest, E> {
                u32::try_from(v)
                    .map(GpuRequest::Count)
                    .map_err(|_| E::custom(GPUS_EXPECTED))
            }
            fn visit_i64<E: de::Error>(self, v: i64) -> Result<GpuRequest, E> {
                let wrong = |_| E::invalid_value(de::Unexpected::Signed(v), &self);
                u32::try_from(v).map(GpuRequest::Count).map_err(wrong)
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<GpuRequest, A::Error> {
                let mut list = Vec::new();
                while let Some(id) = seq.next_element()? {
                    list.push(id);
                }
                Ok(GpuRequest::Listed(list))
            }
        }
        d.deserialize_any(V)
    }
}

/// Readings a second: 1 to 10.
pub(super) fn readings_a_second<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u32>, D::Error> {
    let count = i64::deserialize(d)?;
    match u32::try_from(count) {
        Ok(count) if (1..=10).contains(&count) => Ok(Some(count)),
        _ => Err(de::Error::invalid_value(
            de::Unexpected::Signed(count),
            &"1 to 10",
        )),
    }
}

/// A count that is not 0.
pub(super) fn at_least_one<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u64>, D::Error> {
    let count = i64::deserialize(d)?;
    match u64::try_from(count) {
        Ok(count) if count > 0 => Ok(Some(count)),
        _ => Err(de::Error::invalid_value(
            de::Unexpected::Signed(count),
            &"at least 1",
        )),
    }
}

/// What a share of a busy disk can be: what the BFQ scheduler takes. The kernel's cost model takes
/// more, with the same middle (its Documentation/block/bfq-iosched.rst, admin-guide/cgroup-v2.rst).
pub const IO_WEIGHTS: std::ops::RangeInclusive<u32> = 1..=1_000;

/// A weight of the kernel's range.
pub(super) fn io_weight<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u32>, D::Error> {
    let weight = i64::deserialize(d)?;
    let fits = u32::try_from(weight)
        .ok()
        .filter(|w| IO_WEIGHTS.contains(w));
    let wrong = || de::Error::invalid_value(de::Unexpected::Signed(weight), &"1 to 1000");
    fits.map(Some).ok_or_else(wrong)
}

/// Whether a run is placed on the CPUs and the memory next to its cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NumaPolicy {
    /// Where the machine has several memory nodes and says on which the cards are.
    Auto,
    /// It is left to the kernel.
    Off,
}

impl FromStr for NumaPolicy {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            _ => Err(UnitError {
                text: text.to_owned(),
                expected: "`auto` or `off`",
            }),
        }
    }
}

/// `SOURCE:TARGET[:ro|:rw]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountSpec {
    /// As written: absolute, or relative to the spec.
    pub source: String,
    /// Inside, absolute.
    pub target: String,
    /// `:ro` was given.
    pub read_only: bool,
}

impl FromStr for MountSpec {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError {
            text: text.to_owned(),
            expected: "a mount such as ./data:/data or ./data:/data:ro (the second part absolute)",
        };
        let mut parts = text.split(':');
        let source = parts.next().filter(|s| !s.is_empty()).ok_or_else(wrong)?;
        let target = parts
            .next()
            .filter(|t| t.starts_with('/'))
            .ok_or_else(wrong)?;
        let read_only = match parts.next() {
            None | Some("rw") => false,
            Some("ro") => true,
            Some(_) => return Err(wrong()),
        };
        if parts.next().is_some() || target.split('/').any(|part| part == "..") {
            return Err(wrong());
        }
        Ok(Self {
            source: source.to_owned(),
            target: target.to_owned(),
            read_only,
        })
    }
}

impl fmt::Display for MountSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}{}",
            self.source,
            self.target,
            if self.read_only { ":ro" } else { "" }
        )
    }
}

/// `[IP:]HOST:CONTAINER` or `PORT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortSpec {
    /// Loopback unless given.
    pub host_ip: IpAddr,
    /// Port on the host.
    pub host: u16,
    /// Port inside.
    pub container: u16,
}

impl FromStr for PortSpec {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError {
            text: text.to_owned(),
            expected: "a port such as 8888, 8888:80, 127.0.0.1:8888:80 or [::1]:8888:80",
        };
        let port = |text: &str| {
            text.parse::<u16>()
                .ok()
                .filter(|&p| p > 0)
                .ok_or_else(wrong)
        };
        let (rest, container) = match text.rsplit_once(':') {
            Some((rest, container)) => (rest, port(container)?),
            None => (text, port(text)?),
        };
        let (ip, host) = match rest.rsplit_once(':') {
            Some((ip, host)) => {
                let ip = ip
                    .strip_prefix('[')
                    .and_then(|ip| ip.strip_suffix(']'))
                    .unwrap_or(ip);
                (ip.parse().map_err(|_| wrong())?, port(host)?)
            }
            None => (IpAddr::V4(Ipv4Addr::LOCALHOST), port(rest)?),
        };
        Ok(Self {
            host_ip: ip,
            host,
            container,
        })
    }
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = std::net::SocketAddr::new(self.host_ip, self.host);
        write!(f, "{host}:{}", self.container)
    }
}

crate::units::serde_as_text!(MountSpec);
crate::units::serde_as_text!(PortSpec);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn gpus_are_a_count_a_list_or_all() {
        let gpus = |text: &str| text.parse::<GpuRequest>().ok();
        assert_eq!(gpus("all"), Some(GpuRequest::All));
        assert_eq!(gpus("2"), Some(GpuRequest::Count(2)));
        assert_eq!(
            gpus("device=2"),
            Some(GpuRequest::Listed(vec![GpuId::Index(2)]))
        );
        assert_eq!(
            gpus("0,GPU-1a"),
            Some(GpuRequest::Listed(vec![
                GpuId::Index(0),
                GpuId::Uuid("GPU-1a".into())
            ]))
        );
        assert_eq!(gpus("some"), None);
        assert_eq!(gpus("-1"), None);
        assert_eq!(gpus(""), None);
    }

    #[test]
    fn mounts_have_an_absolute_target() {
        let mount: MountSpec = "./data:/data:ro".parse().unwrap();
        assert_eq!(
            (mount.source.as_str(), mount.target.as_str()),
            ("./data", "/data")
        );
        assert!(mount.read_only);
        for text in [
            "",
            "data",
            ":/data",
            "./d:data",
            "./d:/d:rx",
            "./d:/d:ro:x",
            "./d:/d/../..",
        ] {
            assert!(text.parse::<MountSpec>().is_err(), "{text}");
        }
    }

    #[test]
    fn ports_are_on_loopback_unless_asked() {
        assert_eq!(
            "8888".parse::<PortSpec>().unwrap().to_string(),
            "127.0.0.1:8888:8888"
        );
        assert_eq!(
            "8888:80".parse::<PortSpec>().unwrap().to_string(),
            "127.0.0.1:8888:80"
        );
        assert_eq!(
            "0.0.0.0:1:2".parse::<PortSpec>().unwrap().to_string(),
            "0.0.0.0:1:2"
        );
        assert_eq!(
            "[::1]:1:2".parse::<PortSpec>().unwrap().to_string(),
            "[::1]:1:2"
        );
        for text in ["", "0", "70000", "a:1", "1:b", "1.2.3:4:5"] {
            assert!(text.parse::<PortSpec>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_never_panics(text in "\\PC*") {
            let _ = text.parse::<GpuRequest>();
            let _ = text.parse::<MountSpec>();
            let _ = text.parse::<PortSpec>();
        }
    }
}
