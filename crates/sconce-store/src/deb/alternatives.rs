//! The names that several packages may give a program (`awk`, `which`, `cc`, `editor`).
//!
//! A package's `postinst` asks `update-alternatives` for them. Nothing of a package runs here, so its
//! requests are read from the script's text: those that are spelled out, as debhelper writes them.
//! One that is made of variables is not understood, and left out.

/// A request to `update-alternatives --install` (its manual page, section COMMANDS).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alternative {
    /// The name of the group, a file's in `/etc/alternatives`.
    pub name: String,
    /// Where the group is found, absolute.
    pub link: String,
    /// What this package has for it, absolute.
    pub target: String,
    /// Of several packages' the highest is taken.
    pub priority: i32,
    /// What changes with it: name, link and target of each.
    pub followers: Vec<(String, String, String)>,
}

/// No package asks for more.
const MAX_REQUESTS: usize = 256;

/// What a maintainer script asks for.
pub(super) fn parse(script: &str) -> Vec<Alternative> {
    let script = script.replace("\\\n", " ");
    let calls = script.lines().filter_map(|line| {
        let (before, call) = line.split_once("update-alternatives")?;
        // Nothing but `if` and the like, or a folder, stands before the program of a command.
        (!before.contains(['#', '"', '\''])).then_some(call)
    });
    calls.filter_map(parse_call).take(MAX_REQUESTS).collect()
}

/// The words after the program's name.
fn parse_call(call: &str) -> Option<Alternative> {
    let end = call.find([';', '|', '&']).unwrap_or(call.len());
    let words = call[..end].split_whitespace();
    let mut words = words.map(|word| word.trim_matches(['"', '\'']));
    words.find(|word| *word == "--install")?;
    let (link, name, target) = parse_triple(&mut words)?;
    let priority = words.next()?.parse().ok()?;
    let mut followers = Vec::new();
    while words.any(|word| word == "--slave") {
        followers.extend(parse_triple(&mut words).map(|(link, name, target)| (name, link, target)));
    }
    Some(Alternative {
        name,
        link,
        target,
        priority,
        followers,
    })
}

/// Link, name and target.
fn parse_triple<'a>(words: &mut impl Iterator<Item = &'a str>) -> Option<(String, String, String)> {
    let (link, name, target) = (words.next()?, words.next()?, words.next()?);
    let is_path = |text: &str| {
        let parts = text.strip_prefix('/').map(|path| path.split('/'));
        parts.is_some_and(|mut parts| parts.all(is_part))
    };
    (is_path(link) && is_part(name) && is_path(target))
        .then(|| (link.to_owned(), name.to_owned(), target.to_owned()))
}

/// One part of a path, which no shell would change.
fn is_part(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"+-._[]:@%".contains(&b);
    !["", ".", ".."].contains(&text) && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As debianutils and mawk have it, and gcc's loop, which has variables.
    #[test]
    fn requests_that_are_spelled_out_are_read() {
        let script = "#!/bin/sh\nset -e\n# update-alternatives --install /usr/bin/x x /usr/bin/y 1\n\
            if [ \"$1\" = configure ]; then\n\
            update-alternatives --quiet --install /usr/bin/which which /usr/bin/which.debianutils 0 \\\n\
            \t--slave /usr/share/man/man1/which.1.gz which.1.gz /usr/share/man/man1/which.debianutils.1.gz \\\n\
            \t--slave /usr/bin/w \"w\" '/usr/bin/w2' || true\n\
            /usr/bin/update-alternatives --install /usr/bin/awk awk /usr/bin/mawk 5\n\
            update-alternatives --install /usr/bin/cc cc /usr/bin/$gcc 20\n\
            update-alternatives --remove x /usr/bin/y\n\
            update-alternatives --install /usr/bin/../../x x /y 1\n\
            update-alternatives --install /usr/bin/n ../n /y 1\n\
            update-alternatives --install /usr/bin/n n /y high\n\
            echo \"update-alternatives --install /usr/bin/n n /y 1\"\nfi\n";
        let found = parse(script);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0].name, "which");
        assert_eq!(found[0].link, "/usr/bin/which");
        assert_eq!(found[0].target, "/usr/bin/which.debianutils");
        assert_eq!(found[0].priority, 0);
        let links: Vec<_> = found[0]
            .followers
            .iter()
            .map(|(_, link, _)| link.as_str())
            .collect();
        assert_eq!(links, ["/usr/share/man/man1/which.1.gz", "/usr/bin/w"]);
        assert_eq!((found[1].name.as_str(), found[1].priority), ("awk", 5));
    }
}
