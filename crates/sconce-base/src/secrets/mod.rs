//! What must not be written down: passwords, keys and tokens in command lines, variables and texts.
//!
//! A record, a report, a page or an error shows [`MASKED`] in their place. They are known by the name
//! that they are given to ([`name`]) or by their own shape ([`shape`]). A secret that has neither, such
//! as a plain word as a script's third argument, is not found: docs/security.md says so.

mod name;
mod shape;

pub use name::is_secret;

/// What stands for a secret.
pub const MASKED: &str = "(masked)";

/// The value of a variable, or [`MASKED`].
#[must_use]
pub fn mask_variable(name: &str, value: &str) -> String {
    match name::should_mask(name, value) {
        true => MASKED.to_owned(),
        false => mask_text(value),
    }
}

/// A program and its arguments without secrets. `--token X`, `--token=X`, `name.token=X`, `curl -u
/// USER:PASSWORD`, and what [`mask_text`] finds.
#[must_use]
pub fn mask_command(words: &[String]) -> Vec<String> {
    let is_curl = words.first().is_some_and(|word| word.ends_with("curl"));
    let mut told = Vec::with_capacity(words.len());
    // The flag before, where its value is a secret.
    let mut flag: Option<&str> = None;
    for word in words {
        if let Some(name) = flag.take()
            && !is_flag(word)
            && name::should_mask(name, word)
        {
            told.push(MASKED.to_owned());
            continue;
        }
        if is_curl && matches!(told.last().map(String::as_str), Some("-u" | "--user")) {
            told.push(user_alone(word));
            continue;
        }
        match word.split_once('=') {
            Some((name, value)) if is_name(name) => {
                told.push(format!("{name}={}", mask_variable(name, value)));
            }
            _ => {
                flag = is_flag(word).then_some(word.as_str());
                told.push(mask_text(word));
            }
        }
    }
    told
}

/// `text` without URLs' users, private keys, tokens of known shapes, and what `password=`,
/// `"api_key": ` or `Authorization: ` stand before.
#[must_use]
pub fn mask_text(text: &str) -> String {
    shape::mask_assignments(&shape::mask_tokens(&shape::mask_url_credentials(
        &shape::private_keys(text),
    )))
}

/// What a flag or a variable can be called; not a URL, a path or a sentence.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.+@".contains(c))
}

fn is_flag(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-') && word.parse::<f64>().is_err()
}

/// `USER:(masked)` for `USER:PASSWORD`.
fn user_alone(word: &str) -> String {
    match word.split_once(':') {
        Some((user, _)) => format!("{user}:{MASKED}"),
        None => word.to_owned(),
    }
}

#[cfg(test)]
mod tests;
