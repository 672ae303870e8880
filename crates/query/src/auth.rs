//! Roles: who may log in, and who may do what.
//!
//! All roles and permissions are in memory, in a book. A statement that changes them writes the tables of `system_auth`
//! first, and then the book. So a change holds for every request that begins after its answer. Rows that were written
//! to these tables directly are read within `permissions_validity`.
//!
//! Every decision about permissions has an epoch, which a change of the book ends. A prepared statement keeps the last
//! role that was allowed to execute it, with the epoch. So a check usually compares two numbers.

mod access;
mod book;
mod cidr_groups;
mod cidr_stats;
mod credentials;
mod failures;
mod gate;
mod identities;
mod needs;
mod permission_statements;
mod permissions;
mod resource;
mod role_statements;
mod secrets;
mod store;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use cql::ast::Statement;

use crate::execution::Execution;
use crate::{ErrorKind, Processor, QueryError, ResponseBody};

use book::{Authority, AuthorityByRole, RoleBook};
use cidr_stats::CidrStats;
use credentials::Verified;
use failures::Failures;
use resource::Resource;

pub use access::{AccessOptions, CidrChecks, cidr_block, stored_cidr_block};
pub(crate) use secrets::HIDDEN;
pub use secrets::without_passwords;

/// How clients log in: the class that `authenticator` names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authenticator {
    /// Every client is accepted.
    #[default]
    AllowAll,
    /// Clients have a name and a password.
    Password,
    /// Clients have a certificate.
    MutualTls,
    /// Clients have a certificate, or else a name and a password.
    MutualTlsOrPassword,
}

impl Authenticator {
    /// Whether clients must log in.
    pub const fn is_required(self) -> bool {
        !matches!(self, Authenticator::AllowAll)
    }

    /// Whether clients may log in with a password.
    pub const fn takes_passwords(self) -> bool {
        matches!(self, Authenticator::Password | Authenticator::MutualTlsOrPassword)
    }

    /// Whether clients may log in with a certificate.
    pub const fn takes_certificates(self) -> bool {
        matches!(self, Authenticator::MutualTls | Authenticator::MutualTlsOrPassword)
    }

    /// The name of Cassandra's class, which AUTHENTICATE sends to clients.
    const fn class(self) -> Option<&'static str> {
        match self {
            Authenticator::AllowAll => None,
            Authenticator::Password => Some("org.apache.cassandra.auth.PasswordAuthenticator"),
            Authenticator::MutualTls => Some("org.apache.cassandra.auth.MutualTlsAuthenticator"),
            Authenticator::MutualTlsOrPassword => {
                Some("org.apache.cassandra.auth.MutualTlsWithPasswordFallbackAuthenticator")
            }
        }
    }
}

/// Which of Cassandra's classes are in force, and how long their answers are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthOptions {
    /// How clients log in.
    pub authenticator: Authenticator,
    /// `authorizer: CassandraAuthorizer`. Otherwise every client may do everything.
    pub permissions: bool,
    /// `credentials_validity`: a password that was right is not hashed again for this time.
    pub credentials_validity: Duration,
    /// `credentials_cache_max_entries`: the passwords that are kept for that.
    pub credentials_max: usize,
    /// Where roles may connect to and from.
    pub access: AccessOptions,
}

impl Default for AuthOptions {
    fn default() -> AuthOptions {
        AuthOptions {
            authenticator: Authenticator::AllowAll,
            permissions: false,
            credentials_validity: Duration::from_secs(2),
            credentials_max: 1000,
            access: AccessOptions::default(),
        }
    }
}

/// The time after which a direct write of rows is certainly complete.
const DIRECT_WRITE_TIME: Duration = Duration::from_secs(20);

/// A client that has logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// The name of its role.
    pub user: Arc<str>,
    /// The number of the role, which is the same for all its logins.
    pub user_id: u32,
    /// A report for the node's log: the login was accepted, and would be refused if addresses were not only monitored.
    pub notice: Option<String>,
}

/// The roles of the node.
#[derive(Default)]
pub(crate) struct Auth {
    options: AuthOptions,
    book: RwLock<RoleBook>,
    /// A cache of the authorities that were derived from the book. It is locked after the book, and only briefly.
    authorities: Mutex<AuthorityByRole>,
    /// The number of the current epoch. A change of the book ends it.
    epoch: AtomicU32,
    /// Held by the one statement that changes roles.
    changes: Mutex<()>,
    /// The tables are read repeatedly until this time, because rows of `system_auth` were written directly.
    outdated_until: Mutex<Option<Instant>>,
    ids: Mutex<HashMap<Arc<str>, u32>>,
    verified: Mutex<Verified>,
    failures: Mutex<Failures>,
    cidr_stats: CidrStats,
}

impl Auth {
    pub fn new(options: AuthOptions) -> Auth {
        Auth { options, ..Auth::default() }
    }

    /// The class of the authenticator that clients have to satisfy.
    pub fn authenticator(&self) -> Option<&'static str> {
        self.options.authenticator.class()
    }

    fn book(&self) -> RwLockReadGuard<'_, RoleBook> {
        self.book.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The authority of a role according to the book, which the caller has locked. It is derived once after each change
    /// of the book, because a role may have been granted thousands of others.
    fn authority_of(&self, role: &str, book: &RoleBook) -> Arc<Authority> {
        let known = || self.authorities.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(authority) = known().get(role) {
            return authority;
        }
        let authority = Arc::new(book.authority_of(role));
        known().put(role, Arc::clone(&authority));
        authority
    }

    /// The authority of a role.
    fn authority(&self, role: &str) -> Arc<Authority> {
        self.authority_of(role, &self.book())
    }

    /// Changes the book, and ends the epoch of all decisions.
    fn edit(&self, change: impl FnOnce(&mut RoleBook)) {
        let mut book = self.book.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut book);
        *self.authorities.lock().unwrap_or_else(PoisonError::into_inner) = AuthorityByRole::default();
        self.epoch.fetch_add(1, Ordering::Release);
    }

    /// Waits until no other statement changes roles. All edits of the book happen while the lock is held.
    fn one_at_a_time(&self) -> MutexGuard<'_, ()> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the tables may have, or will have, rows that the book does not have.
    fn note_outdated(&self) {
        let until = Instant::now() + DIRECT_WRITE_TIME;
        *self.outdated_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    /// Whether the book may be older than the tables.
    fn take_outdated(&self, now: Instant) -> bool {
        let mut until = self.outdated_until.lock().unwrap_or_else(PoisonError::into_inner);
        let is_outdated = until.is_some();
        *until = until.filter(|until| now < *until);
        is_outdated
    }

    /// The number of a role.
    fn id(&self, role: &str) -> (Arc<str>, u32) {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((name, id)) = ids.get_key_value(role) {
            return (name.clone(), *id);
        }
        // Zero means that no role is logged in.
        let (name, id): (Arc<str>, u32) = (role.into(), ids.len() as u32 + 1);
        ids.insert(name.clone(), id);
        (name, id)
    }
}

impl Processor {
    /// Reads the roles, if clients have to log in. A node without roles gets the superuser `cassandra`. Returns whether
    /// that role still has its first password.
    pub fn start_roles(&self) -> Result<bool, QueryError> {
        if !self.auth().options.authenticator.is_required() {
            return Ok(false);
        }
        let _one_at_a_time = self.auth().one_at_a_time();
        let book = self.read_role_book()?;
        self.auth().edit(|known| *known = book);
        if self.auth().checks() && !self.engine().options().read_only {
            self.revoke_what_a_drop_left()?;
        }
        if self.auth().book().roles.is_empty() && !self.engine().options().read_only {
            self.create_first_role()?;
        }
        if !self.auth().options.authenticator.takes_passwords() {
            return Ok(false);
        }
        credentials::prepare_dummy_hash();
        Ok(self.has_first_password())
    }

    /// A line about the roles, if clients have to log in.
    pub fn shown_roles(&self) -> Option<String> {
        let auth = self.auth();
        let class = auth.authenticator()?.rsplit('.').next()?;
        let authorizer = if auth.checks() { "CassandraAuthorizer" } else { "AllowAllAuthorizer" };
        let book = auth.book();
        let superusers = book.superusers().len();
        let logins = book.roles.values().filter(|role| role.can_login).count();
        let count = book.roles.len();
        Some(format!("{count} ({superusers} superusers, {logins} may log in; {class}, {authorizer})"))
    }

    /// Reads the roles again if rows of `system_auth` were written directly, or may have expired. The node calls this
    /// once in the time of `permissions_validity`.
    pub fn refresh_roles(&self) -> Result<(), QueryError> {
        if !self.auth().take_outdated(Instant::now()) && !self.auth().book().expires {
            return Ok(());
        }
        self.reload_roles()
    }

    /// Reads all roles and permissions again, whose rows may have been written directly.
    pub fn reload_roles(&self) -> Result<(), QueryError> {
        let _one_at_a_time = self.auth().one_at_a_time();
        match self.read_role_book() {
            Ok(book) => {
                self.auth().edit(|known| *known = book);
                Ok(())
            }
            Err(error) => {
                self.auth().note_outdated();
                Err(error)
            }
        }
    }

    /// Forgets which passwords were right: of these roles, or of all if none is named. The next login of each hashes
    /// its password again.
    pub fn forget_passwords(&self, roles: &[String]) {
        self.auth().verified.lock().unwrap_or_else(PoisonError::into_inner).forget(roles);
    }

    /// Whether a role may connect from some groups of addresses only.
    pub fn has_cidr_restriction(&self, role: &str) -> bool {
        self.auth().book().access.cidr_groups.contains_key(role)
    }
}

/// The names of the object that a statement about permissions names: of the object that contains it, and its own. An
/// object at the top contains itself. `None` if the statement needs a keyspace that it does not have.
pub(crate) fn resource_names(resource: &cql::ast::Resource, keyspace: Option<&str>) -> Option<(String, String)> {
    let resource = Resource::named(resource, keyspace).ok()?;
    let parent = resource.parent().unwrap_or_else(|| resource.clone());
    Some((parent.name(), resource.name()))
}

/// Whether a statement is about roles, permissions or identities.
pub(crate) fn is_about_roles(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::CreateRole(_)
            | Statement::AlterRole(_)
            | Statement::DropRole(_)
            | Statement::GrantRole(_)
            | Statement::RevokeRole(_)
            | Statement::ListRoles(_)
            | Statement::ListUsers
            | Statement::GrantPermissions(_)
            | Statement::RevokePermissions(_)
            | Statement::ListPermissions(_)
            | Statement::AddIdentity(_)
            | Statement::DropIdentity(_)
    )
}

/// Carries out a statement about roles or permissions.
pub(crate) fn execute(statement: &Statement, execution: &Execution<'_>) -> Result<ResponseBody, QueryError> {
    let auth = execution.processor.auth();
    let _one_at_a_time = auth.one_at_a_time();
    let outcome = dispatch(statement, execution);
    if matches!(&outcome, Err(error) if error.kind == ErrorKind::Server) {
        // A part of the change may be in the tables.
        auth.note_outdated();
    }
    outcome
}

/// Checks a statement about roles or permissions that is prepared. As in Cassandra, permissions are checked only when
/// it is executed.
pub(crate) fn validate(statement: &Statement, execution: &Execution<'_>) -> Result<(), QueryError> {
    match statement {
        Statement::CreateRole(create) => role_statements::validate_create(create, execution),
        Statement::AlterRole(alter) => role_statements::validate_alter(alter, execution),
        Statement::DropRole(drop) => role_statements::validate_drop(drop, execution),
        Statement::GrantRole(change) | Statement::RevokeRole(change) => {
            role_statements::validate_membership(change, execution)
        }
        Statement::ListRoles(list) => role_statements::validate_list(list.grantee.as_deref(), execution),
        Statement::ListUsers => role_statements::validate_list(None, execution),
        Statement::GrantPermissions(change) => permission_statements::validate_grant(change, execution),
        Statement::RevokePermissions(change) => permission_statements::validate_revoke(change, execution),
        Statement::ListPermissions(list) => {
            permission_statements::validate_list_permissions(list, execution).map(|_| ())
        }
        Statement::AddIdentity(add) => identities::validate_add(add, execution),
        Statement::DropIdentity(drop) => identities::validate_remove(drop, execution),
        _ => Ok(()),
    }
}

fn dispatch(statement: &Statement, execution: &Execution<'_>) -> Result<ResponseBody, QueryError> {
    match statement {
        Statement::CreateRole(create) => role_statements::create(create, execution),
        Statement::AlterRole(alter) => role_statements::alter(alter, execution),
        Statement::DropRole(drop) => role_statements::drop(drop, execution),
        Statement::GrantRole(change) => role_statements::grant(change, execution),
        Statement::RevokeRole(change) => role_statements::revoke(change, execution),
        Statement::ListRoles(list) => role_statements::list(list, execution),
        Statement::ListUsers => role_statements::list_users(execution),
        Statement::GrantPermissions(change) => permission_statements::grant(change, execution),
        Statement::RevokePermissions(change) => permission_statements::revoke(change, execution),
        Statement::ListPermissions(list) => permission_statements::list(list, execution),
        Statement::AddIdentity(add) => identities::add(add, execution),
        Statement::DropIdentity(drop) => identities::remove(drop, execution),
        _ => Err(QueryError::server("the statement is not about roles")),
    }
}
