//! Whole numbers of a policy, whose errors are words and not Rust's types.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};

/// A whole number of a type; what does not fit is told the numbers that do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BoundedNumber<T>(pub(super) T);

/// A type with a least and a greatest number.
pub(super) trait NumberBounds: TryFrom<i64> {
    const MIN_VALUE: i64;
    const MAX_VALUE: i64;
}

impl NumberBounds for u32 {
    const MIN_VALUE: i64 = 0;
    const MAX_VALUE: i64 = u32::MAX as i64;
}

impl NumberBounds for i32 {
    const MIN_VALUE: i64 = i32::MIN as i64;
    const MAX_VALUE: i64 = i32::MAX as i64;
}

struct Whole<T>(PhantomData<T>);

impl<T: NumberBounds> Visitor<'_> for Whole<T> {
    type Value = BoundedNumber<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a whole number from {} to {}",
            T::MIN_VALUE,
            T::MAX_VALUE
        )
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        let wrong = |_| E::invalid_value(Unexpected::Signed(value), &self);
        T::try_from(value).map(BoundedNumber).map_err(wrong)
    }
}

impl<'de, T: NumberBounds> Deserialize<'de> for BoundedNumber<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_i64(Whole(PhantomData))
    }
}
