//! What a standalone Python says of how it was built, made to say how extensions are built here.
//!
//! It was built for the prefix `/install` by a clang of its own, and both stand in what `sysconfig`,
//! `distutils` and `python3-config` answer. The rules are those of uv (`sysconfig` in
//! `uv-python`), which installs the same archives.

/// The prefix that the archives are built for.
const BUILT_FOR: &str = "/install";

/// A variable that names a program, and how it is named here: words of the left are replaced by the
/// right one.
const PROGRAMS: [(&str, &[&str], &str); 7] = [
    ("CC", &["clang", "cc"], "cc"),
    ("CXX", &["clang++", "c++"], "c++"),
    ("BLDSHARED", &["clang"], "cc"),
    ("LDSHARED", &["clang"], "cc"),
    ("LDCXXSHARED", &["clang++"], "c++"),
    ("LINKCC", &["clang"], "cc"),
    ("MAINCC", &["clang"], "cc"),
];
/// Variables that name tools of LLVM, and what stands there instead.
const TOOLS: [(&str, &str); 2] = [("AR", "ar"), ("RANLIB", "ranlib")];
/// Compilers that cross-building ones are called, by their endings.
const CROSS_COMPILERS: [(&str, &str); 4] = [
    ("-linux-gnu-gcc", "cc"),
    ("-linux-gnu-g++", "c++"),
    ("-linux-gnu-clang", "cc"),
    ("-linux-gnu-clang++", "c++"),
];

/// Words that gcc does not know: whole, or by their beginning where that ends with `=` or `*`.
const CLANG_ONLY: [&str; 12] = [
    "-Qunused-arguments",
    "-fdebug-default-version=",
    "-flto=thin",
    "-flto=full",
    "-fprofile-instr-generate*",
    "-fprofile-instr-use*",
    "-fuse-ld=lld",
    "-rtlib=",
    "--rtlib=",
    "-stdlib=",
    "--target=",
    "-Wl,--icf*",
];
/// Words that take the next one with them.
const WITH_NEXT: [&str; 5] = ["-isysroot", "--sysroot", "-target", "-Xclang", "-mllvm"];

/// The text with the prefix that it was built for replaced by `prefix`, wherever it stands as a path
/// of its own or the beginning of one: not in `/usr/bin/install` and not in `/installed`.
pub(super) fn move_prefix(text: &str, prefix: &str) -> String {
    let mut moved = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(BUILT_FOR) {
        let (before, found) = rest.split_at(at);
        moved.push_str(before);
        let after = &found[BUILT_FOR.len()..];
        let is_begin = match moved.chars().next_back() {
            // Joined to its option: `-I/install/include`.
            Some('I' | 'L') => moved[..moved.len() - 1].ends_with('-'),
            Some(c) => !is_of_path(c) && c != '/',
            None => true,
        };
        let is_whole = !after.chars().next().is_some_and(is_of_path);
        moved.push_str(if is_begin && is_whole {
            prefix
        } else {
            BUILT_FOR
        });
        rest = after;
    }
    moved.push_str(rest);
    moved
}

/// Whether a character may be part of a file's name.
fn is_of_path(c: char) -> bool {
    c.is_alphanumeric() || "._-+@~".contains(c)
}

/// The value of a variable as it is here.
fn mend_value(name: &str, value: &str, prefix: &str) -> String {
    let value = move_prefix(value, prefix);
    if let Some((_, tool)) = TOOLS.iter().find(|(tool, _)| *tool == name)
        && value.contains("llvm-")
    {
        return (*tool).to_owned();
    }
    // What configure was told is a record, and quoted.
    if name == "CONFIG_ARGS" {
        return value;
    }
    let program = PROGRAMS.iter().find(|(program, ..)| *program == name);
    let mut words = value.split(' ').peekable();
    let mut kept: Vec<&str> = Vec::new();
    let mut is_changed = false;
    while let Some(word) = words.next() {
        if WITH_NEXT.contains(&word) && words.peek().is_some() {
            words.next();
            is_changed = true;
        } else if is_clang_only(word) {
            is_changed = true;
        } else {
            let named = program.and_then(|(_, names, new)| program_here(word, names, new));
            is_changed |= named.is_some_and(|named| named != word);
            kept.push(named.unwrap_or(word));
        }
    }
    match is_changed {
        true => kept.join(" "),
        false => value,
    }
}

fn is_clang_only(word: &str) -> bool {
    CLANG_ONLY
        .iter()
        .any(|known| match known.strip_suffix('*') {
            Some(begin) => word.starts_with(begin),
            None if known.ends_with('=') => word.starts_with(known),
            None => word == *known,
        })
}

/// What a compiler's name is here, if the word is one.
fn program_here(word: &str, names: &[&str], new: &'static str) -> Option<&'static str> {
    let file = word.rsplit('/').next().unwrap_or(word);
    if names.contains(&file) {
        return Some(new);
    }
    let mut cross = CROSS_COMPILERS.iter();
    let found = cross.find(|(end, _)| file.ends_with(end));
    found.map(|(_, new)| *new)
}

/// The Makefile: lines `NAME=   value`, as it is here. Recipes begin with a tab and have none.
pub(super) fn mend_makefile(text: &str, prefix: &str) -> String {
    let line = |line: &str| {
        let variable = line.split_once('=').filter(|(name, _)| {
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        });
        let Some((name, value)) = variable else {
            return move_prefix(line, prefix);
        };
        let trimmed = value.trim_start();
        let space = &value[..value.len() - trimmed.len()];
        format!("{name}={space}{}", mend_value(name, trimmed, prefix))
    };
    let lines = text.split('\n').map(line);
    lines.collect::<Vec<_>>().join("\n")
}

/// `_sysconfigdata_….py`: the pairs of its dictionary `'NAME': 'value'`, of which a value may be in
/// several pieces, as they are here. Everything else in it stays.
pub(super) fn mend_variables(text: &str, prefix: &str) -> String {
    mend_pairs(text, prefix, '\'')
}

/// `_sysconfig_vars_….json`, the same as JSON, which Python has from 3.14 on.
pub(super) fn mend_json(text: &str, prefix: &str) -> String {
    mend_pairs(text, prefix, '"')
}

/// The pairs of a dictionary, with `quote` around what is written anew.
fn mend_pairs(text: &str, prefix: &str, quote: char) -> String {
    let mut mended = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['\'', '"', '#']) {
        mended.push_str(&rest[..at]);
        rest = &rest[at..];
        if rest.starts_with('#') {
            let end = rest.find('\n').unwrap_or(rest.len());
            mended.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        let Some((name, after)) = read_literal(rest) else {
            // Not closed, or in a way that is not known: the rest stays as it is.
            break;
        };
        let colon = after.trim_start_matches([' ', '\n']);
        let Some(behind) = colon.strip_prefix(':') else {
            mended.push_str(&rest[..rest.len() - after.len()]);
            rest = after;
            continue;
        };
        mended.push_str(&rest[..rest.len() - behind.len()]);
        rest = behind;
        let value = rest.trim_start_matches([' ', '\n']);
        let Some((found, end)) = read_pieces(value) else {
            continue;
        };
        let new = mend_value(&name, &found, prefix);
        if new == found {
            mended.push_str(&rest[..rest.len() - end.len()]);
        } else {
            mended.push(' ');
            mended.push_str(&as_literal(&new, quote));
        }
        rest = end;
    }
    mended.push_str(rest);
    mended
}

/// A text in one or more literals behind each other, and what comes after.
fn read_pieces(text: &str) -> Option<(String, &str)> {
    let (mut whole, mut rest) = read_literal(text)?;
    while let Some((piece, after)) = read_literal(rest.trim_start_matches([' ', '\n'])) {
        whole.push_str(&piece);
        rest = after;
    }
    Some((whole, rest))
}

/// What a plain literal of Python at the beginning of `text` says, and what comes after. `None` where
/// there is none, or one with escapes that no value of a build has.
fn read_literal(text: &str) -> Option<(String, &str)> {
    let quote = text.chars().next().filter(|c| *c == '\'' || *c == '"')?;
    let mut said = String::new();
    let mut chars = text[1..].char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => said.push(match chars.next()?.1 {
                c @ ('\\' | '\'' | '"') => c,
                'n' => '\n',
                't' => '\t',
                _ => return None,
            }),
            '\n' => return None,
            c if c == quote => return Some((said, &text[1 + at + 1..])),
            c => said.push(c),
        }
    }
    None
}

/// A literal that says `text`: of Python, and with `"` of JSON too.
fn as_literal(text: &str, quote: char) -> String {
    let mut literal = String::from(quote);
    for c in text.chars() {
        match c {
            '\\' => literal.push_str("\\\\"),
            c if c == quote => literal.extend(['\\', quote]),
            '\n' => literal.push_str("\\n"),
            '\t' => literal.push_str("\\t"),
            c => literal.push(c),
        }
    }
    literal.push(quote);
    literal
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HERE: &str = "/opt/python/3.10";

    #[test]
    fn the_prefix_moves_and_names_that_resemble_it_stay() {
        for (text, expected) in [
            ("/install", "/opt/python/3.10"),
            ("/install/lib", "/opt/python/3.10/lib"),
            (
                "-I/install/include -L/install/lib",
                "-I/opt/python/3.10/include -L/opt/python/3.10/lib",
            ),
            ("prefix=/install\n", "prefix=/opt/python/3.10\n"),
            ("-Wl,-rpath,/install/lib", "-Wl,-rpath,/opt/python/3.10/lib"),
            ("/install:/install", "/opt/python/3.10:/opt/python/3.10"),
            ("#!/install/bin/python3", "#!/opt/python/3.10/bin/python3"),
        ] {
            assert_eq!(move_prefix(text, HERE), expected);
        }
        for text in [
            "/usr/bin/install -c",
            "/usr/install",
            "/installed/x",
            "./install-sh",
            "x/install",
        ] {
            assert_eq!(move_prefix(text, HERE), text);
        }
    }

    #[test]
    fn compilers_have_the_names_that_they_have_here() {
        for (name, value, expected) in [
            ("CC", "clang -pthread", "cc -pthread"),
            ("CC", "/tools/llvm/bin/clang", "cc"),
            ("CC", "/usr/bin/aarch64-linux-gnu-gcc", "cc"),
            ("CC", "gcc -pthread", "gcc -pthread"),
            ("CXX", "clang++ -pthread", "c++ -pthread"),
            (
                "LDSHARED",
                "clang -pthread -shared -L/tools/deps/lib",
                "cc -pthread -shared -L/tools/deps/lib",
            ),
            ("AR", "/tools/clang-linux64/bin/llvm-ar", "ar"),
            ("AR", "x86_64-linux-gnu-gcc-ar", "x86_64-linux-gnu-gcc-ar"),
            (
                "CFLAGS",
                "-O3 -fdebug-default-version=4 -flto=thin -fPIC",
                "-O3 -fPIC",
            ),
            ("CFLAGS", "-isysroot /sdk -O2  -Xclang -x", "-O2 "),
            ("CFLAGS", "-O2  -g", "-O2  -g"),
            ("DESCRIPTION", "made by clang", "made by clang"),
        ] {
            assert_eq!(mend_value(name, value, HERE), expected, "{name}");
        }
    }

    #[test]
    fn a_makefile_keeps_its_recipes() {
        let text = "prefix=\t/install\nCC=\t\tclang\nall:\n\t$(CC) -o /install/x\nINSTALL= /usr/bin/install -c\n";
        assert_eq!(
            mend_makefile(text, HERE),
            "prefix=\t/opt/python/3.10\nCC=\t\tcc\nall:\n\t$(CC) -o /opt/python/3.10/x\nINSTALL= /usr/bin/install -c\n"
        );
    }

    #[test]
    fn variables_are_mended_in_pieces_and_between_others() {
        let text = "# it's made\nbuild_time_vars = {'AR': 'llvm-ar',\n 'CC': 'clang '\n       \
                    '-pthread',\n 'N': 1,\n 'PY': \"-DX='a'  \"\n       '/install/lib',\n \
                    'TZ': '/etc/it\\'s',\n 'last': ''}\n";
        assert_eq!(
            mend_variables(text, HERE),
            "# it's made\nbuild_time_vars = {'AR': 'ar',\n 'CC': 'cc -pthread',\n 'N': 1,\n \
             'PY': '-DX=\\'a\\'  /opt/python/3.10/lib',\n 'TZ': '/etc/it\\'s',\n 'last': ''}\n"
        );
        for text in [
            "{'CC': 'clang",
            "{'CC': \"\\x41 clang\"}",
            "'''",
            "{'a': 'b\n'}",
            "'\\",
        ] {
            assert_eq!(mend_variables(text, HERE), text);
        }
    }

    #[test]
    fn variables_of_json_stay_json() {
        let text = "{\n  \"AR\": \"llvm-ar\",\n  \"CC\": \"clang -D\\\"a\\\" '-Db'\",\n  \"N\": 1,\n  \
                    \"LIBDIR\": \"/install/lib\",\n  \"TZ\": \"/etc/it's\"\n}";
        let mended = mend_json(text, HERE);
        assert_eq!(
            mended,
            "{\n  \"AR\": \"ar\",\n  \"CC\": \"cc -D\\\"a\\\" '-Db'\",\n  \"N\": 1,\n  \
             \"LIBDIR\": \"/opt/python/3.10/lib\",\n  \"TZ\": \"/etc/it's\"\n}"
        );
        let said: serde_json::Value = serde_json::from_str(&mended).unwrap();
        assert_eq!(said["CC"], "cc -D\"a\" '-Db'");
    }

    #[test]
    fn variables_as_python_3_14_lays_them_out_are_mended() {
        let text = "# generated\nbuild_time_vars = {\n    'ABIFLAGS': '',\n    'AR': 'llvm-ar',\n    \
                    'CFLAGS': '-O3 -flto=thin '\n        '-fPIC',\n    'prefix': '/install',\n}\n";
        assert_eq!(
            mend_variables(text, HERE),
            "# generated\nbuild_time_vars = {\n    'ABIFLAGS': '',\n    'AR': 'ar',\n    \
             'CFLAGS': '-O3 -fPIC',\n    'prefix': '/opt/python/3.10',\n}\n"
        );
    }

    proptest! {
        #[test]
        fn any_text_is_taken(text in "[-a-z'\"\\\\:{}, \n=/#é]{0,80}") {
            let _ = mend_makefile(&text, HERE);
            let _ = mend_variables(&text, HERE);
            let _ = mend_json(&text, HERE);
        }

        #[test]
        fn a_literal_says_what_it_was_made_of(text in "[a-z'\"\\\\ \n\té]{0,40}") {
            for quote in ['\'', '"'] {
                let literal = as_literal(&text, quote);
                prop_assert_eq!(read_literal(&literal), Some((text.clone(), "")));
            }
            let said: String = serde_json::from_str(&as_literal(&text, '"')).unwrap();
            prop_assert_eq!(said, text);
        }
    }
}
