//! What things cost.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::Deserialize;

/// A price file.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Prices {
    /// Shown beside costs, such as `EUR`.
    pub currency: String,
    /// Of a core.
    #[serde(default)]
    pub cpu_hour: Option<f64>,
    /// Of memory.
    #[serde(default)]
    pub gib_hour: Option<f64>,
    /// Of the cards' energy.
    #[serde(default)]
    pub kwh: Option<f64>,
    /// Of a card held, by its product name; `*` stands for anything.
    #[serde(default)]
    gpu_hour: BTreeMap<String, f64>,
}

/// A price file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PriceError {
    /// Not such a file.
    #[error(transparent)]
    Toml(#[from] toml::de::Error),
    /// A price that is none.
    #[error("`{key}` costs {price}: a price is a number from 0 on")]
    NotAPrice {
        /// Which.
        key: String,
        /// What is said.
        price: f64,
    },
}

impl FromStr for Prices {
    type Err = PriceError;

    fn from_str(text: &str) -> Result<Self, PriceError> {
        let prices: Self = toml::from_str(text)?;
        let named = [
            ("cpu-hour", prices.cpu_hour),
            ("gib-hour", prices.gib_hour),
            ("kwh", prices.kwh),
        ];
        let named = named
            .into_iter()
            .filter_map(|(key, price)| Some((key, price?)));
        let cards = prices
            .gpu_hour
            .iter()
            .map(|(key, price)| (key.as_str(), *price));
        for (key, price) in named.chain(cards) {
            if !(price.is_finite() && price >= 0.0) {
                let key = key.to_owned();
                return Err(PriceError::NotAPrice { key, price });
            }
        }
        Ok(prices)
    }
}

impl Prices {
    /// Whether cards cost anything.
    pub(super) fn has_cards(&self) -> bool {
        !self.gpu_hour.is_empty()
    }

    /// Of a card by that name: of the patterns that match, the longest counts.
    #[must_use]
    pub fn of_card(&self, name: &str) -> Option<f64> {
        let matching = self
            .gpu_hour
            .iter()
            .filter(|(pattern, _)| matches(pattern, name));
        let longest = matching.max_by_key(|(pattern, _)| pattern.len());
        longest.map(|(_, price)| *price)
    }
}

/// Whether `pattern` matches the whole of `name`; `*` matches anything. Capitals do not count.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.to_lowercase(), name.to_lowercase());
    let mut parts = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    // The first place of each part leaves the most for those after it.
    for part in middle {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_longest_pattern_counts() {
        let prices: Prices = "currency = \"EUR\"\n[gpu-hour]\n\"*\" = 1\n\"*H100*\" = 3\n\"NVIDIA H100 PCIe\" = 2.5\n"
            .parse()
            .unwrap();
        assert_eq!(prices.of_card("NVIDIA H100 PCIe"), Some(2.5));
        assert_eq!(prices.of_card("nvidia h100 80GB HBM3"), Some(3.0));
        assert_eq!(prices.of_card("Tesla P4"), Some(1.0));
        let none: Prices = "currency = \"EUR\"".parse().unwrap();
        assert_eq!(none.of_card("Tesla P4"), None);
    }

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("a*b", "ab", true),
            ("a*b", "axxb", true),
            ("a*b", "aba", false),
            ("ab*ba", "aba", false),
            ("*a*a*", "xaxax", true),
            ("", "", true),
            ("", "x", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn what_is_no_price_is_refused() {
        for text in [
            "",
            "currency = 1",
            "currency = \"EUR\"\nkwh = -1.0",
            "currency = \"EUR\"\nkwh = nan",
            "currency = \"EUR\"\ngpuhour = 1",
            "currency = \"EUR\"\n[gpu-hour]\n\"*\" = inf",
        ] {
            assert!(text.parse::<Prices>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text: String, pattern: String, name: String) {
            let _ = text.parse::<Prices>();
            let _ = matches(&pattern, &name);
        }
    }
}
