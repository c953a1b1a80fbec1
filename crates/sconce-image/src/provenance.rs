//! Where an image comes from: an in-toto Statement (version 1) with SLSA's provenance predicate
//! (version 1).
//!
//! Times and an invocation's number are left out, which the predicate allows: the same build gives
//! the same statement.

use sconce_schema::{Lock, Sha256};
use serde::Serialize;

use crate::sbom::purl;
use sconce_oci as oci;
use sconce_oci::Digest;

/// How the image was built, a `buildType`. It names the parameters below: `externalParameters` holds
/// `spec` (where it is known) and `lock`, each with its digest, and every wheel and Debian package
/// of the lock stands in `resolvedDependencies`. A name and no address: there is nothing to fetch.
pub const BUILD_TYPE: &str = "urn:sconce:image-build:v1";
/// The builder's name where nobody gives another: a person's own machine.
pub const LOCAL_BUILDER: &str = "urn:sconce:builder:local";

/// A build that is done.
#[derive(Debug, Clone, Copy)]
pub struct ProvenanceInput<'a> {
    /// The image's name, with or without registry and tag.
    pub image: &'a str,
    /// The image manifest's digest.
    pub manifest: Digest,
    /// Of the bytes of `sconce.toml`, where the build knew it.
    pub spec: Option<Sha256>,
    /// Of the bytes of `sconce.lock`.
    pub lock_file: Sha256,
    /// What the image is made of.
    pub lock: &'a Lock,
    /// Who built it, as a URI: the CI's, or [`LOCAL_BUILDER`].
    pub builder: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Statement<'a> {
    #[serde(rename = "_type")]
    kind: &'static str,
    subject: [Resource<'a>; 1],
    predicate_type: &'static str,
    predicate: Predicate<'a>,
}

/// A `ResourceDescriptor`.
#[derive(Serialize)]
struct Resource<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uri: Option<String>,
    digest: Sums,
}

#[derive(Serialize)]
struct Sums {
    sha256: Sha256,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Predicate<'a> {
    build_definition: Definition<'a>,
    run_details: Details<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Definition<'a> {
    build_type: &'static str,
    external_parameters: Parameters,
    resolved_dependencies: Vec<Resource<'a>>,
}

#[derive(Serialize)]
struct Parameters {
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<Parameter>,
    lock: Parameter,
}

#[derive(Serialize)]
struct Parameter {
    digest: Sums,
}

#[derive(Serialize)]
struct Details<'a> {
    builder: Builder<'a>,
}

#[derive(Serialize)]
struct Builder<'a> {
    id: &'a str,
    version: Program,
}

#[derive(Serialize)]
struct Program {
    sconce: &'static str,
}

/// The statement's bytes. The same build gives the same bytes.
#[must_use]
pub fn render_statement(build: &ProvenanceInput<'_>) -> Vec<u8> {
    let sums = |sha256: Sha256| Sums { sha256 };
    let parameter = |sha256| Parameter {
        digest: sums(sha256),
    };
    let dependency = |name, uri, sha256| Resource {
        name: Some(name),
        uri: Some(uri),
        digest: sums(sha256),
    };
    let lock = build.lock;
    let wheels = lock
        .wheels
        .iter()
        .map(|w| dependency(w.file.as_str(), purl::for_wheel(w), w.sha256));
    let debs = lock
        .all_debs()
        .map(|d| dependency(&d.name, purl::for_deb(d, &lock.target), d.sha256));
    oci::to_json(&Statement {
        kind: "https://in-toto.io/Statement/v1",
        subject: [Resource {
            name: Some(build.image),
            uri: None,
            digest: sums(build.manifest.0),
        }],
        predicate_type: "https://slsa.dev/provenance/v1",
        predicate: Predicate {
            build_definition: Definition {
                build_type: BUILD_TYPE,
                external_parameters: Parameters {
                    spec: build.spec.map(parameter),
                    lock: parameter(build.lock_file),
                },
                resolved_dependencies: wheels.chain(debs).collect(),
            },
            run_details: Details {
                builder: Builder {
                    id: build.builder,
                    version: Program {
                        sconce: env!("CARGO_PKG_VERSION"),
                    },
                },
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn made(spec: Option<Sha256>) -> Value {
        let lock = crate::sbom::tests::fixture_lock();
        let build = ProvenanceInput {
            image: "digits",
            manifest: Digest::hash_bytes(b"manifest"),
            spec,
            lock_file: Digest::hash_bytes(b"lock").0,
            lock: &lock,
            builder: LOCAL_BUILDER,
        };
        let bytes = render_statement(&build);
        assert_eq!(bytes, render_statement(&build));
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn says_what_went_in() {
        let made = made(Some(Digest::hash_bytes(b"spec").0));
        let subject = json!([{"name": "digits", "digest": {"sha256": Digest::hash_bytes(b"manifest").to_hex()}}]);
        assert_eq!(made["subject"], subject);
        let definition = &made["predicate"]["buildDefinition"];
        let parameters = json!({
            "spec": {"digest": {"sha256": Digest::hash_bytes(b"spec").to_hex()}},
            "lock": {"digest": {"sha256": Digest::hash_bytes(b"lock").to_hex()}},
        });
        assert_eq!(definition["externalParameters"], parameters);
        let resolved = definition["resolvedDependencies"].as_array().unwrap();
        assert_eq!(resolved.len(), 4);
        let uri = "pkg:deb/debian/libstdc%2B%2B6@14.2.0-19?arch=amd64&distro=trixie";
        let deb = json!({"name": "libstdc++6", "uri": uri, "digest": {"sha256": "2".repeat(64)}});
        assert_eq!(resolved[2], deb);
        assert!(!made.to_string().contains("example.org"));
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let made = made(None);
        let parameters = &made["predicate"]["buildDefinition"]["externalParameters"];
        assert!(parameters["spec"].is_null());
    }
}
