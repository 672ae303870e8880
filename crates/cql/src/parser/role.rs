//! Roles, users, identities and permissions.

use super::{Parsed, Parser, Stop, sets};
use crate::ast::{
    AccessList, AddIdentity, AlterRole, CreateRole, DropIdentity, DropRole, ListPermissions, ListRoles, Permission,
    PermissionsChange, Resource, RoleChange, RoleOptions,
};
use crate::message::ExpectedTokens;
use crate::token::TokenKind::{self, *};
use crate::token::TokenSet;

const QUOTED_USER: &str = "Quoted strings are are not supported for user names and USER is deprecated, please use ROLE";
const QUOTED_IDENTITY: &str = "Quoted strings are are not supported for identity";

impl Parser<'_> {
    /// `CREATE USER`, from USER on.
    pub(super) fn create_user(&mut self) -> Parsed<CreateRole> {
        self.expect(KUser)?;
        let if_not_exists = self.if_not_exists()?;
        let role = self.user()?;
        let mut options = self.user_options()?;
        options.login = Some(true);
        options.superuser.get_or_insert(false);
        exclusive_passwords(&options)?;
        Ok(CreateRole { role, if_not_exists, options })
    }

    /// `ALTER USER`, from USER on.
    pub(super) fn alter_user(&mut self) -> Parsed<AlterRole> {
        self.expect(KUser)?;
        let if_exists = self.if_exists()?;
        let role = self.user()?;
        let options = self.user_options()?;
        exclusive_passwords(&options)?;
        Ok(AlterRole { role, if_exists, options })
    }

    /// `DROP USER`, from USER on.
    pub(super) fn drop_user(&mut self) -> Parsed<DropRole> {
        self.expect(KUser)?;
        let if_exists = self.if_exists()?;
        Ok(DropRole { role: self.user()?, if_exists })
    }

    /// Users keep the case of their names.
    fn user(&mut self) -> Parsed<String> {
        Ok(self.user_name(QUOTED_USER)?.1)
    }

    fn user_options(&mut self) -> Parsed<RoleOptions> {
        let mut options = RoleOptions::default();
        if self.accept(KWith) {
            let hashed = self.require(1, TokenSet::of(&[KPassword, KHashed]))? == KHashed;
            if hashed {
                self.advance();
            }
            self.expect(KPassword)?;
            let password = Some(self.expect_text(StringLiteral)?);
            if hashed {
                options.hashed_password = password;
            } else {
                options.password = password;
            }
        }
        if self.accept(KSuperuser) {
            options.superuser = Some(true);
        } else if self.accept(KNosuperuser) {
            options.superuser = Some(false);
        }
        Ok(options)
    }

    /// `CREATE ROLE`, from ROLE on.
    pub(super) fn create_role(&mut self) -> Parsed<CreateRole> {
        self.expect(KRole)?;
        let if_not_exists = self.if_not_exists()?;
        let role = self.role_name()?;
        let mut options = self.role_options()?;
        options.login.get_or_insert(false);
        options.superuser.get_or_insert(false);
        exclusive_passwords(&options)?;
        Ok(CreateRole { role, if_not_exists, options })
    }

    /// `ALTER ROLE`, from ROLE on.
    pub(super) fn alter_role(&mut self) -> Parsed<AlterRole> {
        self.expect(KRole)?;
        let if_exists = self.if_exists()?;
        let role = self.role_name()?;
        let options = self.role_options()?;
        exclusive_passwords(&options)?;
        Ok(AlterRole { role, if_exists, options })
    }

    /// `DROP ROLE`, from ROLE on.
    pub(super) fn drop_role(&mut self) -> Parsed<DropRole> {
        self.expect(KRole)?;
        let if_exists = self.if_exists()?;
        Ok(DropRole { role: self.role_name()?, if_exists })
    }

    fn role_options(&mut self) -> Parsed<RoleOptions> {
        let mut options = RoleOptions::default();
        if !self.accept(KWith) {
            return Ok(options);
        }
        loop {
            self.role_option(&mut options)?;
            if !self.accept(KAnd) {
                return Ok(options);
            }
        }
    }

    fn role_option(&mut self, options: &mut RoleOptions) -> Parsed<()> {
        let first = self.require(1, TokenSet::of(&[KPassword, KHashed, KOptions, KSuperuser, KLogin, KAccess]))?;
        if first == KAccess {
            return self.access_option(options);
        }
        self.decided(1);
        self.advance();
        if first == KHashed {
            self.expect(KPassword)?;
        }
        self.expect(Equal)?;
        match first {
            KPassword => once(&mut options.password, "PASSWORD", self.expect_text(StringLiteral)?),
            KHashed => once(&mut options.hashed_password, "HASHED_PASSWORD", self.expect_text(StringLiteral)?),
            KSuperuser => once(&mut options.superuser, "SUPERUSER", self.expect_boolean()?),
            KLogin => once(&mut options.login, "LOGIN", self.expect_boolean()?),
            _ => once(&mut options.options, "OPTIONS", self.property_map()?),
        }
    }

    fn expect_boolean(&mut self) -> Parsed<bool> {
        Ok(self.expect_text(Boolean)?.eq_ignore_ascii_case("true"))
    }

    /// `ACCESS TO [ALL] DATACENTERS ...` or `ACCESS FROM [ALL] CIDRS ...`
    fn access_option(&mut self, options: &mut RoleOptions) -> Parsed<()> {
        let to = self.require(2, TokenSet::of(&[KTo, KFrom]))? == KTo;
        let names = if to { KDatacenters } else { KCidrs };
        let all = self.decide(3, TokenSet::of(&[KAll, names]))? == KAll;
        self.advance();
        self.advance();
        if all {
            self.advance();
        }
        self.expect(names)?;
        let (option, what) = if to { (&mut options.datacenters, "DCs") } else { (&mut options.cidrs, "CIDR Groups") };
        if all {
            if matches!(option, Some(AccessList::Only(_))) {
                return Err(self.illegal_argument(&format!("{what} have already been set")));
            }
            *option = Some(AccessList::All);
            return Ok(());
        }
        self.expect(OpenBrace)?;
        let names = self.list(|p| p.expect_text(StringLiteral))?;
        // As in Cassandra, several lists are one set.
        let mut all_names = match option.take() {
            None => Vec::new(),
            Some(AccessList::Only(earlier)) => earlier,
            Some(AccessList::All) => return Err(self.illegal_argument("All has been set")),
        };
        all_names.extend(names);
        *option = Some(AccessList::Only(all_names));
        self.expect(CloseBrace)?;
        Ok(())
    }

    /// Cassandra's answer to a text for which its parser throws an exception.
    fn illegal_argument(&self, reason: &str) -> Stop {
        let text = self.text;
        Stop::Thrown(format!("Failed parsing statement: [{text}] reason: IllegalArgumentException {reason}").into())
    }

    pub(super) fn add_identity(&mut self) -> Parsed<AddIdentity> {
        self.expect_all(&[KAdd, KIdentity])?;
        let if_not_exists = self.if_not_exists()?;
        let identity = self.user_name(QUOTED_IDENTITY)?.1;
        self.expect_all(&[KTo, KRole])?;
        let role = self.user_name(QUOTED_IDENTITY)?.1;
        Ok(AddIdentity { identity, role, if_not_exists })
    }

    /// `DROP IDENTITY`, from IDENTITY on.
    pub(super) fn drop_identity(&mut self) -> Parsed<DropIdentity> {
        self.expect(KIdentity)?;
        let if_exists = self.if_exists()?;
        Ok(DropIdentity { identity: self.user_name(QUOTED_IDENTITY)?.1, if_exists })
    }

    /// `GRANT role TO role` or `REVOKE role FROM role`, with the given preposition.
    pub(super) fn role_change(&mut self, preposition: TokenKind) -> Parsed<RoleChange> {
        self.advance();
        let role = self.role_name()?;
        self.expect(preposition)?;
        Ok(RoleChange { role, grantee: self.role_name()? })
    }

    /// `GRANT permissions ON resource TO role` or `REVOKE ... FROM role`.
    pub(super) fn permissions_change(&mut self, preposition: TokenKind) -> Parsed<PermissionsChange> {
        self.advance();
        let mut permissions = self.permissions()?;
        self.expect(KOn)?;
        let resource = self.resource()?;
        self.expect(preposition)?;
        let role = self.role_name()?;
        let applicable = applicable_permissions(&resource);
        permissions.retain(|permission| applicable.contains(permission));
        if permissions.is_empty() {
            self.complain(format!(
                "Resource type {} does not support any of the requested permissions",
                resource_class(&resource)
            ));
        }
        Ok(PermissionsChange { permissions, resource, role })
    }

    /// Sorted, each once.
    fn permissions(&mut self) -> Parsed<Vec<Permission>> {
        if self.require(1, sets::PERMISSION.and(TokenSet::of(&[KAll])))? == KAll {
            self.advance();
            self.accept(KPermissions);
            return Ok(Permission::ALL.to_vec());
        }
        let mut permissions = self.list(|p| {
            let permission = p.permission()?;
            p.accept(KPermission);
            Ok(permission)
        })?;
        permissions.sort_unstable();
        permissions.dedup();
        Ok(permissions)
    }

    fn permission(&mut self) -> Parsed<Permission> {
        let permission = match self.kind() {
            KCreate => Permission::Create,
            KAlter => Permission::Alter,
            KDrop => Permission::Drop,
            KSelect => Permission::Select,
            KModify => Permission::Modify,
            KAuthorize => Permission::Authorize,
            KDescribe => Permission::Describe,
            KExecute => Permission::Execute,
            KUnmask => Permission::Unmask,
            KSelectMasked => Permission::SelectMasked,
            _ => return Err(Stop::Mismatch { found: self.at, expected: ExpectedTokens::Set }),
        };
        self.advance();
        Ok(permission)
    }

    fn resource(&mut self) -> Parsed<Resource> {
        let end = sets::AFTER_RESOURCE.and(TokenSet::of(&[Dot]));
        match self.kind() {
            KAll => {
                let all = TokenSet::of(&[KKeyspaces, KTables, KRoles, KFunctions, KMbeans]);
                match self.decide(2, end.and(all))? {
                    KRoles => self.all(&[KAll, KRoles], Resource::AllRoles),
                    KMbeans => self.all(&[KAll, KMbeans], Resource::AllMBeans),
                    KKeyspaces => self.all(&[KAll, KKeyspaces], Resource::AllKeyspaces),
                    KTables => {
                        self.expect_all(&[KAll, KTables, KIn, KKeyspace])?;
                        Ok(Resource::AllTables(self.keyspace_name()?))
                    }
                    KFunctions => self.all_functions(),
                    _ => Ok(Resource::Table(self.table_name()?)),
                }
            }
            KRole if !end.contains(self.decide(2, end.and(sets::ROLE_NAME))?) => {
                self.advance();
                Ok(Resource::Role(self.role_name()?))
            }
            KFunction
                if !end.contains(self.decide(2, end.and(sets::IDENTIFIER).and(TokenSet::of(&[KToken, QMark])))?) =>
            {
                self.advance();
                let name = self.function_name()?;
                Ok(Resource::Function { name, arguments: self.argument_types()? })
            }
            KMbean | KMbeans if self.decide(2, end.and(TokenSet::of(&[StringLiteral])))? == StringLiteral => {
                self.advance();
                Ok(Resource::MBean(self.expect_text(StringLiteral)?))
            }
            KKeyspace => {
                self.decided(1);
                self.advance();
                Ok(Resource::Keyspace(self.keyspace_name()?))
            }
            KColumnfamily => {
                self.decided(1);
                self.advance();
                Ok(Resource::Table(self.table_name()?))
            }
            kind if sets::TABLE_NAME.contains(kind) => Ok(Resource::Table(self.table_name()?)),
            _ => self.no_alternative(1),
        }
    }

    fn all(&mut self, words: &[TokenKind], resource: Resource) -> Parsed<Resource> {
        self.expect_all(words)?;
        Ok(resource)
    }

    fn all_functions(&mut self) -> Parsed<Resource> {
        let within = self.require(3, sets::AFTER_RESOURCE.and(TokenSet::of(&[KIn])))? == KIn;
        self.expect_all(&[KAll, KFunctions])?;
        if !within {
            return Ok(Resource::AllFunctions);
        }
        self.expect_all(&[KIn, KKeyspace])?;
        Ok(Resource::AllFunctionsIn(self.keyspace_name()?))
    }

    pub(super) fn list_permissions(&mut self) -> Parsed<ListPermissions> {
        self.expect(KList)?;
        let permissions = self.permissions()?;
        let resource = if self.accept(KOn) { Some(self.resource()?) } else { None };
        let grantee = if self.accept(KOf) { Some(self.role_name()?) } else { None };
        let recursive = !self.accept(KNorecursive);
        Ok(ListPermissions { permissions, resource, grantee, recursive })
    }

    pub(super) fn list_roles(&mut self) -> Parsed<ListRoles> {
        self.expect_all(&[KList, KRoles])?;
        let grantee = if self.accept(KOf) { Some(self.role_name()?) } else { None };
        let recursive = !self.accept(KNorecursive);
        Ok(ListRoles { grantee, recursive })
    }
}

fn once<T>(option: &mut Option<T>, name: &str, value: T) -> Parsed<()> {
    if option.replace(value).is_some() {
        return Err(Stop::Thrown(format!("Multiple definition for property '{name}'").into()));
    }
    Ok(())
}

fn exclusive_passwords(options: &RoleOptions) -> Parsed<()> {
    if options.password.is_some() && options.hashed_password.is_some() {
        return Err(Stop::Thrown("Options 'password' and 'hashed password' are mutually exclusive".into()));
    }
    Ok(())
}

/// The permissions that apply to a resource.
fn applicable_permissions(resource: &Resource) -> &'static [Permission] {
    use Permission::*;
    match resource {
        Resource::AllKeyspaces | Resource::Keyspace(_) | Resource::AllTables(_) => {
            &[Create, Alter, Drop, Select, Modify, Authorize, Unmask, SelectMasked]
        }
        Resource::Table(_) => &[Alter, Drop, Select, Modify, Authorize, Unmask, SelectMasked],
        Resource::AllRoles => &[Create, Alter, Drop, Authorize, Describe],
        Resource::Role(_) => &[Alter, Drop, Authorize, Describe],
        Resource::AllFunctions | Resource::AllFunctionsIn(_) => &[Create, Alter, Drop, Authorize, Execute],
        Resource::Function { .. } => &[Alter, Drop, Authorize, Execute],
        Resource::AllMBeans | Resource::MBean(_) => &[Select, Modify, Authorize, Describe, Execute],
    }
}

fn resource_class(resource: &Resource) -> &'static str {
    match resource {
        Resource::AllKeyspaces | Resource::Keyspace(_) | Resource::AllTables(_) | Resource::Table(_) => "DataResource",
        Resource::AllRoles | Resource::Role(_) => "RoleResource",
        Resource::AllFunctions | Resource::AllFunctionsIn(_) | Resource::Function { .. } => "FunctionResource",
        Resource::AllMBeans | Resource::MBean(_) => "JMXResource",
    }
}
