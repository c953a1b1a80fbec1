//! Directories as targets name them: with variables, `/scratch/$USER`.

/// Puts variables in the place of `$NAME` and `${NAME}`.
///
/// # Errors
/// The name of one that `value` does not have, or that is empty.
pub(super) fn expand_variables(
    directory: &str,
    value: impl Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let mut path = String::new();
    let mut rest = directory;
    while let Some((before, after)) = rest.split_once('$') {
        path += before;
        let (name, behind) = match after
            .strip_prefix('{')
            .and_then(|text| text.split_once('}'))
        {
            Some(braced) => braced,
            None => {
                let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
                after.split_at(after.find(|c| !is_part(c)).unwrap_or(after.len()))
            }
        };
        let value = value(name).filter(|value| !value.is_empty());
        path += &value.ok_or_else(|| name.to_owned())?;
        rest = behind;
    }
    path += rest;
    Ok(path)
}
