//! cosign's encrypted key file: PEM around JSON, the private key in a NaCl box whose key scrypt
//! makes from a password.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::KeyError;
use super::pem;
use super::secretbox::{self, KEY, NONCE};

/// cosign 2's label, and the one of cosign 1.
const LABELS: [&str; 2] = [
    "ENCRYPTED SIGSTORE PRIVATE KEY",
    "ENCRYPTED COSIGN PRIVATE KEY",
];
const EXPECTED: &str = "cosign's encrypted private key";
const KDF: &str = "scrypt";
const CIPHER: &str = "nacl/secretbox";
/// What cosign writes, and it reads nothing but this and the half of it and the double.
const COST: Scrypt = Scrypt {
    n: 65_536,
    r: 8,
    p: 1,
};
const SALT: usize = 32;

/// The most memory that a key file may ask for to try a password, in bytes: four times what cosign
/// writes. A file that asks for more is not opened.
pub const MAX_MEMORY_BYTES: u64 = 256 << 20;
/// The most times that this memory may be gone through.
const MAX_PASSES: u64 = 16;

/// A key file, read and not yet opened.
#[derive(Debug)]
pub struct KeyFile {
    cost: scrypt::Params,
    memory: u64,
    salt: Vec<u8>,
    nonce: [u8; NONCE],
    sealed: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
struct KeyFileJson {
    kdf: Kdf,
    cipher: Cipher,
    ciphertext: String,
}

#[derive(Serialize, Deserialize)]
struct Kdf {
    name: String,
    params: Scrypt,
    salt: String,
}

#[derive(Serialize, Deserialize)]
struct Scrypt {
    #[serde(rename = "N")]
    n: u64,
    r: u32,
    p: u32,
}

#[derive(Serialize, Deserialize)]
struct Cipher {
    name: String,
    nonce: String,
}

impl KeyFile {
    /// Reads a key file's bytes.
    ///
    /// # Errors
    /// [`KeyError`], all but a wrong password.
    pub fn parse(bytes: &[u8]) -> Result<Self, KeyError> {
        let json = pem::decode(bytes, &LABELS, EXPECTED)?;
        let written: KeyFileJson = serde_json::from_slice(&json)?;
        for (what, found, expected) in [
            ("key derivation", &written.kdf.name, KDF),
            ("cipher", &written.cipher.name, CIPHER),
        ] {
            if found != expected {
                let found = found.chars().take(60).collect();
                return Err(KeyError::Method { what, found });
            }
        }
        let (cost, memory) = bounded(&written.kdf.params)?;
        let base64 = |text: &str, what| {
            let decoded = STANDARD.decode(text);
            decoded.map_err(|_| KeyError::Field { what })
        };
        let nonce = base64(&written.cipher.nonce, "nonce")?;
        let nonce = nonce
            .try_into()
            .map_err(|_| KeyError::Field { what: "nonce" })?;
        Ok(Self {
            cost,
            memory,
            salt: base64(&written.kdf.salt, "salt")?,
            nonce,
            sealed: base64(&written.ciphertext, "ciphertext")?,
        })
    }

    /// The memory that trying a password takes, in bytes: [`MAX_MEMORY_BYTES`] at most.
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.memory
    }

    /// The private key in PKCS #8. Takes [`KeyFile::memory_bytes`], and some tenths of a second.
    pub(super) fn decrypt_key(&self, password: &[u8]) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        let key = derived(password, &self.salt, &self.cost);
        secretbox::open(&key, &self.nonce, &self.sealed).ok_or(KeyError::Password)
    }
}

/// The file's text for a private key in PKCS #8.
pub(super) fn encrypt_key(private: &[u8], password: &[u8]) -> Result<String, KeyError> {
    let random = SystemRandom::new();
    let (mut salt, mut nonce) = ([0; SALT], [0; NONCE]);
    random.fill(&mut salt).map_err(|_| KeyError::Random)?;
    random.fill(&mut nonce).map_err(|_| KeyError::Random)?;
    let (cost, _) = bounded(&COST)?;
    let key = derived(password, &salt, &cost);
    let written = KeyFileJson {
        kdf: Kdf {
            name: KDF.to_owned(),
            params: COST,
            salt: STANDARD.encode(salt),
        },
        cipher: Cipher {
            name: CIPHER.to_owned(),
            nonce: STANDARD.encode(nonce),
        },
        ciphertext: STANDARD.encode(secretbox::seal(&key, &nonce, private)),
    };
    Ok(pem::encode(LABELS[0], &sconce_oci::to_json(&written)))
}

/// The cost as the library wants it and the memory it takes, within what a foreign file may ask for.
fn bounded(cost: &Scrypt) -> Result<(scrypt::Params, u64), KeyError> {
    let wrong = || KeyError::Cost {
        n: cost.n,
        r: cost.r,
        p: cost.p,
    };
    let block = u64::from(cost.r).saturating_mul(128);
    // The parallel blocks lie beside the table.
    let rows = cost.n.saturating_add(u64::from(cost.p));
    let memory = block.saturating_mul(rows);
    let fine = cost.n.is_power_of_two()
        && cost.n > 1
        && memory <= MAX_MEMORY_BYTES
        && u64::from(cost.p) <= MAX_PASSES;
    // First: the library multiplies without looking.
    if !fine {
        return Err(wrong());
    }
    let log_n = u8::try_from(cost.n.trailing_zeros()).map_err(|_| wrong())?;
    let params = scrypt::Params::new(log_n, cost.r, cost.p).map_err(|_| wrong())?;
    Ok((params, memory))
}

fn derived(password: &[u8], salt: &[u8], cost: &scrypt::Params) -> Zeroizing<[u8; KEY]> {
    let mut key = Zeroizing::new([0; KEY]);
    scrypt::scrypt(password, salt, cost, &mut key[..]).expect("32 bytes are a possible length");
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(change: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
        let mut json = serde_json::json!({
            "kdf": {"name": "scrypt", "params": {"N": 2, "r": 1, "p": 1}, "salt": "AAAA"},
            "cipher": {"name": "nacl/secretbox", "nonce": STANDARD.encode([0; NONCE])},
            "ciphertext": "",
        });
        change(&mut json);
        pem::encode(LABELS[1], json.to_string().as_bytes()).into_bytes()
    }

    #[test]
    fn a_file_that_asks_for_too_much_is_refused() {
        for (n, r, p) in [
            (0_u64, 8, 1),
            (1, 8, 1),
            (65_535, 8, 1),
            (1 << 19, 8, 1),
            (1 << 63, 8, 1),
            (u64::MAX, u32::MAX, u32::MAX),
            (2, 0, 1),
            (2, 8, 0),
            (2, u32::MAX, 1),
            (2, 1, u32::MAX),
            (2, 1 << 16, 1 << 16),
            (1 << 16, 8, 17),
        ] {
            let asked = serde_json::json!({"N": n, "r": r, "p": p});
            let made = file(|json| json["kdf"]["params"] = asked);
            let said = KeyFile::parse(&made).unwrap_err();
            assert!(matches!(said, KeyError::Cost { .. }), "{n} {r} {p}: {said}");
        }
        let double = serde_json::json!({"N": 131_072, "r": 8, "p": 1});
        let made = file(|json| json["kdf"]["params"] = double);
        assert_eq!(KeyFile::parse(&made).unwrap().memory_bytes() >> 20, 128);
    }

    #[test]
    fn a_malformed_file_is_refused() {
        assert!(KeyFile::parse(&file(|_| ())).is_ok());
        for (field, wrong) in [
            ("/kdf/name", "pbkdf2"),
            ("/cipher/name", "none"),
            ("/cipher/nonce", "AAAA"),
            ("/cipher/nonce", "%"),
            ("/kdf/salt", "%"),
            ("/ciphertext", "%"),
        ] {
            let made = file(|json| *json.pointer_mut(field).unwrap() = wrong.into());
            let said = KeyFile::parse(&made).unwrap_err();
            let fine = matches!(said, KeyError::Method { .. } | KeyError::Field { .. });
            assert!(fine, "{field}: {said}");
        }
        let negative = file(|json| json["kdf"]["params"]["N"] = (-1).into());
        assert!(matches!(
            KeyFile::parse(&negative),
            Err(KeyError::Malformed(_))
        ));
        let short = KeyFile::parse(&file(|_| ())).unwrap();
        assert!(matches!(short.decrypt_key(b""), Err(KeyError::Password)));
    }
}
