//! Clients that log in by a certificate (`MutualTlsAuthenticator`): each identity belongs to one role.
//!
//! The identity of a certificate is its first alternative name that is a SPIFFE URI, as Cassandra's
//! `SpiffeCertificateValidator` has it. TLS has verified the certificate before.

use cql::ast::{AddIdentity, DropIdentity, Permission};
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::parse_x509_certificate;

use super::resource::Resource;
use super::role_statements::{check, check_key, is_superuser, logged_in};
use super::store::Change;
use crate::execution::Execution;
use crate::{ErrorKind, Processor, QueryError, ResponseBody};

/// URIs of SPIFFE begin with this.
const SPIFFE: &str = "spiffe://";

/// The identity of a certificate in DER.
fn identity_of(certificate: &[u8]) -> Option<String> {
    let (_, certificate) = parse_x509_certificate(certificate).ok()?;
    let names = certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectAlternativeName(names) => Some(names),
        _ => None,
    })?;
    names.general_names.iter().find_map(|name| match name {
        GeneralName::URI(uri) if uri.starts_with(SPIFFE) => Some((*uri).to_owned()),
        _ => None,
    })
}

impl Processor {
    /// The name of the role that a certificate, in DER, belongs to.
    pub(super) fn role_of_certificate(&self, certificate: Option<&[u8]>) -> Result<String, QueryError> {
        let refused = |text: &str| QueryError::new(ErrorKind::BadCredentials, text);
        let certificate = certificate.ok_or_else(|| refused("Invalid or not supported certificate"))?;
        let identity = identity_of(certificate)
            .ok_or_else(|| refused("Unable to extract client identity from certificate for authentication"))?;
        let role = self.auth().book().identities.get(&identity).cloned();
        role.ok_or_else(|| refused(&format!("Certificate identity '{identity}' not authorized")))
    }

    /// Adds an identity of a role, or removes it.
    fn put_identity(&self, identity: &str, role: Option<&str>) -> Result<(), QueryError> {
        match role {
            Some(role) => self.apply_role_change(&Change::PutIdentity { identity, role })?,
            None => self.apply_role_change(&Change::DeleteIdentity(identity))?,
        }
        self.auth().edit(|book| {
            match role {
                Some(role) => book.identities.insert(identity.to_owned(), role.to_owned()),
                None => book.identities.remove(identity),
            };
        });
        Ok(())
    }

    /// Removes all identities of a role.
    pub(super) fn forget_identities(&self, role: &str) -> Result<(), QueryError> {
        let of_role: Vec<String> = {
            let book = self.auth().book();
            let of_role = book.identities.iter().filter(|(_, known)| *known == role);
            of_role.map(|(identity, _)| identity.clone()).collect()
        };
        of_role.iter().try_for_each(|identity| self.put_identity(identity, None))
    }
}

pub(super) fn add(add: &AddIdentity, execution: &Execution<'_>) -> Result<ResponseBody, QueryError> {
    let AddIdentity { identity, role, .. } = add;
    let processor = execution.processor;
    check(execution, Permission::Create, &Resource::AllRoles)?;
    logged_in(execution)?;
    if processor.auth().authority(role).is_superuser && !is_superuser(execution) {
        return Err(QueryError::unauthorized("Only superusers can bind identities to a role with superuser status"));
    }
    validate_add(add, execution)?;
    if !has_identity(identity, execution)? {
        processor.put_identity(identity, Some(role))?;
    }
    Ok(ResponseBody::Void)
}

/// Checks an ADD IDENTITY, also where it is only prepared.
pub(super) fn validate_add(add: &AddIdentity, execution: &Execution<'_>) -> Result<(), QueryError> {
    let AddIdentity { identity, role, if_not_exists } = add;
    logged_in(execution)?;
    if !execution.processor.has_role(role)? {
        return Err(QueryError::invalid(format!("Can not add identity for non-existent role '{role}'")));
    }
    if !if_not_exists && has_identity(identity, execution)? {
        return Err(QueryError::invalid(format!("{identity} already exists")));
    }
    Ok(())
}

/// Whether there is this identity. As in Cassandra, it is an error to ask for an empty one.
fn has_identity(identity: &str, execution: &Execution<'_>) -> Result<bool, QueryError> {
    check_key(identity)?;
    Ok(execution.processor.auth().book().identities.contains_key(identity))
}

pub(super) fn remove(drop: &DropIdentity, execution: &Execution<'_>) -> Result<ResponseBody, QueryError> {
    let identity = &drop.identity;
    let processor = execution.processor;
    check_key(identity)?;
    let role = processor.auth().book().identities.get(identity).cloned();
    let object = role.clone().map_or(Resource::AllRoles, Resource::Role);
    check(execution, Permission::Drop, &object)?;
    logged_in(execution)?;
    let of_superuser = role.as_ref().is_some_and(|role| processor.auth().authority(role).is_superuser);
    if of_superuser && !is_superuser(execution) {
        let text = "Only superusers can remove identity bindings from a role with superuser status";
        return Err(QueryError::unauthorized(text));
    }
    validate_remove(drop, execution)?;
    if role.is_some() {
        processor.put_identity(identity, None)?;
    }
    Ok(ResponseBody::Void)
}

/// Checks a DROP IDENTITY, also where it is only prepared.
pub(super) fn validate_remove(drop: &DropIdentity, execution: &Execution<'_>) -> Result<(), QueryError> {
    let DropIdentity { identity, if_exists } = drop;
    logged_in(execution)?;
    if !if_exists && !has_identity(identity, execution)? {
        return Err(QueryError::invalid(format!("identity '{identity}' doesn't exist")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_certificate_have_no_identity() {
        assert_eq!(identity_of(b""), None);
        assert_eq!(identity_of(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]), None);
        assert_eq!(identity_of(&[0x30; 4000]), None);
    }
}
