//! Facts that are said instead of read: for a machine that is not here, or to try what would be.

use sconce_schema::{Hint, HostFacts, exit};
use serde_json::Value;

/// Why facts could not be overridden.
#[derive(Debug, thiserror::Error)]
pub enum OverrideError {
    /// No fact has this name.
    #[error("there is no fact `{key}`")]
    Unknown {
        /// The name, `driver.versoin`.
        key: String,
    },
    /// A value that the fact cannot have.
    #[error("the facts cannot be read with `{what}`")]
    Value {
        /// What was said.
        what: String,
        /// Why.
        source: serde_json::Error,
    },
    /// A list where a map of facts belongs.
    #[error("`{key}` is a map of facts, not a list")]
    List {
        /// The name; empty for the whole.
        key: String,
    },
    /// Text without `=`.
    #[error("`{text}` is no `FACT=VALUE`")]
    Form {
        /// The text.
        text: String,
    },
}

impl Hint for OverrideError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Unknown { .. } | Self::Form { .. } => Some(
                "facts are named as in a saved facts file, with dots between: \
                 `driver.version=535.104.05`, `cards.0.memory=24GiB`"
                    .to_owned(),
            ),
            Self::Value { .. } | Self::List { .. } => None,
        }
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// Puts a partial facts file over `facts`, as a JSON merge patch does (RFC 7396): what it names
/// wins, a null removes, a list replaces the whole list.
///
/// # Errors
/// When it names a fact that does not exist, or gives one a value that it cannot have.
pub fn merge_patch(facts: &HostFacts, patch: &Value) -> Result<HostFacts, OverrideError> {
    let mut value = to_value(facts)?;
    apply(&mut value, patch, 0);
    finish(value, patch, "the given facts")
}

/// Sets one fact by its name in a facts file, dots between: `driver.version=535.104.05`,
/// `cards.0.memory=24GiB`, `cards=[]`. The value is JSON where it is JSON, else text; an empty one
/// removes the fact.
///
/// # Errors
/// As [`merge_patch`], and when the text has no `=`.
pub fn set_fact(facts: &HostFacts, text: &str) -> Result<HostFacts, OverrideError> {
    let form = || OverrideError::Form {
        text: text.to_owned(),
    };
    let (key, said) = text.split_once('=').ok_or_else(form)?;
    let value = match said {
        "" => Value::Null,
        said => serde_json::from_str(said).unwrap_or_else(|_| Value::String(said.to_owned())),
    };
    let said_as_text = Value::String(said.to_owned());
    // `13.0` is a version, and JSON's number to the eye.
    match set_value(facts, key, value.clone(), text) {
        Err(OverrideError::Value { .. }) if value.is_number() => {
            set_value(facts, key, said_as_text, text)
        }
        result => result,
    }
}

fn set_value(
    facts: &HostFacts,
    key: &str,
    value: Value,
    text: &str,
) -> Result<HostFacts, OverrideError> {
    /// Deeper than any fact lies.
    const MAX_PATH_DEPTH: usize = 8;
    let mut whole = to_value(facts)?;
    let parts: Vec<&str> = key.split('.').collect();
    let unknown = || OverrideError::Unknown {
        key: key.to_owned(),
    };
    if parts.len() > MAX_PATH_DEPTH || parts.contains(&"") {
        return Err(unknown());
    }
    let mut at = &mut whole;
    for part in &parts {
        at = match at {
            Value::Array(list) => {
                let index: usize = part.parse().map_err(|_| unknown())?;
                list.get_mut(index).ok_or_else(unknown)?
            }
            other => {
                // What is absent becomes an object with the one field.
                if !other.is_object() {
                    *other = Value::Object(serde_json::Map::new());
                }
                let Value::Object(map) = other else {
                    return Err(unknown());
                };
                map.entry((*part).to_owned()).or_insert(Value::Null)
            }
        };
    }
    *at = value.clone();
    // The names that were used, for the check that they are facts.
    let patch = parts.iter().rev().fold(value, |inner, part| {
        Value::Object([((*part).to_owned(), inner)].into_iter().collect())
    });
    finish(whole, &patch, text)
}

fn to_value(facts: &HostFacts) -> Result<Value, OverrideError> {
    serde_json::to_value(facts).map_err(|source| OverrideError::Value {
        what: "the facts themselves".to_owned(),
        source,
    })
}

fn finish(mut value: Value, patch: &Value, what: &str) -> Result<HostFacts, OverrideError> {
    prune(&mut value);
    let facts: HostFacts =
        serde_json::from_value(value).map_err(|source| OverrideError::Value {
            what: what.to_owned(),
            source,
        })?;
    match wrong(patch, &to_value(&facts)?, "") {
        Some(error) => Err(error),
        None => Ok(facts),
    }
}

/// Removes nulls, so that a removed list or map is an empty one.
fn prune(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(prune);
        }
        Value::Array(list) => list.iter_mut().for_each(prune),
        _ => {}
    }
}

fn apply(target: &mut Value, patch: &Value, depth: usize) {
    /// Deeper than facts are, and less than serde_json reads.
    const MAX_VALUE_DEPTH: usize = 16;
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Value::Object(map) = target else { return };
    for (key, value) in patch {
        match value {
            Value::Null => {
                map.remove(key);
            }
            value if depth >= MAX_VALUE_DEPTH => {
                map.insert(key.clone(), value.clone());
            }
            value => apply(
                map.entry(key.clone()).or_insert(Value::Null),
                value,
                depth + 1,
            ),
        }
    }
}

/// The first name in `patch` that the facts did not keep, because no fact has it, or a list that
/// was taken for a map's values in order.
fn wrong(patch: &Value, kept: &Value, key: &str) -> Option<OverrideError> {
    let inner = |name: &str| match key {
        "" => name.to_owned(),
        key => format!("{key}.{name}"),
    };
    match (patch, kept) {
        (Value::Array(_), Value::Object(_)) => Some(OverrideError::List {
            key: key.to_owned(),
        }),
        (Value::Object(patch), Value::Object(kept)) => patch
            .iter()
            .filter(|(_, value)| !value.is_null())
            .find_map(|(name, value)| match kept.get(name) {
                None => Some(OverrideError::Unknown { key: inner(name) }),
                Some(kept) => wrong(value, kept, &inner(name)),
            }),
        // One entry of a list, named by its number.
        (Value::Object(patch), Value::Array(list)) => patch.iter().find_map(|(index, value)| {
            let kept = list.get(index.parse::<usize>().ok()?)?;
            wrong(value, kept, &inner(index))
        }),
        (Value::Array(patch), Value::Array(kept)) => {
            let mut pairs = patch.iter().zip(kept).enumerate();
            pairs.find_map(|(index, (patch, kept))| wrong(patch, kept, &inner(&index.to_string())))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_schema::facts::{Driver, GpuFacts};
    use sconce_schema::{Bytes, CudaVersion};
    use serde_json::json;

    fn machine() -> HostFacts {
        HostFacts {
            name: Some("here".to_owned()),
            driver: Some(Driver {
                version: "550.54.15".parse().ok(),
                modules: Some(vec!["nvidia".to_owned()]),
                ..Driver::default()
            }),
            cards: vec![GpuFacts {
                name: Some("NVIDIA A100-SXM4-80GB".to_owned()),
                memory: Some(Bytes::from_gib(80)),
                memory_by_pid: Some([(7, Bytes::from_gib(1))].into()),
                ..GpuFacts::default()
            }],
            ..HostFacts::default()
        }
    }

    #[test]
    fn one_fact_is_set() {
        let here = machine();
        let facts = set_fact(&here, "driver.version=535.104.05").unwrap();
        let driver = facts.driver.clone().unwrap();
        assert_eq!(driver.version, "535.104.05".parse().ok());
        assert_eq!(
            driver.modules,
            here.driver.clone().unwrap().modules,
            "the rest stays"
        );
        let facts = set_fact(&facts, "cards.0.memory=24GiB").unwrap();
        assert_eq!(facts.cards[0].memory, Some(Bytes::from_gib(24)));
        assert_eq!(facts.cards[0].memory_by_pid, here.cards[0].memory_by_pid);
        let facts = set_fact(&facts, "driver.cuda=12.2").unwrap();
        let cuda = facts.driver.clone().unwrap().cuda;
        assert_eq!(cuda, Some(CudaVersion::new(12, 2)));
        let facts = set_fact(&facts, "shm.size=67108864").unwrap();
        assert_eq!(facts.shm.clone().unwrap().size, Some(Bytes::from_mib(64)));
        let facts = set_fact(&facts, "variables.NCCL_DEBUG=INFO").unwrap();
        assert_eq!(facts.variables["NCCL_DEBUG"], "INFO");
        let facts = set_fact(&facts, "cards=[]").unwrap();
        let facts = set_fact(&facts, "name=").unwrap();
        assert_eq!((facts.cards.len(), facts.name), (0, None));
        assert_eq!(set_fact(&here, "cards=").unwrap().cards, []);
    }

    #[test]
    fn what_is_no_fact_is_refused() {
        let here = machine();
        for (text, message) in [
            ("driver.versoin=1.2", "there is no fact `driver.versoin`"),
            ("cards.3.memory=1GiB", "there is no fact `cards.3.memory`"),
            ("cards.0.memry=1GiB", "there is no fact `cards.0.memry`"),
            ("cards.x=1", "there is no fact `cards.x`"),
            ("..=1", "there is no fact `..`"),
            ("driver", "`driver` is no `FACT=VALUE`"),
            ("driver=[]", "`driver` is a map of facts, not a list"),
            (
                "driver.version=new",
                "the facts cannot be read with `driver.version=new`",
            ),
            ("cpus=many", "the facts cannot be read with `cpus=many`"),
        ] {
            let error = set_fact(&here, text).unwrap_err();
            assert_eq!(error.to_string(), message, "{text}");
        }
    }

    #[test]
    fn a_file_is_put_over_facts() {
        let here = machine();
        let patch = json!({ "name": null, "driver": { "version": "580.65.06" }, "cpus": 4 });
        let facts = merge_patch(&here, &patch).unwrap();
        assert_eq!((facts.name, facts.cpus), (None, Some(4)));
        let driver = facts.driver.unwrap();
        assert_eq!(driver.version, "580.65.06".parse().ok());
        assert_eq!(driver.modules, here.driver.clone().unwrap().modules);
        assert_eq!(facts.cards, here.cards);
        assert_eq!(merge_patch(&here, &json!({})).unwrap(), here);
        for (patch, key) in [
            (json!({ "drivr": 1 }), "drivr"),
            (json!({ "driver": { "x": 1 } }), "driver.x"),
            (
                json!({ "cards": [{ "index": 0, "nam": "x" }] }),
                "cards.0.nam",
            ),
        ] {
            let error = merge_patch(&here, &patch).unwrap_err();
            assert_eq!(error.to_string(), format!("there is no fact `{key}`"));
        }
        assert!(matches!(
            merge_patch(&here, &json!([])),
            Err(OverrideError::List { .. })
        ));
    }

    #[test]
    fn nested_nonsense_ends() {
        let mut deep = json!(1);
        for _ in 0..100 {
            deep = json!({ "x": deep });
        }
        assert!(merge_patch(&machine(), &json!({ "driver": deep })).is_err());
        assert!(set_fact(&machine(), &format!("{}=1", "a.".repeat(5000))).is_err());
    }
}
