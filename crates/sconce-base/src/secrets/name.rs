//! Names of secrets: the last word of a name says what it is.

/// Whatever else a name says.
const SECRET_WORDS: [&str; 9] = [
    "APIKEY",
    "CREDENTIAL",
    "CREDENTIALS",
    "PASSPHRASE",
    "PASSWD",
    "PASSWORD",
    "PASSWORDS",
    "SECRET",
    "SECRETS",
];
/// As the last word.
const SECRET_LAST_WORDS: [&str; 10] = [
    "ACCESS",
    "API",
    "APITOKEN",
    "AUTH",
    "AUTHORIZATION",
    "BEARER",
    "KEY",
    "PASS",
    "TOKEN",
    "AUTHTOKEN",
];
/// These two after each other, wherever they are.
const SECRET_WORD_PAIRS: [(&str, &str); 11] = [
    ("ACCESS", "KEY"),
    ("ACCESS", "TOKEN"),
    ("ACCESS", "TOKENS"),
    ("API", "KEY"),
    ("API", "KEYS"),
    ("API", "TOKEN"),
    ("API", "TOKENS"),
    ("AUTH", "TOKEN"),
    ("AUTH", "TOKENS"),
    ("PRIVATE", "KEY"),
    ("REFRESH", "TOKEN"),
];
/// Last words that say that the value tells about a secret, or where one is.
const ABOUT: [&str; 33] = [
    "COUNT", "DIM", "DIR", "ENDPOINT", "ENV", "EXPIRY", "FILE", "FOLDER", "FORMAT", "HEADS",
    "HOST", "INDEX", "KIND", "LEN", "LENGTH", "LIMIT", "LOSS", "METHOD", "MODE", "NAME", "NUM",
    "PATH", "PORT", "PROVIDER", "REGION", "SIZE", "SOCK", "SOCKET", "TIMEOUT", "TTL", "TYPE",
    "URL", "VERSION",
];
/// Before TOKEN: those of a language.
const OF_LANGUAGE: [&str; 33] = [
    "AUDIO",
    "BOS",
    "CLASS",
    "CLS",
    "DECODER",
    "END",
    "EOS",
    "IMAGE",
    "IMG",
    "INITIALIZER",
    "INSTANCE",
    "LAST",
    "MASK",
    "MASKED",
    "MAX",
    "MIN",
    "MODIFIER",
    "N",
    "NEW",
    "NEWLINE",
    "NEXT",
    "NUM",
    "PAD",
    "PER",
    "PLACEHOLDER",
    "PROMPT",
    "SEP",
    "SPECIAL",
    "START",
    "STOP",
    "TRIGGER",
    "UNK",
    "VIDEO",
];
/// Before KEY: those of a table.
const OF_TABLE: [&str; 23] = [
    "AUDIO", "CACHE", "CAPTION", "COLUMN", "DATA", "DICT", "GROUP", "IMAGE", "INPUT", "LABEL",
    "METRIC", "OUTPUT", "PRIMARY", "PROMPT", "QUERY", "RESPONSE", "SAMPLE", "SORT", "STATE",
    "TARGET", "TEXT", "VALUE", "VIDEO",
];
/// First words of switches, which have no value of their own.
const SWITCHES: [&str; 8] = [
    "ALLOW", "DISABLE", "ENABLE", "HAS", "NO", "REQUIRE", "USE", "WITH",
];

/// Whether something of this name is a secret: `HF_TOKEN`, `--db-password`, `wandb.apiKey`.
#[must_use]
pub fn is_secret(name: &str) -> bool {
    let words = words(name);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some((&last, before)) = words.split_last() else {
        return false;
    };
    let pair = words
        .windows(2)
        .any(|two| SECRET_WORD_PAIRS.contains(&(two[0], two[1])));
    if ABOUT.contains(&last) {
        return false;
    }
    if pair || words.iter().any(|word| SECRET_WORDS.contains(word)) {
        return true;
    }
    let is_of = |list: &[&str]| before.last().is_some_and(|word| list.contains(word));
    SECRET_LAST_WORDS.contains(&last)
        && !(last == "TOKEN" && is_of(&OF_LANGUAGE))
        && !(last == "KEY" && is_of(&OF_TABLE))
}

/// Whether a value of this name is to be masked.
pub(super) fn should_mask(name: &str, value: &str) -> bool {
    if value.is_empty() || !is_secret(name) {
        return false;
    }
    let words = words(name);
    if words
        .iter()
        .any(|word| SECRET_WORDS.contains(&word.as_str()))
    {
        return true;
    }
    let switch = words
        .first()
        .is_some_and(|word| SWITCHES.contains(&word.as_str()));
    let is_word = |word: &&str| value.eq_ignore_ascii_case(word);
    let plain = ["true", "false", "yes", "no", "on", "off", "none", "null"]
        .iter()
        .any(is_word);
    // No token is a small number; `<pad>` and `[MASK]` are of a language.
    let number = value.len() < 7 && value.parse::<f64>().is_ok();
    let special = (value.starts_with('<') && value.ends_with('>'))
        || (value.starts_with('[') && value.ends_with(']'));
    // Where it is, as curl, shells and `--otlp-header` have it.
    let elsewhere = value.starts_with(['@', '$']);
    !(plain || number || special || elsewhere || (switch && value.len() < 16))
}

/// In capitals, as `_`, `-`, `.` and capitals part them.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut small = false;
    for c in name.chars() {
        if !c.is_ascii_alphanumeric() || (small && c.is_ascii_uppercase()) {
            words.push(String::new());
        }
        small = c.is_ascii_lowercase();
        if let (true, Some(word)) = (c.is_ascii_alphanumeric(), words.last_mut()) {
            word.push(c.to_ascii_uppercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}
