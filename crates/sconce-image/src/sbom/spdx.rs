//! SPDX 2.3 in JSON (the SPDX specification, version 2.3, and its JSON schema).

use std::collections::BTreeMap;

use serde::Serialize;
use sha2::Digest as _;

use super::license::own_references;
use super::{Component, License, SbomSubject, VERSION, name_of, one_line, purl, utc};
use sconce_oci as oci;

const UNKNOWN: &str = "NOASSERTION";
const DOCUMENT: &str = "SPDXRef-DOCUMENT";
const IMAGE: &str = "SPDXRef-Image";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    spdx_version: &'static str,
    data_license: &'static str,
    #[serde(rename = "SPDXID")]
    id: &'static str,
    name: &'a str,
    document_namespace: String,
    creation_info: CreationInfo,
    packages: Vec<Package<'a>>,
    relationships: Vec<Relationship>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    has_extracted_licensing_infos: Vec<ExtractedLicense>,
}

#[derive(Serialize)]
struct CreationInfo {
    created: String,
    creators: [String; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Package<'a> {
    #[serde(rename = "SPDXID")]
    id: String,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version_info: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    package_file_name: Option<&'a str>,
    supplier: String,
    download_location: &'static str,
    files_analyzed: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    checksums: Vec<Checksum>,
    license_concluded: &'static str,
    license_declared: String,
    copyright_text: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    primary_package_purpose: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    external_refs: Vec<ExternalRef>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Checksum {
    algorithm: &'static str,
    checksum_value: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExternalRef {
    reference_category: &'static str,
    reference_type: &'static str,
    reference_locator: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Relationship {
    spdx_element_id: &'static str,
    relationship_type: &'static str,
    related_spdx_element: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ExtractedLicense {
    license_id: String,
    extracted_text: String,
}

/// The SPDX document of an image. The same subject gives the same bytes; the document's namespace
/// is a UUID of its content.
#[must_use]
pub fn render_document(subject: &SbomSubject<'_>) -> Vec<u8> {
    let components = subject.components();
    let mut texts = BTreeMap::new();
    let mut packages = vec![image(subject)];
    packages.extend(components.iter().map(|one| package(one, &mut texts)));
    let contains = components.iter().map(|one| Relationship {
        spdx_element_id: IMAGE,
        relationship_type: "CONTAINS",
        related_spdx_element: format!("SPDXRef-{}", one.id),
    });
    let describes = Relationship {
        spdx_element_id: DOCUMENT,
        relationship_type: "DESCRIBES",
        related_spdx_element: IMAGE.to_owned(),
    };
    let extracted = texts
        .into_iter()
        .map(|(license_id, extracted_text)| ExtractedLicense {
            license_id,
            extracted_text,
        });
    let mut document = Document {
        spdx_version: "SPDX-2.3",
        data_license: "CC0-1.0",
        id: DOCUMENT,
        name: subject.name,
        document_namespace: String::new(),
        creation_info: CreationInfo {
            created: utc(subject.created_s),
            creators: [format!("Tool: sconce-{VERSION}")],
        },
        relationships: std::iter::once(describes).chain(contains).collect(),
        has_extracted_licensing_infos: extracted.collect(),
        packages,
    };
    document.document_namespace = name_of(&oci::to_json(&document));
    oci::to_json(&document)
}

fn image<'a>(subject: &SbomSubject<'a>) -> Package<'a> {
    let manifest = subject.manifest.as_ref();
    let purl = manifest.map(|digest| purl::for_image(subject.name, digest));
    Package {
        id: IMAGE.to_owned(),
        name: subject.name,
        version_info: manifest.map(ToString::to_string),
        package_file_name: None,
        supplier: UNKNOWN.to_owned(),
        download_location: UNKNOWN,
        files_analyzed: false,
        checksums: manifest
            .map(|digest| sha256(digest.to_hex()))
            .into_iter()
            .collect(),
        license_concluded: UNKNOWN,
        license_declared: UNKNOWN.to_owned(),
        copyright_text: UNKNOWN,
        primary_package_purpose: Some("CONTAINER"),
        external_refs: purl.map(reference).into_iter().collect(),
    }
}

fn package<'a>(one: &Component<'a>, texts: &mut BTreeMap<String, String>) -> Package<'a> {
    let supplier = one.supplier.as_deref();
    Package {
        id: format!("SPDXRef-{}", one.id),
        name: one.name,
        version_info: Some(one.version.to_owned()),
        package_file_name: one.file,
        supplier: supplier.map_or_else(|| UNKNOWN.to_owned(), |who| format!("Organization: {who}")),
        download_location: UNKNOWN,
        files_analyzed: false,
        checksums: vec![sha256(one.sha256.to_string())],
        license_concluded: UNKNOWN,
        license_declared: declared(one.license, texts),
        copyright_text: UNKNOWN,
        primary_package_purpose: None,
        external_refs: vec![reference(one.purl.clone())],
    }
}

/// The field `licenseDeclared`; a text that is no expression is put into `texts` under a name that
/// its digest gives.
fn declared(license: Option<&License>, texts: &mut BTreeMap<String, String>) -> String {
    let Some(license) = license else {
        return UNKNOWN.to_owned();
    };
    if let Some(expression) = license.valid_expression() {
        for own in own_references(expression) {
            let text = "Its text is in the package that names it.";
            texts
                .entry(own.to_owned())
                .or_insert_with(|| text.to_owned());
        }
        return expression.to_owned();
    }
    if one_line(license.raw_text()).is_none() {
        return UNKNOWN.to_owned();
    }
    let digest = oci::Digest(sconce_schema::Sha256(
        sha2::Sha256::digest(license.raw_text()).into(),
    ));
    let id = format!("LicenseRef-{:.16}", digest.to_hex());
    texts.insert(id.clone(), license.raw_text().to_owned());
    id
}

fn sha256(hex: String) -> Checksum {
    Checksum {
        algorithm: "SHA256",
        checksum_value: hex,
    }
}

fn reference(purl: String) -> ExternalRef {
    ExternalRef {
        reference_category: "PACKAGE-MANAGER",
        reference_type: "purl",
        reference_locator: purl,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{fixture_lock, fixture_metadata};
    use super::*;
    use serde_json::Value;

    fn made(manifest: Option<oci::Digest>) -> Value {
        let lock = fixture_lock();
        let subject = SbomSubject {
            name: "digits",
            manifest,
            lock: &lock,
            facts: &fixture_metadata(&lock),
            created_s: 0,
        };
        let bytes = render_document(&subject);
        assert_eq!(bytes, render_document(&subject));
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn names_the_image_and_all_it_contains() {
        let made = made(Some(oci::Digest::hash_bytes(b"manifest")));
        assert_eq!(made["creationInfo"]["created"], "1970-01-01T00:00:00Z");
        let packages = made["packages"].as_array().unwrap();
        assert_eq!(packages.len(), 5);
        assert_eq!(packages[0]["primaryPackagePurpose"], "CONTAINER");
        assert!(
            packages[0]["versionInfo"]
                .as_str()
                .unwrap()
                .starts_with("sha256:")
        );
        let torch = &packages[2];
        assert_eq!(
            torch["externalRefs"][0]["referenceLocator"],
            "pkg:pypi/torch@2.8.0%2Bcu126"
        );
        assert_eq!(torch["checksums"][0]["checksumValue"], "1".repeat(64));
        assert_eq!(torch["supplier"], "NOASSERTION");
        assert_eq!(packages[3]["supplier"], "Organization: Debian");
        let relationships = made["relationships"].as_array().unwrap();
        assert_eq!(relationships.len(), 5);
        for (package, relationship) in packages.iter().zip(relationships) {
            assert_eq!(relationship["relatedSpdxElement"], package["SPDXID"]);
        }
    }

    #[test]
    fn licences_are_said_as_far_as_known() {
        let made = made(None);
        let packages = made["packages"].as_array().unwrap();
        assert!(packages[0]["versionInfo"].is_null());
        assert_eq!(packages[1]["supplier"], "Organization: NVIDIA Corporation");
        assert_eq!(packages[2]["licenseDeclared"], "MIT AND LicenseRef-Own");
        assert_eq!(packages[3]["licenseDeclared"], "NOASSERTION");
        let extracted = made["hasExtractedLicensingInfos"].as_array().unwrap();
        assert_eq!(extracted.len(), 2);
        assert_eq!(extracted[0]["licenseId"], "LicenseRef-Own");
        assert_eq!(extracted[1]["licenseId"], packages[1]["licenseDeclared"]);
        let text = extracted[1]["extractedText"].as_str().unwrap();
        assert!(text.starts_with("NVIDIA"), "{text}");
    }

    #[test]
    fn holds_no_address() {
        assert!(!made(None).to_string().contains("example.org"));
    }
}
