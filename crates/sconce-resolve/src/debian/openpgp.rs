//! Signatures of archives. The check itself is done by the machine's `gpgv` or `sqv` (apt cannot
//! work without one of them); an OpenPGP library would more than double the program's build.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sconce_schema::{Hint, exit};

const BEGIN_MESSAGE: &str = "-----BEGIN PGP SIGNED MESSAGE-----";
const BEGIN_SIGNATURE: &str = "-----BEGIN PGP SIGNATURE-----";
const END_SIGNATURE: &str = "-----END PGP SIGNATURE-----";

/// Why a text is not believed to be its signer's.
#[derive(Debug, thiserror::Error)]
pub enum SignatureError {
    /// Not one clearsigned message and nothing else.
    #[error("it is not a clearsigned message: {why}")]
    NotClearsigned {
        /// What is wrong.
        why: &'static str,
    },
    /// The signature does not hold, or is no trusted key's.
    #[error("no trusted key made its signature ({program} says: {said})")]
    NotTrusted {
        /// The program that checked.
        program: String,
        /// What it said, on one line.
        said: String,
    },
    /// The keyring cannot be read as one.
    #[error("the keyring is not OpenPGP keys: {why}")]
    Keyring {
        /// What is wrong.
        why: &'static str,
    },
    /// There is no program that checks signatures.
    #[error("neither gpgv nor sqv is on this machine, so no signature can be checked")]
    NoProgram,
    /// The program could not be run.
    #[error("cannot run {}", program.display())]
    Run {
        /// The program.
        program: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Hint for SignatureError {
    fn hint(&self) -> Option<String> {
        Some(
            match self {
                Self::NotClearsigned { .. } => {
                    "this is not what an archive serves; a proxy or a login page may stand between"
                }
                Self::NotTrusted { .. } => {
                    "use another mirror; if the archive's keys have changed, update the package debian-archive-keyring"
                }
                Self::Keyring { .. } => "install the package debian-archive-keyring",
                Self::NoProgram => "install the package gpgv (or sqv)",
                Self::Run { .. } => return None,
            }
            .to_owned(),
        )
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::NotClearsigned { .. } | Self::NotTrusted { .. } => exit::VERIFY,
            Self::Keyring { .. } | Self::NoProgram | Self::Run { .. } => exit::BAD_INPUT,
        }
    }
}

/// Something that can say whether a detached signature is a trusted key's.
pub trait Verifier: Send + Sync {
    /// `Ok` when at least one signature in `signature` is good, of `text`, by a key of
    /// `keyring`, and none is bad. `keyring` is binary or armoured.
    fn verify(&self, text: &str, signature: &str, keyring: &[u8]) -> Result<(), SignatureError>;
}

/// Checks a clearsigned message and gives the text that was signed, and only that.
pub fn open_clearsigned(
    message: &[u8],
    keyring: &[u8],
    verifier: &dyn Verifier,
) -> Result<String, SignatureError> {
    let message = std::str::from_utf8(message).map_err(|_| SignatureError::NotClearsigned {
        why: "it is not UTF-8",
    })?;
    let (text, signature) = split_clearsigned(message)?;
    verifier.verify(&text, signature, keyring)?;
    Ok(text)
}

/// Splits a clearsigned message (RFC 9580, 7) into the signed text, dash-escapes undone, trailing
/// white space and the last line break left out as they are not signed, and the armoured
/// signature. Text before, between or after is refused: nobody signed it.
fn split_clearsigned(message: &str) -> Result<(String, &str), SignatureError> {
    let wrong = |why| SignatureError::NotClearsigned { why };
    let body = message
        .strip_prefix(BEGIN_MESSAGE)
        .and_then(|rest| rest.strip_prefix('\n'))
        .ok_or_else(|| wrong("it does not begin as one"))?;
    let mut headers_end = 0;
    for line in body.split_inclusive('\n') {
        headers_end += line.len();
        if line == "\n" {
            break;
        }
        if !line.starts_with("Hash: ") {
            return Err(wrong("it has an armour header other than Hash"));
        }
    }
    let body = &body[headers_end..];
    let at = body
        .find("\n-----BEGIN PGP SIGNATURE-----\n")
        .ok_or_else(|| wrong("it has no signature"))?;
    let signature = &body[at + 1..];
    debug_assert!(signature.starts_with(BEGIN_SIGNATURE));
    if signature.trim_end().find(END_SIGNATURE)
        != Some(signature.trim_end().len() - END_SIGNATURE.len())
    {
        return Err(wrong("something follows its signature"));
    }
    let mut lines = Vec::new();
    for line in body[..at].split('\n') {
        let line = match line.strip_prefix("- ") {
            Some(escaped) => escaped,
            None if line.starts_with('-') => return Err(wrong("a line is not dash-escaped")),
            None => line,
        };
        lines.push(line.trim_end_matches([' ', '\t', '\r']));
    }
    Ok((lines.join("\n"), signature))
}

/// `gpgv`, of GnuPG.
#[derive(Debug, Clone)]
pub struct Gpgv {
    /// The program.
    pub program: PathBuf,
}

/// `sqv`, of Sequoia-PGP.
#[derive(Debug, Clone)]
pub struct Sqv {
    /// The program.
    pub program: PathBuf,
}

/// The first of `gpgv` and `sqv` in these folders (the parts of a `PATH`).
pub fn find_verifier(folders: &[PathBuf]) -> Result<Box<dyn Verifier>, SignatureError> {
    let find = |name| {
        folders
            .iter()
            .map(|folder| folder.join(name))
            .find(|path| path.is_file())
    };
    if let Some(program) = find("gpgv") {
        return Ok(Box::new(Gpgv { program }));
    }
    match find("sqv") {
        Some(program) => Ok(Box::new(Sqv { program })),
        None => Err(SignatureError::NoProgram),
    }
}

impl Verifier for Gpgv {
    fn verify(&self, text: &str, signature: &str, keyring: &[u8]) -> Result<(), SignatureError> {
        let keyring = binary_keyring(keyring)?;
        // SHA-1 is refused for archives since 2017; gpgv alone would still take it.
        let arguments = ["--weak-digest", "SHA1", "--status-fd", "1"];
        let output = run(&self.program, &arguments, text, signature, &keyring)?;
        // The exit status is no help: it is a failure as soon as one of several signatures is
        // by a key that the keyring lacks, which is usual between two releases. `GOODSIG` is
        // said for good signatures by keys that have neither expired nor been revoked.
        let status = String::from_utf8_lossy(&output.stdout);
        let says = |word: &str| {
            status.lines().any(|line| {
                line.strip_prefix("[GNUPG:] ")
                    .is_some_and(|line| line.split(' ').next() == Some(word))
            })
        };
        if says("GOODSIG") && says("VALIDSIG") && !says("BADSIG") {
            return Ok(());
        }
        Err(not_trusted("gpgv", &output.stderr))
    }
}

impl Verifier for Sqv {
    fn verify(&self, text: &str, signature: &str, keyring: &[u8]) -> Result<(), SignatureError> {
        let output = run(&self.program, &[], text, signature, keyring)?;
        if output.status.success() {
            return Ok(());
        }
        Err(not_trusted("sqv", &output.stderr))
    }
}

fn not_trusted(program: &str, stderr: &[u8]) -> SignatureError {
    let said = String::from_utf8_lossy(stderr);
    SignatureError::NotTrusted {
        program: program.to_owned(),
        said: said.split_whitespace().collect::<Vec<_>>().join(" "),
    }
}

/// Runs `program … --keyring KEYRING SIGNATURE TEXT`; both programs take these.
fn run(
    program: &Path,
    arguments: &[&str],
    text: &str,
    signature: &str,
    keyring: &[u8],
) -> Result<std::process::Output, SignatureError> {
    let failed = |source| SignatureError::Run {
        program: program.to_owned(),
        source,
    };
    let folder = tempfile::tempdir().map_err(failed)?;
    let file = |name: &str, bytes: &[u8]| -> Result<PathBuf, SignatureError> {
        let path = folder.path().join(name);
        fs::write(&path, bytes).map_err(failed)?;
        Ok(path)
    };
    let keyring = file("keyring.gpg", keyring)?;
    let signature = file("signature.asc", signature.as_bytes())?;
    let text = file("text", text.as_bytes())?;
    Command::new(program)
        .args(arguments)
        .arg("--keyring")
        .args([keyring, signature, text])
        .env_clear()
        .env("LC_ALL", "C")
        .env("GNUPGHOME", folder.path())
        .env("HOME", folder.path())
        .stdin(Stdio::null())
        .output()
        .map_err(failed)
}

/// The keyring without armour, which gpgv does not take.
fn binary_keyring(keyring: &[u8]) -> Result<Vec<u8>, SignatureError> {
    const BEGIN: &str = "-----BEGIN PGP PUBLIC KEY BLOCK-----";
    const END: &str = "-----END PGP PUBLIC KEY BLOCK-----";
    let Some(text) = std::str::from_utf8(keyring)
        .ok()
        .filter(|text| text.contains(BEGIN))
    else {
        return Ok(keyring.to_owned());
    };
    let mut keys = Vec::new();
    for block in text.split(BEGIN).skip(1) {
        let (block, _) = block.split_once(END).ok_or(SignatureError::Keyring {
            why: "a block has no end",
        })?;
        // Armour headers, a blank line, base64, and a checksum line that begins with `=`.
        let body = block.trim_start_matches([' ', '\t', '\r', '\n']);
        let body = body.split_once("\n\n").map_or(body, |(_, body)| body);
        let base64 = body
            .lines()
            .map(str::trim)
            .filter(|line| !line.starts_with('='))
            .flat_map(str::bytes);
        keys.extend(decode_base64(base64).ok_or(SignatureError::Keyring {
            why: "a block is not base64",
        })?);
    }
    Ok(keys)
}

/// Base64 (RFC 4648, 4); `None` for a byte that is none of its letters.
fn decode_base64(text: impl Iterator<Item = u8>) -> Option<Vec<u8>> {
    let (mut out, mut buffer, mut bits) = (Vec::new(), 0_u32, 0);
    for byte in text.take_while(|byte| *byte != b'=') {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        buffer = (buffer << 6) | u32::from(value);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push((buffer >> bits) as u8);
            buffer &= (1 << bits) - 1;
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt;

    // Made by tests/data/archive/make.sh with keys that exist for these tests only.
    const GOOD: &[u8] = include_bytes!("../../tests/data/archive/good");
    const TWO_SIGNERS: &[u8] =
        include_bytes!("../../tests/data/archive/dists/trixie-updates/InRelease");
    const EXPIRED: &[u8] = include_bytes!("../../tests/data/archive/expired");
    const KEYRING: &[u8] = include_bytes!("../../tests/data/archive/keyring.gpg");
    const ARMOURED: &[u8] = include_bytes!("../../tests/data/archive/keyring.asc");
    const STRANGER: &[u8] = include_bytes!("../../tests/data/archive/stranger.gpg");

    fn open(message: &[u8], keyring: &[u8]) -> Result<String, SignatureError> {
        let folders = ["/usr/bin", "/bin"].map(PathBuf::from);
        let verifier = find_verifier(&folders).expect("this test needs gpgv or sqv");
        open_clearsigned(message, keyring, verifier.as_ref())
    }

    fn text(message: &[u8]) -> String {
        String::from_utf8(message.to_owned()).unwrap()
    }

    #[test]
    fn a_good_signature() {
        for keyring in [KEYRING, ARMOURED] {
            let signed = open(GOOD, keyring).unwrap();
            assert!(signed.starts_with("Origin: Debian\n"));
            assert!(
                signed.contains("\n- but this one is\n"),
                "dash-escapes are undone"
            );
            assert!(!signed.contains("PGP"));
        }
    }

    #[test]
    fn one_known_signer_of_two_is_enough() {
        assert!(open(TWO_SIGNERS, ARMOURED).is_ok());
        assert!(open(TWO_SIGNERS, STRANGER).is_ok());
    }

    #[test]
    fn a_strangers_signature() {
        let error = open(GOOD, STRANGER).unwrap_err();
        assert!(matches!(error, SignatureError::NotTrusted { .. }));
        assert_eq!(error.exit_code(), exit::VERIFY);
    }

    #[test]
    fn a_tampered_text() {
        let tampered = text(GOOD).replace("Origin: Debian", "Origin: debian");
        assert!(matches!(
            open(tampered.as_bytes(), KEYRING),
            Err(SignatureError::NotTrusted { .. })
        ));
        let cut = text(GOOD).replace("Suite: test\n", "");
        assert!(matches!(
            open(cut.as_bytes(), KEYRING),
            Err(SignatureError::NotTrusted { .. })
        ));
    }

    fn with_signature(signature: &str) -> String {
        let good = text(GOOD);
        let at = good.find(BEGIN_SIGNATURE).unwrap();
        format!("{}{signature}", &good[..at])
    }

    fn packets(message: &[u8]) -> Vec<u8> {
        let (_, signature) = split_clearsigned(std::str::from_utf8(message).unwrap()).unwrap();
        let (_, body) = signature.split_once("\n\n").unwrap();
        let body = body.lines().filter(|line| !line.starts_with(['=', '-']));
        decode_base64(body.flat_map(str::bytes)).unwrap()
    }

    fn armoured(packets: &[u8]) -> String {
        const LETTERS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut body = String::new();
        for (number, three) in packets.chunks(3).enumerate() {
            let bits = three
                .iter()
                .fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
            let bits = bits << (8 * (3 - three.len()));
            for letter in 0..4 {
                let index = (bits >> (18 - 6 * letter)) & 63;
                body.push(if letter <= three.len() {
                    LETTERS[index as usize] as char
                } else {
                    '='
                });
            }
            if number % 16 == 15 {
                body.push('\n');
            }
        }
        format!(
            "{BEGIN_SIGNATURE}\n\n{}\n{END_SIGNATURE}\n",
            body.trim_end()
        )
    }

    #[test]
    fn the_signatures_of_another_message() {
        let message = with_signature(&armoured(&packets(TWO_SIGNERS)));
        assert!(matches!(
            open(message.as_bytes(), KEYRING),
            Err(SignatureError::NotTrusted { .. })
        ));
    }

    #[test]
    fn a_bad_signature_beside_a_good_one() {
        let verifier = Gpgv {
            program: PathBuf::from("/usr/bin/gpgv"),
        };
        let check = |signatures: &[u8]| {
            let message = with_signature(&armoured(signatures));
            open_clearsigned(message.as_bytes(), KEYRING, &verifier)
        };
        assert!(check(&packets(GOOD)).is_ok());
        let both = [packets(GOOD), packets(TWO_SIGNERS)].concat();
        assert!(matches!(
            check(&both),
            Err(SignatureError::NotTrusted { .. })
        ));
    }

    #[test]
    fn an_expired_key() {
        let verifier = Gpgv {
            program: PathBuf::from("/usr/bin/gpgv"),
        };
        let result = open_clearsigned(EXPIRED, KEYRING, &verifier);
        assert!(
            matches!(result, Err(SignatureError::NotTrusted { .. })),
            "{result:?}"
        );
    }

    #[test]
    fn unsigned_text_is_refused() {
        let good = text(GOOD);
        for message in [
            "Origin: Debian\n".to_owned(),
            String::new(),
            format!("Injected: yes\n{good}"),
            format!("{good}Injected: yes\n"),
            format!("{good}{good}"),
            good.replacen("\n\n", "\nInjected: yes\n\n", 1),
            good.replace("\nOrigin", "\n-Injected: yes\nOrigin"),
            good.replace(BEGIN_SIGNATURE, "-----BEGIN PGP SIGNATURE----- "),
            good.replace(END_SIGNATURE, ""),
            good.split(BEGIN_SIGNATURE).next().unwrap().to_owned(),
        ] {
            let result = open(message.as_bytes(), KEYRING);
            assert!(
                matches!(result, Err(SignatureError::NotClearsigned { .. })),
                "{message}"
            );
        }
        assert!(matches!(
            open(&[0xff, 0xfe], KEYRING),
            Err(SignatureError::NotClearsigned { .. })
        ));
    }

    #[test]
    fn a_keyring_that_is_none() {
        assert!(open(GOOD, b"no keyring").is_err());
        assert!(open(GOOD, b"").is_err());
        let armour = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDME\n";
        assert!(matches!(
            open(GOOD, armour.as_bytes()),
            Err(SignatureError::Keyring { .. }) | Err(SignatureError::NotTrusted { .. })
        ));
    }

    #[test]
    fn base64() {
        let decode = |text: &str| decode_base64(text.bytes());
        assert_eq!(decode("Zm9vYmE=").unwrap(), b"fooba");
        assert_eq!(decode("Zm9vYmFy").unwrap(), b"foobar");
        assert_eq!(decode("Zm9v Zm9v"), None);
    }

    /// sqv is asked as it wants to be, and its exit status decides.
    #[test]
    fn sqv_decides_by_its_exit_status() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("sqv");
        for (status, is_good) in [(0, true), (1, false)] {
            let script = format!(
                "#!/bin/sh\n[ \"$1\" = --keyring ] && grep -q 'BEGIN PGP SIG' \"$3\" && grep -q Codename \"$4\" || exit 9\nexit {status}\n"
            );
            fs::write(&program, script).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
            let verifier = find_verifier(&[folder.path().to_owned()]).unwrap();
            assert_eq!(
                open_clearsigned(GOOD, KEYRING, verifier.as_ref()).is_ok(),
                is_good
            );
        }
        assert!(matches!(find_verifier(&[]), Err(SignatureError::NoProgram)));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(-----BEGIN PGP SIGNED MESSAGE-----\n|\n|- |-----BEGIN PGP SIGNATURE-----\n|-----END PGP SIGNATURE-----|\\PC){0,30}") {
            let _ = split_clearsigned(&text);
            let _ = binary_keyring(text.as_bytes());
        }
    }
}
