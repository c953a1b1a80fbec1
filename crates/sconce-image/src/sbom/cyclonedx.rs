//! CycloneDX 1.6 in JSON (ECMA-424 and its JSON schema).

use serde::Serialize;

use super::{Component as Item, License, SbomSubject, VERSION, name_of, one_line, purl, utc};
use sconce_oci as oci;

const IMAGE: &str = "image";
/// The property that holds a package's size, which the format has no field for.
pub(super) const SIZE: &str = "sconce:size-bytes";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    bom_format: &'static str,
    spec_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    serial_number: Option<String>,
    version: u32,
    metadata: Metadata<'a>,
    components: Vec<Component<'a>>,
    dependencies: [Dependency; 1],
}

#[derive(Serialize)]
struct Metadata<'a> {
    timestamp: String,
    tools: Tools,
    component: Component<'a>,
}

#[derive(Serialize)]
struct Tools {
    components: [Tool; 1],
}

#[derive(Serialize)]
struct Tool {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'static str,
    version: &'static str,
}

#[derive(Serialize)]
struct Component<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(rename = "bom-ref")]
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    supplier: Option<NamedLicense<'a>>,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hashes: Vec<Hash>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    licenses: Vec<Choice<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    purl: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    properties: Vec<Property>,
}

#[derive(Serialize)]
struct NamedLicense<'a> {
    name: &'a str,
}

#[derive(Serialize)]
struct Hash {
    alg: &'static str,
    content: String,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Choice<'a> {
    Expression(&'a str),
    License { name: String, text: Text<'a> },
}

#[derive(Serialize)]
struct Text<'a> {
    content: &'a str,
}

#[derive(Serialize)]
struct Property {
    name: &'static str,
    value: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Dependency {
    #[serde(rename = "ref")]
    of: &'static str,
    depends_on: Vec<String>,
}

/// The CycloneDX document of an image. The same subject gives the same bytes; the serial number is
/// a UUID of its content.
///
/// The image depends on every package. What packages need of each other is not in a lock and is
/// left out, which means "not known".
#[must_use]
pub fn render_document(subject: &SbomSubject<'_>) -> Vec<u8> {
    let items = subject.components();
    let mut document = Document {
        bom_format: "CycloneDX",
        spec_version: "1.6",
        serial_number: None,
        version: 1,
        metadata: Metadata {
            timestamp: utc(subject.created_s),
            tools: Tools {
                components: [Tool {
                    kind: "application",
                    name: "sconce",
                    version: VERSION,
                }],
            },
            component: image(subject),
        },
        dependencies: [Dependency {
            of: IMAGE,
            depends_on: items.iter().map(|item| item.id.clone()).collect(),
        }],
        components: items.iter().map(component).collect(),
    };
    document.serial_number = Some(name_of(&oci::to_json(&document)));
    oci::to_json(&document)
}

fn image<'a>(subject: &SbomSubject<'a>) -> Component<'a> {
    let manifest = subject.manifest.as_ref();
    Component {
        kind: "container",
        id: IMAGE.to_owned(),
        supplier: None,
        name: subject.name,
        version: manifest.map(ToString::to_string),
        hashes: manifest
            .map(|digest| sha256(digest.to_hex()))
            .into_iter()
            .collect(),
        licenses: Vec::new(),
        purl: manifest.map(|digest| purl::for_image(subject.name, digest)),
        properties: Vec::new(),
    }
}

fn component<'a>(item: &'a Item<'_>) -> Component<'a> {
    let size = |bytes: u64| Property {
        name: SIZE,
        value: bytes.to_string(),
    };
    Component {
        kind: "library",
        id: item.id.clone(),
        supplier: item.supplier.as_deref().map(|name| NamedLicense { name }),
        name: item.name,
        version: Some(item.version.to_owned()),
        hashes: vec![sha256(item.sha256.to_string())],
        licenses: item.license.and_then(choice).into_iter().collect(),
        purl: Some(item.purl.clone()),
        properties: item.size_bytes.map(size).into_iter().collect(),
    }
}

fn choice(license: &License) -> Option<Choice<'_>> {
    if let Some(expression) = license.valid_expression() {
        return Some(Choice::Expression(expression));
    }
    let content = license.raw_text();
    let name = one_line(content.trim().lines().next()?)?;
    Some(Choice::License {
        name,
        text: Text { content },
    })
}

fn sha256(content: String) -> Hash {
    Hash {
        alg: "SHA-256",
        content,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{fixture_lock, fixture_metadata};
    use super::*;
    use serde_json::{Value, json};

    fn made() -> Value {
        let lock = fixture_lock();
        let subject = SbomSubject {
            name: "digits",
            manifest: Some(oci::Digest::hash_bytes(b"manifest")),
            lock: &lock,
            facts: &fixture_metadata(&lock),
            created_s: 0,
        };
        let bytes = render_document(&subject);
        assert_eq!(bytes, render_document(&subject));
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn names_the_image_and_all_it_depends_on() {
        let made = made();
        assert_eq!(made["metadata"]["component"]["type"], "container");
        let components = made["components"].as_array().unwrap();
        let ids: Vec<_> = components
            .iter()
            .map(|one| one["bom-ref"].clone())
            .collect();
        assert_eq!(
            made["dependencies"],
            json!([{"ref": "image", "dependsOn": ids}])
        );
        let tzdata = &components[3];
        let purl = "pkg:deb/debian/tzdata@1:2025b-4%2Bdeb13u1?arch=all&distro=trixie";
        assert_eq!(tzdata["purl"], purl);
        assert_eq!(tzdata["supplier"]["name"], "Debian");
        assert_eq!(
            tzdata["properties"],
            json!([{"name": SIZE, "value": "260000"}])
        );
        assert!(
            components[1]["properties"].is_null(),
            "a size that is not known"
        );
        assert!(!made.to_string().contains("example.org"));
    }

    #[test]
    fn licences_are_said_as_far_as_known() {
        let made = made();
        let licenses = |at: usize| made["components"][at]["licenses"].clone();
        assert_eq!(
            licenses(1),
            json!([{"expression": "MIT AND LicenseRef-Own"}])
        );
        let name = &licenses(0)[0]["license"]["name"];
        assert_eq!(name, "NVIDIA Proprietary Software");
        assert!(licenses(2).is_null());
    }
}
