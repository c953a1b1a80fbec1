//! Figures with their units, and how they are told.

use sconce_schema::Bytes;

use crate::format::{format_duration, format_percent};

/// A figure that a rule may name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FigureValue {
    /// 0 to 1.
    Share(f64),
    /// Bytes; of a growth, bytes a step.
    Bytes(f64),
    /// Microseconds.
    Time(f64),
    Count(f64),
    Text(String),
    Flag(bool),
}

/// What a figure is measured in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FigureUnit {
    Share,
    Bytes,
    Time,
    Count,
    Text,
    Flag,
}

impl FigureValue {
    pub(crate) fn unit(&self) -> FigureUnit {
        match self {
            Self::Share(_) => FigureUnit::Share,
            Self::Bytes(_) => FigureUnit::Bytes,
            Self::Time(_) => FigureUnit::Time,
            Self::Count(_) => FigureUnit::Count,
            Self::Text(_) => FigureUnit::Text,
            Self::Flag(_) => FigureUnit::Flag,
        }
    }

    pub(crate) fn as_number(&self) -> Option<f64> {
        match self {
            Self::Share(n) | Self::Bytes(n) | Self::Time(n) | Self::Count(n) => Some(*n),
            Self::Text(_) | Self::Flag(_) => None,
        }
    }

    /// For a sentence.
    pub(crate) fn format_value(&self) -> String {
        match self {
            Self::Share(share) => format_percent(*share),
            Self::Bytes(bytes) => Bytes(bytes.max(0.0).round() as u64).to_string(),
            Self::Time(us) => format_precise_duration(*us),
            Self::Count(n) => format_number(*n),
            Self::Text(text) => text.clone(),
            Self::Flag(yes) => (if *yes { "yes" } else { "no" }).to_owned(),
        }
    }
}

/// A number of things: `3`, `1 204`, `2.5`.
pub(crate) fn format_number(n: f64) -> String {
    if n.fract().abs() > 0.05 && n.abs() < 100.0 {
        return format!("{n:.1}");
    }
    let digits = format!("{:.0}", n.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) && digits.len() > 4 {
            text.push(' ');
        }
        text.push(digit);
    }
    if n < 0.0 { format!("−{text}") } else { text }
}

/// A length of time, finer than [`format_duration`] below a tenth of a second: `0.62 ms`, `45.1 ms`.
pub(crate) fn format_precise_duration(us: f64) -> String {
    match us.max(0.0) {
        us if us < 9_995.0 => format!("{:.2} ms", us / 1e3),
        us if us < 99_950.0 => format!("{:.1} ms", us / 1e3),
        us => format_duration(us.round() as u64),
    }
}

/// Where something lies: `between 39.1 and 53.0 ms`; `at 1.2 s` where both read the same.
pub(crate) fn format_range(low_us: f64, high_us: f64) -> String {
    let (low, high) = (
        format_precise_duration(low_us),
        format_precise_duration(high_us),
    );
    if low == high {
        return format!("at {low}");
    }
    match (low.split_once(' '), high.split_once(' ')) {
        // A unit that both have is said once.
        (Some((number, unit)), Some((_, same))) if unit == same => {
            format!("between {number} and {high}")
        }
        _ => format!("between {low} and {high}"),
    }
}
