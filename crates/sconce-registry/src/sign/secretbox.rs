//! NaCl's `crypto_secretbox`: XSalsa20 and Poly1305 ("Cryptography in NaCl", section 10).
//!
//! The two parts are RustCrypto's; put together here, as the released crate that does it needs an
//! older generation of nine crates besides the ones that scrypt needs.

use poly1305::Poly1305;
use poly1305::universal_hash::KeyInit as _;
use salsa20::XSalsa20;
use salsa20::cipher::{KeyIvInit as _, StreamCipher as _};
use zeroize::Zeroizing;

/// Bytes of a key.
pub(super) const KEY: usize = 32;
/// Bytes of a nonce.
pub(super) const NONCE: usize = 24;
/// Bytes that the box is longer than its content; they stand first.
pub(super) const TAG: usize = 16;

/// Encrypts `content`. A nonce must never be used twice with one key.
pub(super) fn seal(key: &[u8; KEY], nonce: &[u8; NONCE], content: &[u8]) -> Vec<u8> {
    let (mut stream, mac) = start(key, nonce);
    let mut out = vec![0; TAG];
    out.extend_from_slice(content);
    let (tag, body) = out.split_at_mut(TAG);
    stream.apply_keystream(body);
    tag.copy_from_slice(&mac.compute_unpadded(body));
    out
}

/// Decrypts what [`seal`] made; `None` if the key is another or a byte was changed.
pub(super) fn open(
    key: &[u8; KEY],
    nonce: &[u8; NONCE],
    sealed: &[u8],
) -> Option<Zeroizing<Vec<u8>>> {
    let (tag, body) = sealed.split_at_checked(TAG)?;
    let (mut stream, mac) = start(key, nonce);
    let expected = mac.compute_unpadded(body);
    // Without a branch in between, so that the time says nothing of where they differ.
    let differs = expected
        .iter()
        .zip(tag)
        .fold(0, |all, (a, b)| all | (a ^ b));
    if differs != 0 {
        return None;
    }
    let mut content = Zeroizing::new(body.to_vec());
    stream.apply_keystream(&mut content);
    Some(content)
}

/// The stream's first 32 bytes are the authenticator's key, the content begins after them.
fn start(key: &[u8; KEY], nonce: &[u8; NONCE]) -> (XSalsa20, Poly1305) {
    let mut stream = XSalsa20::new(key.into(), nonce.into());
    let mut first = Zeroizing::new([0_u8; 32]);
    stream.apply_keystream(&mut first[..]);
    let mac = Poly1305::new((&*first).into());
    (stream, mac)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let pair = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(pair).collect()
    }

    /// The example of "Cryptography in NaCl", section 10.
    #[test]
    fn the_published_example() {
        let key = bytes("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389");
        let nonce = bytes("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37");
        let content = bytes(concat!(
            "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffc",
            "e5ecbaaf33bd751a1ac728d45e6c61296cdc3c01233561f41db66cce314adb31",
            "0e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde",
            "048977eb48f59ffd4924ca1c60902e52f0a089bc76897040e082f93776384864",
            "5e0705"
        ));
        let sealed = bytes(concat!(
            "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce",
            "48332ea7164d96a4476fb8c531a1186ac0dfc17c98dce87b4da7f011ec48c972",
            "71d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae",
            "90224368517acfeabd6bb3732bc0e9da99832b61ca01b6de56244a9e88d5f9b3",
            "7973f622a43d14a6599b1f654cb45a74e355a5"
        ));
        let key = key.try_into().unwrap();
        let nonce = nonce.try_into().unwrap();
        assert_eq!(seal(&key, &nonce, &content), sealed);
        assert_eq!(open(&key, &nonce, &sealed).unwrap().as_slice(), content);
        for at in [0, 15, 16, sealed.len() - 1] {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(open(&key, &nonce, &changed).is_none(), "byte {at}");
        }
        for length in [0, 15, 16, sealed.len() - 1] {
            assert!(
                open(&key, &nonce, &sealed[..length]).is_none(),
                "{length} bytes"
            );
        }
        let empty = seal(&key, &nonce, b"");
        assert_eq!(open(&key, &nonce, &empty).unwrap().as_slice(), b"");
    }
}
