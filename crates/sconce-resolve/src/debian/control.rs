//! Paragraphs of fields, the form of every control file of Debian (deb822(5)).

/// The paragraphs of a file: blocks of lines separated by blank lines.
pub(super) fn split_paragraphs(text: &str) -> impl Iterator<Item = &str> {
    text.split("\n\n")
        .filter(|paragraph| !paragraph.trim().is_empty())
}

/// The fields of a paragraph in their order. A value keeps the line breaks of a folded field.
/// Lines that are neither a field nor the continuation of one (comments too) are passed over.
pub(super) fn parse_fields(paragraph: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = paragraph;
    std::iter::from_fn(move || {
        loop {
            if rest.is_empty() {
                return None;
            }
            let (field, after) = rest.split_at(end_of_field(rest));
            rest = after;
            if let Some((name, value)) = field.split_once(':')
                && !name.starts_with([' ', '\t', '#'])
                && !name.contains('\n')
            {
                return Some((name, value.trim()));
            }
        }
    })
}

/// Where the next line begins that does not go on with the field at the beginning of `text`.
fn end_of_field(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(length) = text[at..].find('\n') {
        at += length + 1;
        if !matches!(bytes.get(at), Some(b' ' | b'\t')) {
            return at;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_may_be_folded() {
        let text =
            "# a comment: here\nDepends: a,\n b (>= 1),\n\tc\nSize: 3\n odd\nnot a field\nEmpty:\n";
        let all: Vec<_> = parse_fields(text).collect();
        assert_eq!(
            all,
            [
                ("Depends", "a,\n b (>= 1),\n\tc"),
                ("Size", "3\n odd"),
                ("Empty", "")
            ]
        );
    }

    #[test]
    fn paragraphs_are_separated_by_blank_lines() {
        assert_eq!(split_paragraphs("a: 1\n\nb: 2\n\n\n\nc: 3\n").count(), 3);
        assert_eq!(split_paragraphs("\n\n \n\n").count(), 0);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(\\PC|\n|:| ){0,60}") {
            for paragraph in split_paragraphs(&text) {
                prop_assert!(parse_fields(paragraph).count() <= paragraph.lines().count());
            }
        }
    }
}
