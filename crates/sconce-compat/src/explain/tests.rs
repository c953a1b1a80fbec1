use super::*;

#[test]
fn every_rule_is_read() {
    let mut wrong = Vec::new();
    for file in files::FILES {
        if let Err(error) = Rules::parse(&[file]) {
            let source = std::error::Error::source(&error).map(ToString::to_string);
            wrong.push(format!("{error}: {}", source.unwrap_or_default()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_example_is_explained_by_its_rule_first() {
    let mut wrong = Vec::new();
    for (rule, (file, _)) in Rules::own().rules.iter().zip(files::FILES) {
        for example in &rule.examples {
            let explanation = explain(example.as_bytes(), None, &Environment::default());
            let first = explanation.causes.first().map(|cause| cause.code.as_str());
            if first != Some(rule.code.as_str()) || explanation.unknown.is_some() {
                let all: Vec<_> = explanation
                    .causes
                    .iter()
                    .map(|c| (&c.code, c.points, &c.consequence_of))
                    .collect();
                wrong.push(format!("{file}: {example}\n    {all:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
