//! Against distribution's registry and skopeo, as Debian has them. What of them is not installed is
//! said and not tested, but for CI, where it must be.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use sconce_oci as oci;
use sconce_oci::{Descriptor, ImageManifest, media};
use sconce_registry::{
    BlobSource, Login, LoginSources, ManifestDocument, PushArtifact, ReferrerListing, Registry,
    RegistryError, RegistrySettings,
};
use sconce_schema::NoProgress;

use super::made::{amd64, blob, bytes, hex, image, image_for, index, reference, settings};

/// `me` with the password `hunter22`, by bcrypt.
const HTPASSWD: &str = "me:$2b$04$fNhAvDVuWjYV38yLtuialupJ5SMZRCGm5gHlBj3OW58j2DxFcn7F2\n";

/// A running registry; it ends when dropped.
struct Real {
    child: Child,
    folder: tempfile::TempDir,
    port: u16,
}

impl Real {
    /// Starts one. `more` is added to its configuration; `FOLDER` in it is a folder of its own,
    /// filled by `prepare`.
    fn start(http: &str, more: &str, prepare: impl Fn(&Path)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path());
        // A port that is free now; another process can be quicker, so more than one is tried.
        for _ in 0..5 {
            let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
            let port = free.local_addr().unwrap().port();
            drop(free);
            let at = folder.path().display().to_string();
            let text = format!(
                "version: 0.1\nlog:\n  level: error\n  accesslog:\n    disabled: true\nstorage:\n  \
                 filesystem:\n    rootdirectory: FOLDER/data\nhttp:\n  addr: 127.0.0.1:{port}\n{http}{more}"
            );
            let config = folder.path().join("config.yml");
            fs::write(&config, text.replace("FOLDER", &at)).unwrap();
            let log = fs::File::create(folder.path().join("log")).unwrap();
            let mut child = Command::new("docker-registry")
                .arg("serve")
                .arg(config)
                .stdin(Stdio::null())
                .stdout(log.try_clone().unwrap())
                .stderr(log)
                .spawn()
                .unwrap();
            let end = Instant::now() + Duration::from_secs(30);
            while child.try_wait().unwrap().is_none() && Instant::now() < end {
                if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                    return Self {
                        child,
                        folder,
                        port,
                    };
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        let log = fs::read_to_string(folder.path().join("log")).unwrap();
        panic!("docker-registry does not start: {log}");
    }

    fn plain() -> Self {
        Self::start("", "", |_| {})
    }

    fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program to its end, within a minute. Returns what it wrote.
fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("timeout")
        .arg("60")
        .arg(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(format!("{program} {arguments:?}: {said}")),
    }
}

fn skopeo(arguments: &[&str]) -> String {
    let mut all = vec!["--insecure-policy"];
    all.extend(arguments);
    run("skopeo", &all).unwrap()
}

fn push(
    registry: &Registry,
    host: &str,
    rest: &str,
    image: &PushArtifact,
) -> sconce_registry::PushSummary {
    let images = std::slice::from_ref(image);
    registry
        .push_images(&reference(host, rest), images, None, &[], &NoProgress)
        .unwrap()
}

#[test]
fn skopeo_gets_what_was_pushed() {
    if !sconce_testkit::has_programs(&["docker-registry", "skopeo"]) {
        return;
    }
    let real = Real::plain();
    let registry = Registry::new(settings()).unwrap();
    let mut made = image(&[3_000_000, 0, 1000]);
    let first = bytes(&made.layers[0]).to_vec();
    fs::write(real.path("layer"), &first).unwrap();
    made.layers[0].content = BlobSource::File(real.path("layer"));
    let pushed = push(&registry, &real.host(), "team/image:v1", &made);
    assert_eq!((pushed.uploaded.blobs, pushed.skipped.blobs), (4, 0));

    let source = format!("docker://{}/team/image:v1", real.host());
    let plain = "--tls-verify=false";
    let said = skopeo(&[
        "inspect",
        plain,
        "--format",
        "{{.Digest}} {{.Architecture}}",
        &source,
    ]);
    assert_eq!(said.trim(), format!("{} amd64", pushed.digest));
    let copy = real.path("copy");
    let target = format!("dir:{}", copy.display());
    skopeo(&[
        "copy",
        "--preserve-digests",
        "--src-tls-verify=false",
        &source,
        &target,
    ]);
    assert_eq!(hex(&fs::read(copy.join(hex(&first))).unwrap()), hex(&first));
    assert_eq!(
        fs::read(copy.join("manifest.json")).unwrap(),
        made.manifest.bytes
    );

    // Once more, elsewhere, and back.
    let again = push(&registry, &real.host(), "team/image:v2", &made);
    assert_eq!((again.uploaded.blobs, again.skipped.blobs), (0, 4));
    let to = reference(&real.host(), "other/image:v1");
    let from = ["team/image".to_owned()];
    let images = std::slice::from_ref(&made);
    let mounted = registry
        .push_images(&to, images, None, &from, &NoProgress)
        .unwrap();
    assert_eq!(mounted.mounted, pushed.uploaded);
    let folder = tempfile::tempdir().unwrap();
    let pulled = registry
        .pull_image(&to, &amd64(), folder.path(), &|_| false, &NoProgress)
        .unwrap();
    assert_eq!(fs::read(&pulled.layers[0]).unwrap(), first);
    assert_eq!(pulled.fetched.blobs, 4);
}

#[test]
fn an_index_and_what_skopeo_pushed_are_pulled() {
    if !sconce_testkit::has_programs(&["docker-registry", "skopeo"]) {
        return;
    }
    let real = Real::plain();
    let registry = Registry::new(settings()).unwrap();
    let (one, other) = (image(&[1000]), image_for("arm64", &[2000]));
    let list = index(&[("arm64", &other), ("amd64", &one)]);
    let to = reference(&real.host(), "team/image:multi");
    let images = [one.clone(), other];
    registry
        .push_images(&to, &images, Some(&list), &[], &NoProgress)
        .unwrap();
    let source = format!("docker://{}/team/image:multi", real.host());
    let raw = skopeo(&["inspect", "--tls-verify=false", "--raw", &source]);
    assert_eq!(raw.as_bytes(), list.bytes);
    let folder = tempfile::tempdir().unwrap();
    let pulled = registry
        .pull_image(&to, &amd64(), folder.path(), &|_| false, &NoProgress)
        .unwrap();
    assert_eq!(pulled.resolved.digest, list.digest());
    assert_eq!(fs::read(&pulled.layers[0]).unwrap(), bytes(&one.layers[0]));

    // Docker's form, as skopeo writes it.
    let docker = format!("docker://{}/team/docker:v1", real.host());
    let plain = ["--src-tls-verify=false", "--dest-tls-verify=false"];
    let mut empty = image(&[]);
    // skopeo looks into layers that it writes in another form: only an image without any will do.
    empty = super::made::put_together(empty.config, Vec::new());
    push(&registry, &real.host(), "team/empty:v1", &empty);
    let source = format!("docker://{}/team/empty:v1", real.host());
    skopeo(&[
        "copy", "--format", "v2s2", plain[0], plain[1], &source, &docker,
    ]);
    let from = reference(&real.host(), "team/docker:v1");
    let pulled = registry
        .pull_image(&from, &amd64(), folder.path(), &|_| false, &NoProgress)
        .unwrap();
    assert_eq!(pulled.resolved.document.media_type, media::DOCKER_MANIFEST);
}

#[test]
fn artifacts_are_attached_and_listed() {
    if !sconce_testkit::has_programs(&["docker-registry"]) {
        return;
    }
    let real = Real::plain();
    let registry = Registry::new(settings()).unwrap();
    let made = image(&[1000]);
    let subject = push(&registry, &real.host(), "team/image:v1", &made).digest;
    let config = blob(media::EMPTY, b"{}".to_vec());
    let layer = blob(
        "application/spdx+json",
        b"{\"spdxVersion\":\"SPDX-2.3\"}".to_vec(),
    );
    let mut manifest =
        ImageManifest::new(config.descriptor.clone(), vec![layer.descriptor.clone()]);
    manifest.artifact_type = Some("application/spdx+json".to_owned());
    manifest.subject = Some(Descriptor::for_bytes(media::MANIFEST, &made.manifest.bytes));
    let artifact = PushArtifact {
        layers: vec![layer],
        config,
        manifest: ManifestDocument {
            media_type: media::MANIFEST.to_owned(),
            bytes: oci::to_json(&manifest),
        },
    };
    let to = reference(&real.host(), "team/image:v1");
    let attached = registry
        .attach_artifact(&to, &artifact, &NoProgress)
        .unwrap();
    // Version 2 of distribution has no referrers interface.
    assert_eq!(attached.listing, ReferrerListing::Tag);
    let listed = registry
        .list_referrers(&to, subject, Some("application/spdx+json"))
        .unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].digest, attached.pushed.digest);
    let other = registry
        .list_referrers(&to, subject, Some("x/other"))
        .unwrap();
    assert!(other.is_empty());
}

#[test]
fn a_password_opens() {
    if !sconce_testkit::has_programs(&["docker-registry", "skopeo"]) {
        return;
    }
    let auth = "auth:\n  htpasswd:\n    realm: \"a, realm\"\n    path: FOLDER/htpasswd\n";
    let real = Real::start("", auth, |folder| {
        fs::write(folder.join("htpasswd"), HTPASSWD).unwrap();
    });
    let with = |login: Option<&str>| {
        let mut logins = LoginSources::empty();
        if let Some(password) = login {
            let login = Login::Basic {
                user: "me".to_owned(),
                password: password.to_owned(),
            };
            logins = logins.with_login(&real.host(), login);
        }
        Registry::new(RegistrySettings {
            logins,
            ..settings()
        })
        .unwrap()
    };
    let made = image(&[100_000]);
    let to = reference(&real.host(), "team/image:v1");
    for (password, login) in [(None, false), (Some("wrong"), true)] {
        let images = std::slice::from_ref(&made);
        let error = with(password)
            .push_images(&to, images, None, &[], &NoProgress)
            .unwrap_err();
        assert!(
            matches!(error, RegistryError::Refused { status: 401, login: was, .. } if was == login),
            "{error:?}"
        );
    }
    let pushed = push(
        &with(Some("hunter22")),
        &real.host(),
        "team/image:v1",
        &made,
    );
    let source = format!("docker://{}/team/image:v1", real.host());
    let said = skopeo(&[
        "inspect",
        "--tls-verify=false",
        "--creds",
        "me:hunter22",
        "--format",
        "{{.Digest}}",
        &source,
    ]);
    assert_eq!(said.trim(), pushed.digest.to_string());

    // The same login from a file, as `skopeo login` writes it.
    let file = real.path("auth.json");
    let at = file.display().to_string();
    let login = [
        "login",
        "--tls-verify=false",
        "--authfile",
        &at,
        "-u",
        "me",
        "-p",
        "hunter22",
    ];
    let mut all = login.to_vec();
    let host = real.host();
    all.push(&host);
    run("skopeo", &all).unwrap();
    let logins = LoginSources::empty()
        .with_file(&fs::read_to_string(file).unwrap())
        .unwrap();
    let registry = Registry::new(RegistrySettings {
        logins,
        ..settings()
    })
    .unwrap();
    assert_eq!(registry.resolve_digest(&to).unwrap(), Some(pushed.digest));
}

#[test]
fn an_authority_of_ones_own_is_trusted_where_it_is_named() {
    if !sconce_testkit::has_programs(&["docker-registry", "skopeo", "openssl"]) {
        return;
    }
    let http = "  tls:\n    certificate: FOLDER/server.crt\n    key: FOLDER/server.key\n";
    let real = Real::start(http, "", |folder| {
        let at = |name: &str| folder.join(name).display().to_string();
        fs::write(
            folder.join("server.ext"),
            "subjectAltName = IP:127.0.0.1\nbasicConstraints = CA:FALSE\nextendedKeyUsage = serverAuth\n",
        )
        .unwrap();
        let key = [
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
        ];
        let openssl = |before: &[&str], after: &[&str]| {
            let all: Vec<&str> = before.iter().chain(after).copied().collect();
            run("openssl", &all).unwrap();
        };
        let (ca, ca_key) = (at("ca.crt"), at("ca.key"));
        let (server, server_key, request) = (at("server.crt"), at("server.key"), at("server.csr"));
        let made = [
            "-keyout",
            &ca_key,
            "-out",
            &ca,
            "-subj",
            "/CN=An authority for a test",
        ];
        openssl(&["req", "-x509", "-days", "2"], &[&key[..], &made].concat());
        let made = [
            "-keyout",
            &server_key,
            "-out",
            &request,
            "-subj",
            "/CN=127.0.0.1",
        ];
        openssl(&["req"], &[&key[..], &made].concat());
        let signed = [
            "-CA",
            &ca,
            "-CAkey",
            &ca_key,
            "-CAcreateserial",
            "-in",
            &request,
        ];
        let extensions = at("server.ext");
        let out = ["-days", "2", "-extfile", &extensions, "-out", &server];
        openssl(&["x509", "-req"], &[&signed[..], &out].concat());
    });
    let made = image(&[200_000]);
    let to = reference(&real.host(), "team/image:v1");
    let stranger = Registry::new(settings()).unwrap();
    let images = std::slice::from_ref(&made);
    let error = stranger
        .push_images(&to, images, None, &[], &NoProgress)
        .unwrap_err();
    // It is not taken for one without TLS, either.
    let words = super::made::all_words(&error);
    assert!(
        words.contains("https://") && words.contains("certificate"),
        "{words}"
    );

    let mut trusting = settings();
    trusting.fetch.extra_ca = Some(real.path("ca.crt"));
    let registry = Registry::new(trusting).unwrap();
    let pushed = push(&registry, &real.host(), "team/image:v1", &made);
    let certificates = tempfile::tempdir().unwrap();
    fs::copy(real.path("ca.crt"), certificates.path().join("ca.crt")).unwrap();
    let folder = certificates.path().display().to_string();
    let source = format!("docker://{}/team/image:v1", real.host());
    let said = skopeo(&[
        "inspect",
        "--cert-dir",
        &folder,
        "--format",
        "{{.Digest}}",
        &source,
    ]);
    assert_eq!(said.trim(), pushed.digest.to_string());
    let folder = tempfile::tempdir().unwrap();
    registry
        .pull_image(&to, &amd64(), folder.path(), &|_| false, &NoProgress)
        .unwrap();
}

/// A way to a server that breaks every connection once `budget` bytes went through it in one
/// direction, for as long as `breaks` lasts.
fn breaking_way(to: u16, budget: u64, breaks: i64) -> (u16, Arc<AtomicI64>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let left = Arc::new(AtomicI64::new(breaks));
    let shared = Arc::clone(&left);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (Ok(near), Ok(far)) = (stream, TcpStream::connect(("127.0.0.1", to))) else {
                return;
            };
            for (from, into) in [(&near, &far), (&far, &near)] {
                let (mut from, mut into) = (from.try_clone().unwrap(), into.try_clone().unwrap());
                let left = Arc::clone(&shared);
                std::thread::spawn(move || {
                    let (mut passed, mut buffer) = (0, [0; 16 << 10]);
                    while let Ok(n @ 1..) = from.read(&mut buffer) {
                        passed += n as u64;
                        if passed > budget && left.fetch_sub(1, Ordering::Relaxed) > 0 {
                            break;
                        }
                        if into.write_all(&buffer[..n]).is_err() {
                            break;
                        }
                    }
                    let _ = from.shutdown(std::net::Shutdown::Both);
                    let _ = into.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
    (port, left)
}

#[test]
fn a_way_that_breaks_is_got_over() {
    if !sconce_testkit::has_programs(&["docker-registry"]) {
        return;
    }
    let real = Real::plain();
    let made = image(&[9_000_000]);
    let settings = RegistrySettings {
        piece_bytes: 1 << 20,
        parallel: 1,
        ..settings()
    };
    let registry = Registry::new(settings).unwrap();
    // Every connection breaks after 2.5 MB, the first three times. This registry forgets an upload
    // that broke in the middle of a request, so it is begun anew; one that remembers is in
    // `pushing`.
    let (port, left) = breaking_way(real.port, 2_500_000, 3);
    let there = reference(&format!("127.0.0.1:{port}"), "team/image:v1");
    let images = std::slice::from_ref(&made);
    let pushed = registry
        .push_images(&there, images, None, &[], &NoProgress)
        .unwrap();
    assert_eq!(pushed.uploaded.blobs, 2);
    assert!(left.load(Ordering::Relaxed) < 3, "nothing broke");

    let (port, left) = breaking_way(real.port, 2_500_000, 3);
    let there = reference(&format!("127.0.0.1:{port}"), "team/image:v1");
    let folder = tempfile::tempdir().unwrap();
    let pulled = registry
        .pull_image(&there, &amd64(), folder.path(), &|_| false, &NoProgress)
        .unwrap();
    assert!(left.load(Ordering::Relaxed) < 3, "nothing broke");
    assert_eq!(
        hex(&fs::read(&pulled.layers[0]).unwrap()),
        hex(bytes(&made.layers[0]))
    );
}
