//! Java's own key stores (type JKS), as `keytool -storetype JKS` writes them.
//!
//! ```text
//! store       := u32 0xFEEDFEED  u32 version (1 or 2)  u32 count, count * entry  20 bytes digest
//! entry       := u32 1  alias  u64 time  bytes key  u32 count, count * certificate     a private key
//!              | u32 2  alias  u64 time  certificate                                   a trusted certificate
//! certificate := type (version 2 only)  bytes
//! alias, type := u16 length, modified UTF-8;  bytes := u32 length, that many bytes
//! ```
//!
//! Numbers are big-endian. The digest is the SHA-1 of the password, of `Mighty Aphrodite`, and of everything before it.
//! A key is an `EncryptedPrivateKeyInfo` of PKCS #8 with an algorithm of Sun's: 20 bytes of salt, the encrypted key,
//! and the SHA-1 of the password and the key. The key is combined (exclusive or) with a chain of SHA-1 digests, of
//! which the first is that of the password and the salt, and each further one that of the password and the one before
//! it. In all of them the password is UTF-16.

use super::der::{self, OCTET_STRING, SEQUENCE};
use sha1::{Digest, Sha1};

/// The first bytes of a store.
pub(super) const MAGIC: [u8; 4] = [0xFE, 0xED, 0xFE, 0xED];

const DIGEST_SIZE: usize = 20;
const PRIVATE_KEY: u32 = 1;
const TRUSTED_CERTIFICATE: u32 = 2;
/// The name of the algorithm that protects keys, 1.3.6.1.4.1.42.2.17.1.1, in DER.
const KEY_PROTECTOR: [u8; 12] = [0x06, 0x0A, 0x2B, 0x06, 0x01, 0x04, 0x01, 0x2A, 0x02, 0x11, 0x01, 0x01];

/// Java's texts.
const WRONG_PASSWORD: &str = "Keystore was tampered with, or password was incorrect";
const WRONG_KEY_PASSWORD: &str = "Cannot recover key";
const BROKEN: &str = "this store of the type JKS is damaged";

/// The contents of a store.
pub(super) struct JavaStore {
    /// The first private key, still protected, and its certificate followed by those of its issuers.
    identity: Option<(Vec<u8>, Vec<Vec<u8>>)>,
    /// Certificates that are trusted.
    pub(super) trusted: Vec<Vec<u8>>,
}

/// A private key as PKCS #8, and its certificates.
type KeyWithChain<'s> = (Vec<u8>, &'s [Vec<u8>]);

impl JavaStore {
    /// Reads a store and checks its digest. As in Java, it is not checked without a password.
    pub(super) fn read(bytes: &[u8], password: Option<&str>) -> Result<JavaStore, String> {
        let (content, digest) = bytes.split_last_chunk::<DIGEST_SIZE>().ok_or(BROKEN)?;
        if password.is_some_and(|password| digest_of(password, &[b"Mighty Aphrodite", content]) != *digest) {
            return Err(WRONG_PASSWORD.to_owned());
        }
        read_entries(content).ok_or_else(|| BROKEN.to_owned())
    }

    /// The first private key as PKCS #8, and its certificates; `None` if there is no key.
    pub(super) fn identity(&self, password: &str) -> Result<Option<KeyWithChain<'_>>, String> {
        let Some((key, chain)) = &self.identity else { return Ok(None) };
        let protected =
            protected_key(key).ok_or("its private key is not protected in the way of stores of the type JKS")?;
        let key = recover(protected, password).ok_or(WRONG_KEY_PASSWORD)?;
        Ok(Some((key, chain)))
    }
}

/// The entries of a store without its digest; `None` if it is damaged or has an unknown version.
fn read_entries(content: &[u8]) -> Option<JavaStore> {
    let mut input = Input(content.strip_prefix(&MAGIC)?);
    let version = input.number()?;
    if !matches!(version, 1 | 2) {
        return None;
    }
    let mut store = JavaStore { identity: None, trusted: Vec::new() };
    for _ in 0..input.number()? {
        let kind = input.number()?;
        input.name()?;
        input.take(8)?;
        match kind {
            PRIVATE_KEY => {
                let key = input.bytes()?.to_vec();
                let mut chain = Vec::new();
                for _ in 0..input.number()? {
                    chain.push(input.certificate(version)?);
                }
                store.identity.get_or_insert((key, chain));
            }
            TRUSTED_CERTIFICATE => store.trusted.push(input.certificate(version)?),
            _ => return None,
        }
    }
    input.0.is_empty().then_some(store)
}

/// The unread rest of a store.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(*self.take(4)?.first_chunk()?))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        self.take(length)
    }

    fn name(&mut self) -> Option<&'a [u8]> {
        let length = u16::from_be_bytes(*self.take(2)?.first_chunk()?);
        self.take(usize::from(length))
    }

    fn certificate(&mut self, version: u32) -> Option<Vec<u8>> {
        if version == 2 {
            self.name()?;
        }
        self.bytes().map(<[u8]>::to_vec)
    }
}

/// The encrypted bytes of a key; `None` if another algorithm protects it.
fn protected_key(key: &[u8]) -> Option<&[u8]> {
    let mut input = key;
    let mut info = der::take(&mut input, SEQUENCE)?;
    let algorithm = der::take(&mut info, SEQUENCE)?;
    algorithm.starts_with(&KEY_PROTECTOR).then(|| der::take(&mut info, OCTET_STRING)).flatten()
}

/// The key; `None` if the password is wrong.
fn recover(protected: &[u8], password: &str) -> Option<Vec<u8>> {
    let (salt, rest) = protected.split_first_chunk::<DIGEST_SIZE>()?;
    let (encrypted, check) = rest.split_last_chunk::<DIGEST_SIZE>()?;
    let mut digest = *salt;
    let mut key = Vec::with_capacity(encrypted.len());
    for part in encrypted.chunks(DIGEST_SIZE) {
        digest = digest_of(password, &[&digest]);
        key.extend(part.iter().zip(digest).map(|(byte, pad)| byte ^ pad));
    }
    (digest_of(password, &[&key]) == *check).then_some(key)
}

fn digest_of(password: &str, parts: &[&[u8]]) -> [u8; DIGEST_SIZE] {
    let mut digest = Sha1::new();
    password.encode_utf16().for_each(|unit| digest.update(unit.to_be_bytes()));
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key and its certificate have the password `secret`, the trusted certificate `trusting`, and the key of the
    /// third store `another`. Made by keytool.
    const NODE: &[u8] = include_bytes!("fixtures/node.jks");
    const TRUSTED: &[u8] = include_bytes!("fixtures/trusted.jks");
    const OTHER_KEY_PASSWORD: &[u8] = include_bytes!("fixtures/other_key_password.jks");

    fn refusal(bytes: &[u8], password: &str) -> String {
        JavaStore::read(bytes, Some(password)).err().unwrap_or_default()
    }

    #[test]
    fn the_keys_and_certificates_of_keytool_are_read() {
        let node = JavaStore::read(NODE, Some("secret")).unwrap();
        let (key, chain) = node.identity("secret").unwrap().unwrap();
        assert!(key.starts_with(&[SEQUENCE]) && chain.len() == 1 && node.trusted.is_empty());
        for password in [Some("trusting"), None] {
            let trusted = JavaStore::read(TRUSTED, password).unwrap();
            assert_eq!(trusted.trusted, chain);
            assert!(trusted.identity("secret").unwrap().is_none());
        }
    }

    #[test]
    fn wrong_passwords_are_refused_with_javas_texts() {
        for password in ["", "secre", "Secret", "trusting"] {
            assert_eq!(refusal(NODE, password), WRONG_PASSWORD);
        }
        let other = JavaStore::read(OTHER_KEY_PASSWORD, Some("secret")).unwrap();
        assert_eq!(other.identity("secret").unwrap_err(), WRONG_KEY_PASSWORD);
        assert!(other.identity("another").unwrap().is_some());
    }

    /// With a password each change is found. Without one, damage may only make certificates of other bytes.
    #[test]
    fn a_store_that_was_changed_or_cut_is_refused() {
        for at in 0..NODE.len() {
            let mut changed = NODE.to_vec();
            changed[at] ^= 1 << (at % 8);
            assert_eq!(refusal(&changed, "secret"), WRONG_PASSWORD, "{at}");
            let _ = JavaStore::read(&changed, None).map(|store| store.identity("secret").map(|_| ()));
            assert!(JavaStore::read(&NODE[..at], None).is_err(), "{at}");
        }
    }
}
