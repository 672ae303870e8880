//! Logins of clients. Names and passwords (SASL PLAIN) are checked against bcrypt hashes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{OnceLock, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use super::book::Role;
use super::store::Change;
use super::{Login, failures};
use crate::{ErrorKind, LoginStart, Processor, QueryError};

/// The role of a new node, and its password.
const FIRST_ROLE: &str = "cassandra";

/// The cost of the hashes that are made here, as in Cassandra: 2^10 rounds.
const COST: u32 = 10;

/// Hashes of a higher cost are not checked, because that would take too long.
const COST_MAX: u32 = 16;

/// The names and passwords of a SASL PLAIN message, which is `[authorization id] NUL name NUL password`.
fn decode(token: &[u8]) -> Result<(String, String), QueryError> {
    let mut parts = token.rsplitn(4, |byte| *byte == 0);
    let (password, name) = (parts.next().unwrap_or_default(), parts.next());
    let (authorization, more) = (parts.next(), parts.next());
    if more.is_some() {
        let text = "Credential format error: username or password is empty or contains NUL(\\0) character";
        return Err(QueryError::new(ErrorKind::BadCredentials, text));
    }
    if name.is_none() || password.is_empty() {
        return Err(QueryError::new(ErrorKind::BadCredentials, "Password must not be null"));
    }
    let Some(name) = name.filter(|name| authorization.is_some() && !name.is_empty()) else {
        return Err(QueryError::new(ErrorKind::BadCredentials, "Authentication ID must not be null"));
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((text(name), text(password)))
}

/// The hash of a password that is stored.
pub(super) fn hash(password: &str) -> Result<String, QueryError> {
    let hashed = bcrypt::hash_with_result(password, COST).map_err(|error| QueryError::server(error.to_string()))?;
    Ok(hashed.format_for_version(bcrypt::Version::TwoA))
}

/// Whether this is a hash that Cassandra accepts, and that can be checked in a reasonable time.
pub(super) fn is_valid_hash(hash: &str) -> bool {
    let cost = hash.strip_prefix("$2a$").or_else(|| hash.strip_prefix("$2$")).and_then(|rest| rest.get(..2));
    cost.and_then(|cost| cost.parse().ok()).is_some_and(|cost: u32| (4..=COST_MAX).contains(&cost))
        && hash.parse::<bcrypt::HashParts>().is_ok()
}

/// Whether this hash is of the password. It takes a time that only the hash's cost determines.
fn is_hash_of(password: &str, hash: &str) -> bool {
    #[cfg(test)]
    tests::COMPUTED
        .with_borrow_mut(|costs| costs.extend(hash.parse().map(|parts: bcrypt::HashParts| parts.get_cost())));
    bcrypt::verify(password, hash).unwrap_or(false)
}

/// A hash of no password, for roles that do not exist.
fn dummy_hash() -> &'static str {
    static DUMMY: OnceLock<String> = OnceLock::new();
    DUMMY.get_or_init(|| hash(&uuid::Uuid::new_v4().to_string()).unwrap_or_default())
}

/// Makes that hash, so that the first login of an unknown role takes no longer than another.
pub(super) fn prepare_dummy_hash() {
    dummy_hash();
}

/// Passwords that were right a short time ago, as digests with a key that only this process knows.
pub(super) struct Verified {
    key: [u8; 16],
    of_roles: HashMap<String, (String, [u8; 32], Instant)>,
}

impl Default for Verified {
    fn default() -> Verified {
        Verified { key: uuid::Uuid::new_v4().into_bytes(), of_roles: HashMap::new() }
    }
}

impl Verified {
    fn digest(&self, password: &str) -> [u8; 32] {
        Sha256::new().chain_update(self.key).chain_update(password.as_bytes()).finalize().into()
    }

    /// Whether the password of this hash was right within `validity`.
    fn knows(&self, role: &str, password: &str, hash: &str, validity: Duration, now: Instant) -> bool {
        self.of_roles.get(role).is_some_and(|(known, digest, at)| {
            known == hash && now.duration_since(*at) < validity && *digest == self.digest(password)
        })
    }

    /// Forgets the passwords of these roles, or all if none is named.
    pub fn forget(&mut self, roles: &[String]) {
        if roles.is_empty() {
            self.of_roles.clear();
        }
        roles.iter().for_each(|role| drop(self.of_roles.remove(role)));
    }

    fn remember(&mut self, role: &str, password: &str, hash: &str, validity: Duration, max: usize, now: Instant) {
        if validity.is_zero() || max == 0 {
            return;
        }
        if self.of_roles.len() >= max && !self.of_roles.contains_key(role) {
            self.of_roles.retain(|_, (.., at)| now.duration_since(*at) < validity);
            if self.of_roles.len() >= max {
                return;
            }
        }
        let digest = self.digest(password);
        self.of_roles.insert(role.to_owned(), (hash.to_owned(), digest, now));
    }
}

/// The outcome of a check of a password without its hash.
enum QuickCheck {
    /// The password of the role with this name is right.
    Right(String),
    /// Only the hash shows whether it is.
    Unknown { name: String, password: String },
}

fn refused(name: &str) -> QueryError {
    QueryError::new(ErrorKind::BadCredentials, format!("Provided username {name} and/or password are incorrect"))
}

impl Processor {
    /// Checks a login as far as no password has to be hashed for that.
    pub(crate) fn start_login(&self, token: &[u8], address: Option<IpAddr>, certificate: Option<&[u8]>) -> LoginStart {
        if self.has_to_show_certificate(certificate) {
            return LoginStart::Done(self.check_login(token, address, certificate));
        }
        match self.check_without_hash(token, address) {
            Ok(QuickCheck::Right(name)) => LoginStart::Done(self.accept_login(&name, address)),
            Ok(QuickCheck::Unknown { name, .. }) => LoginStart::MustHash(failures::digest(&name)),
            Err(error) => LoginStart::Done(Err(error)),
        }
    }

    /// Checks the login of a client: its certificate, in DER, if it has one and certificates are taken, or else its
    /// SASL PLAIN message. A password is hashed unless it was right a short time ago.
    pub(crate) fn check_login(
        &self,
        token: &[u8],
        address: Option<IpAddr>,
        certificate: Option<&[u8]>,
    ) -> Result<Login, QueryError> {
        let name = match self.has_to_show_certificate(certificate) {
            true => self.role_of_certificate(certificate)?,
            false => self.check_password(token, address)?,
        };
        self.accept_login(&name, address)
    }

    /// Whether the login of a client with this certificate, if it has one, is by certificate.
    fn has_to_show_certificate(&self, certificate: Option<&[u8]>) -> bool {
        let authenticator = self.auth().options.authenticator;
        authenticator.takes_certificates() && (certificate.is_some() || !authenticator.takes_passwords())
    }

    /// The login of a client that has shown that it is this role.
    fn accept_login(&self, name: &str, address: Option<IpAddr>) -> Result<Login, QueryError> {
        let auth = self.auth();
        if !auth.book().roles.get(name).is_some_and(|role| role.can_login) {
            return Err(QueryError::new(ErrorKind::BadCredentials, format!("{name} is not permitted to log in")));
        }
        let (user, user_id) = auth.id(name);
        let notice = self.access_notice(name, address);
        Ok(Login { user, user_id, notice })
    }

    /// The name in a SASL PLAIN message, if its password is right.
    fn check_password(&self, token: &[u8], address: Option<IpAddr>) -> Result<String, QueryError> {
        let (name, password) = match self.check_without_hash(token, address)? {
            QuickCheck::Right(name) => return Ok(name),
            QuickCheck::Unknown { name, password } => (name, password),
        };
        let (failures, now) = (&self.auth().failures, Instant::now());
        if !self.matches_stored_hash(&name, &password) {
            failures.lock().unwrap_or_else(PoisonError::into_inner).add(address, &name, now);
            return Err(refused(&name));
        }
        failures.lock().unwrap_or_else(PoisonError::into_inner).forget(address, &name);
        Ok(name)
    }

    /// Checks a SASL PLAIN message without hashing its password. Refuses it after several failures.
    fn check_without_hash(&self, token: &[u8], address: Option<IpAddr>) -> Result<QuickCheck, QueryError> {
        let (name, password) = decode(token)?;
        let (auth, now) = (self.auth(), Instant::now());
        let failures = || auth.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures().must_refuse(address, &name, now) {
            return Err(refused(&name));
        }
        let (stored, validity) = (self.stored_hash(&name), auth.options.credentials_validity);
        let verified = auth.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if !stored.is_some_and(|hash| verified.knows(&name, &password, &hash, validity, now)) {
            return Ok(QuickCheck::Unknown { name, password });
        }
        drop(verified);
        failures().forget(address, &name);
        Ok(QuickCheck::Right(name))
    }

    /// The hash of a role's password, if it can be checked.
    fn stored_hash(&self, name: &str) -> Option<String> {
        let stored = self.auth().book().roles.get(name).and_then(|role| role.salted_hash.clone());
        stored.filter(|hash| is_valid_hash(hash))
    }

    fn matches_stored_hash(&self, name: &str, password: &str) -> bool {
        let (auth, now) = (self.auth(), Instant::now());
        let (validity, max) = (auth.options.credentials_validity, auth.options.credentials_max);
        // A role that does not exist, or has no password, takes as long as any other.
        let (stored, dummy): (_, &str) = (self.stored_hash(name), dummy_hash());
        let hash = stored.as_deref().unwrap_or(dummy);
        let is_right = is_hash_of(password, hash) && stored.is_some();
        if is_right {
            let mut verified = auth.verified.lock().unwrap_or_else(PoisonError::into_inner);
            verified.remember(name, password, hash, validity, max, now);
        }
        is_right
    }

    /// Creates the superuser of a new node. Any later write to this role wins over this one.
    pub(super) fn create_first_role(&self) -> Result<(), QueryError> {
        let salted_hash = Some(hash(FIRST_ROLE)?);
        let role = Role { is_superuser: true, can_login: true, salted_hash, ..Role::default() };
        self.apply_role_change(&Change::PutRole(FIRST_ROLE, &role, Some(0)))?;
        self.auth().edit(|book| {
            book.roles.insert(FIRST_ROLE.to_owned(), role);
        });
        Ok(())
    }

    /// Whether the first role still has its first password.
    pub(super) fn has_first_password(&self) -> bool {
        let stored = self.auth().book().roles.get(FIRST_ROLE).and_then(|role| role.salted_hash.clone());
        stored.is_some_and(|hash| is_valid_hash(&hash) && is_hash_of(FIRST_ROLE, &hash))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Arc;

    use blockio::SimulatedDisk;
    use engine::{Engine, EngineOptions};

    use super::*;
    use crate::{AuthOptions, Authenticator, ProcessorOptions};

    thread_local! {
        /// The costs of the hashes that this thread has compared with passwords.
        pub(super) static COMPUTED: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
    }

    #[test]
    fn every_refused_password_is_hashed_once_at_the_same_cost() {
        let mut options = EngineOptions::new(Arc::new(SimulatedDisk::new()), "/node");
        options.concurrent_compactors = 0;
        let auth = AuthOptions { authenticator: Authenticator::Password, ..AuthOptions::default() };
        let options_of_processor = ProcessorOptions { auth, ..ProcessorOptions::default() };
        let processor = Processor::new(Engine::open(options).unwrap(), options_of_processor);
        processor.create_first_role().unwrap();
        let with_password = Role { can_login: true, salted_hash: Some(hash("right").unwrap()), ..Role::default() };
        processor.auth().edit(|book| {
            book.roles.insert("no_login".to_owned(), Role { can_login: false, ..with_password.clone() });
            book.roles.insert("no_password".to_owned(), Role { salted_hash: None, ..with_password.clone() });
            let salted_hash = Some("$2a$31$JSJEMFm6GeaW9XxT5JIheuEtPvat6i7uKbnTcxX3c1wshIIsGyUtG".to_owned());
            book.roles.insert("too_dear".to_owned(), Role { salted_hash, ..with_password.clone() });
            book.roles.insert("other".to_owned(), with_password);
        });
        for name in ["nobody", "other", "no_login", "no_password", "too_dear", FIRST_ROLE] {
            COMPUTED.take();
            let error = processor.check_login(format!("\0{name}\0wrong").as_bytes(), None, None).unwrap_err();
            assert_eq!(error.message, refused(name).message);
            assert_eq!(COMPUTED.take(), [COST], "{name}");
        }
        // The password of a role without LOGIN is hashed before the login is refused.
        let error = processor.check_login(b"\0no_login\0right", None, None).unwrap_err();
        assert_eq!((error.message.as_str(), COMPUTED.take()), ("no_login is not permitted to log in", vec![COST]));
    }

    #[test]
    fn a_message_has_a_name_and_a_password() {
        let decoded = |token: &[u8]| decode(token).map_err(|error| error.message);
        assert_eq!(decoded(b"\0me\0secret"), Ok(("me".to_owned(), "secret".to_owned())));
        assert_eq!(decoded(b"you\0me\0secret"), Ok(("me".to_owned(), "secret".to_owned())));
        assert_eq!(decoded(b""), Err("Password must not be null".to_owned()));
        assert_eq!(decoded(b"\0me\0"), Err("Password must not be null".to_owned()));
        assert_eq!(decoded(b"\0\0secret"), Err("Authentication ID must not be null".to_owned()));
        assert!(decoded(b"\0me\0secret\0").unwrap_err().starts_with("Credential format error"));
        assert!(decode(&[0xff; 40]).is_err());
    }

    #[test]
    fn hashes_are_those_of_jbcrypt() {
        assert!(is_valid_hash("$2a$10$JSJEMFm6GeaW9XxT5JIheuEtPvat6i7uKbnTcxX3c1wshIIsGyUtG"));
        for refused in ["", "abc", "$2a$10$short", "$2b$10$JSJEMFm6GeaW9XxT5JIheuEtPvat6i7uKbnTcxX3c1wshIIsGyUtG"] {
            assert!(!is_valid_hash(refused), "{refused}");
        }
        // It would take weeks to check.
        assert!(!is_valid_hash("$2a$31$JSJEMFm6GeaW9XxT5JIheuEtPvat6i7uKbnTcxX3c1wshIIsGyUtG"));
        assert!(bcrypt::verify("x", &hash("x").unwrap()).unwrap());
    }

    #[test]
    fn a_password_is_known_for_its_hash_and_time_only() {
        let (mut verified, now, validity) = (Verified::default(), Instant::now(), Duration::from_secs(2));
        verified.remember("r", "secret", "hash", validity, 1, now);
        verified.remember("other", "secret", "hash", validity, 1, now);
        assert!(verified.knows("r", "secret", "hash", validity, now));
        assert!(!verified.knows("r", "wrong", "hash", validity, now));
        assert!(!verified.knows("r", "secret", "new hash", validity, now));
        assert!(!verified.knows("r", "secret", "hash", validity, now + validity));
        assert!(!verified.knows("other", "secret", "hash", validity, now));
        verified.forget(&["other".to_owned()]);
        assert!(verified.knows("r", "secret", "hash", validity, now));
        verified.forget(&[]);
        assert!(!verified.knows("r", "secret", "hash", validity, now));
    }
}
