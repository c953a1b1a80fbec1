//! Flags that take a number or a size, and say in words what they take.

use sconce_schema::Bytes;

/// A parser of whole numbers from `least` to `most`; all that the type has where `most` is
/// `u64::MAX`.
pub(crate) fn whole_number_parser<T: TryFrom<u64>>(
    least: u64,
    most: u64,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text
            .parse::<u64>()
            .ok()
            .filter(|n| (least..=most).contains(n));
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| match most {
            u64::MAX => format!("not a whole number of {least} or more"),
            most => format!("not a whole number from {least} to {most}"),
        })
    }
}

/// A size that leaves something.
pub(crate) fn some_size(text: &str) -> Result<Bytes, String> {
    match text.parse() {
        Ok(Bytes(0)) => Err("that is nothing at all".to_owned()),
        size => {
            size.map_err(|error: sconce_schema::units::UnitError| format!("not {}", error.expected))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_told_those_that_are() {
        let many = whole_number_parser::<u64>(1, u64::MAX);
        assert_eq!(many("7"), Ok(7));
        for wrong in ["0", "-1", "", "x", "1.5", "99999999999999999999"] {
            let why = Err("not a whole number of 1 or more".to_owned());
            assert_eq!(many(wrong), why, "{wrong}");
        }
        let few = whole_number_parser::<u32>(2, 1024);
        let why = Err("not a whole number from 2 to 1024".to_owned());
        assert_eq!((few("1024"), few("1025")), (Ok(1024), why));
        assert!(whole_number_parser::<u16>(0, u64::MAX)("65536").is_err());
    }

    #[test]
    fn no_size_is_no_limit() {
        assert_eq!(some_size("64MiB"), Ok(Bytes::from_mib(64)));
        for wrong in ["0", "0GiB"] {
            assert_eq!(some_size(wrong), Err("that is nothing at all".to_owned()));
        }
        let said = some_size("much").unwrap_err();
        assert!(said.starts_with("not a size such as"), "{said}");
    }
}
