//! ECDSA keys on P-256: cosign's default, and the only kind that is read here.

use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _,
    UnparsedPublicKey,
};
use sconce_schema::{Hint, exit};
use zeroize::Zeroizing;

use super::keyfile::{self, KeyFile, MAX_MEMORY_BYTES};
use super::pem::{self, PemError};

const PUBLIC: &str = "PUBLIC KEY";
/// What stands before the point in the `SubjectPublicKeyInfo` of a P-256 key (RFC 5480, section 2):
/// DER has one spelling, so comparing it is reading it.
const P256: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];
/// An uncompressed point: 4 and two coordinates.
const POINT: usize = 65;

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Not the PEM that was expected.
    #[error("the key file cannot be read")]
    Pem(#[from] PemError),
    /// The PEM block does not hold the JSON of a key.
    #[error("the key file does not hold what cosign writes")]
    Malformed(#[from] serde_json::Error),
    /// Made with methods that cosign does not use.
    #[error("the key file's {what} is `{found}`, which cosign does not use")]
    Method {
        /// Key derivation, or cipher.
        what: &'static str,
        /// Its name.
        found: String,
    },
    /// A field is no base64 or has a wrong length.
    #[error("the key file's {what} is malformed")]
    Field {
        /// Its name.
        what: &'static str,
    },
    /// Opening it would take too much, or the numbers are none that scrypt can have.
    #[error("the key file asks for scrypt with N={n}, r={r}, p={p}; at most {} MiB are spent on a key", MAX_MEMORY_BYTES >> 20)]
    Cost {
        /// Rows of the table.
        n: u64,
        /// Size of a row, in 128 bytes.
        r: u32,
        /// Passes.
        p: u32,
    },
    /// The password is wrong, or the file was changed.
    #[error("the key file does not open with this password")]
    Password,
    /// Another kind of key.
    #[error("the key is not an ECDSA key on P-256")]
    Kind,
    /// The machine gave no random numbers.
    #[error("the machine gives no random numbers")]
    Random,
}

impl Hint for KeyError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Password => "give the password that the key was made with".to_owned(),
            Self::Random => return None,
            _ => "keys of `cosign generate-key-pair` can be used: an encrypted `cosign.key`, and \
                  `cosign.pub` with its public half"
                .to_owned(),
        })
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Random => exit::BUG,
            Self::Pem(_)
            | Self::Malformed(_)
            | Self::Method { .. }
            | Self::Field { .. }
            | Self::Cost { .. }
            | Self::Password
            | Self::Kind => exit::BAD_INPUT,
        }
    }
}

/// A key that signs.
pub struct SigningKey(EcdsaKeyPair);

/// A key's files, both PEM.
#[derive(Debug)]
pub struct KeyTexts {
    /// `cosign.key`, for its owner alone: encrypted with the password.
    pub private: String,
    /// `cosign.pub`.
    pub public: String,
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SigningKey")
            .field(&self.public_key())
            .finish()
    }
}

impl SigningKey {
    /// Makes a key and the texts of its files, as `cosign generate-key-pair` does. An empty password
    /// is possible, as there.
    ///
    /// # Errors
    /// [`KeyError::Random`].
    pub fn generate_pem_pair(password: &[u8]) -> Result<KeyTexts, KeyError> {
        let private = new_pkcs8()?;
        Ok(KeyTexts {
            private: keyfile::encrypt_key(&private, password)?,
            public: Self::of_pkcs8(&private)?.public_key().to_pem(),
        })
    }

    /// A key that is nowhere written, as opening a file takes long.
    #[cfg(test)]
    pub(super) fn generate_temporary() -> Self {
        Self::of_pkcs8(&new_pkcs8().unwrap()).unwrap()
    }

    /// Opens a key file.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn from_key_file(file: &KeyFile, password: &[u8]) -> Result<Self, KeyError> {
        Self::of_pkcs8(&file.decrypt_key(password)?)
    }

    fn of_pkcs8(private: &[u8]) -> Result<Self, KeyError> {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, private, &random);
        pair.map(Self).map_err(|_| KeyError::Kind)
    }

    /// Its public half.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        let mut point = [0; POINT];
        point.copy_from_slice(self.0.public_key().as_ref());
        PublicKey(point)
    }

    /// Signs `message` with SHA-256; the signature is DER, and another one each time.
    ///
    /// # Errors
    /// [`KeyError::Random`].
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let signed = self.0.sign(&SystemRandom::new(), message);
        Ok(signed.map_err(|_| KeyError::Random)?.as_ref().to_vec())
    }
}

fn new_pkcs8() -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let random = SystemRandom::new();
    let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random);
    let made = made.map_err(|_| KeyError::Random)?;
    Ok(Zeroizing::new(made.as_ref().to_vec()))
}

/// A key that verifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicKey([u8; POINT]);

impl PublicKey {
    /// Reads PEM with a `SubjectPublicKeyInfo`. That the point lies on the curve is seen when a
    /// signature is verified.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, KeyError> {
        let der = pem::decode(bytes, &[PUBLIC], "a public key")?;
        let point = der
            .strip_prefix(&P256)
            .and_then(|point| point.try_into().ok());
        let uncompressed = |point: &[u8; POINT]| point[0] == 4;
        point.filter(uncompressed).map(Self).ok_or(KeyError::Kind)
    }

    /// PEM with a `SubjectPublicKeyInfo`.
    #[must_use]
    pub fn to_pem(&self) -> String {
        pem::encode(PUBLIC, &[&P256[..], &self.0].concat())
    }

    /// Whether `signature` (DER) is this key's over `message`.
    #[must_use]
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, &self.0);
        key.verify(message, signature).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by cosign 2.5.0 (Debian 2.5.0-2+b4): `COSIGN_PASSWORD=pass cosign generate-key-pair`.
    const COSIGN_KEY: &[u8] = include_bytes!("testdata/cosign.key");
    const COSIGN_PUB: &[u8] = include_bytes!("testdata/cosign.pub");

    #[test]
    fn a_key_of_cosign_s_opens() {
        let file = KeyFile::parse(COSIGN_KEY).unwrap();
        assert_eq!(file.memory_bytes() >> 20, 64);
        let key = SigningKey::from_key_file(&file, b"pass").unwrap();
        let public = PublicKey::parse(COSIGN_PUB).unwrap();
        assert_eq!(key.public_key(), public);
        assert_eq!(public.to_pem().as_bytes(), COSIGN_PUB);
        let wrong = SigningKey::from_key_file(&file, b"Pass").unwrap_err();
        assert!(matches!(wrong, KeyError::Password));
        assert_eq!(wrong.exit_code(), exit::BAD_INPUT);
    }

    #[test]
    fn a_key_of_ours_opens_signs_and_verifies() {
        let texts = SigningKey::generate_pem_pair(b"").unwrap();
        let file = KeyFile::parse(texts.private.as_bytes()).unwrap();
        let key = SigningKey::from_key_file(&file, b"").unwrap();
        let public = PublicKey::parse(texts.public.as_bytes()).unwrap();
        assert_eq!(key.public_key(), public);
        assert_eq!(format!("{key:?}"), format!("SigningKey({public:?})"));
        let signature = key.sign(b"message").unwrap();
        assert!(public.verify(b"message", &signature));
        assert!(!public.verify(b"massage", &signature));
        let other = PublicKey::parse(COSIGN_PUB).unwrap();
        assert!(!other.verify(b"message", &signature));
        for length in 0..signature.len() {
            assert!(!public.verify(b"message", &signature[..length]));
        }
        assert!(!public.verify(b"message", &[0xff; 72]));
    }

    #[test]
    fn other_keys_are_said() {
        // An Ed25519 key's first bytes, a point in compressed form, one byte too many.
        let compressed = [&P256[..], &[2; POINT]].concat();
        let long = [&P256[..], &[4; POINT + 1]].concat();
        for der in [&[0x30, 0x2a, 0x30, 0x05][..], &compressed, &long, b""] {
            let said = PublicKey::parse(pem::encode(PUBLIC, der).as_bytes()).unwrap_err();
            assert!(matches!(said, KeyError::Kind), "{said}");
        }
        assert!(matches!(
            PublicKey::parse(COSIGN_KEY),
            Err(KeyError::Pem(_))
        ));
        let nowhere = [&P256[..], &[4; POINT]].concat();
        let nowhere = PublicKey::parse(pem::encode(PUBLIC, &nowhere).as_bytes()).unwrap();
        assert!(
            !nowhere.verify(b"", &[]),
            "a point that is not on the curve"
        );
        let sealed = keyfile::encrypt_key(b"not PKCS #8", b"").unwrap();
        let file = KeyFile::parse(sealed.as_bytes()).unwrap();
        assert!(matches!(
            SigningKey::from_key_file(&file, b""),
            Err(KeyError::Kind)
        ));
    }
}
