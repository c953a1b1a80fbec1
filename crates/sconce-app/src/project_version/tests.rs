use super::*;
use sconce_formats::scm_version::VersionTool;

fn settings() -> ScmSettings {
    ScmSettings::new(VersionTool::SetuptoolsScm)
}

#[test]
fn an_archive_tells_the_version_of_its_commit() {
    let dir = tempfile::tempdir().unwrap();
    let version = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        let found = of_archive(&settings(), dir.path());
        std::fs::remove_file(path).unwrap();
        found
    };
    let node = "node: 0123456789abcdef0123456789abcdef01234567\n";
    let archival = |more: &str| version(ARCHIVAL, &format!("{node}{more}"));
    assert_eq!(
        archival("describe-name: v1.2-0-g0123\n").as_deref(),
        Some("1.2")
    );
    assert_eq!(archival("describe-name: v1.2\n").as_deref(), Some("1.2"));
    assert_eq!(
        archival("describe-name: v1-rc1-3-g0123\n").as_deref(),
        Some("1rc2.dev3+g012345678")
    );
    assert_eq!(
        archival("describe-name: \nref-names: HEAD -> main, tag: nightly, tag: v3\n").as_deref(),
        Some("3")
    );
    assert_eq!(archival("describe-name: $Format:%(describe)$\n"), None);
    assert_eq!(
        version(PKG_INFO, "Name: a\nVersion: 4.5\n\nVersion: 6\n").as_deref(),
        Some("4.5")
    );
    assert_eq!(version(PKG_INFO, "Name: a\n\nVersion: 6\n"), None);
}

#[test]
fn what_was_kept_counts_for_the_same_tags_alone() {
    let dir = tempfile::tempdir().unwrap();
    let kept = dir.path().join("deep/kept");
    let described = Described {
        tag: None,
        distance: 1200,
        seen: 1200,
    };
    keep(&kept, &described, &[]);
    let found = read_kept(&kept, &[]).unwrap();
    assert_eq!((found.tag, found.distance), (None, 1200));
    std::fs::write(&kept, "7\nv1").unwrap();
    assert_eq!(read_kept(&kept, &[]), None);
    std::fs::write(&kept, "many\n").unwrap();
    assert_eq!(read_kept(&kept, &[]), None);
}
