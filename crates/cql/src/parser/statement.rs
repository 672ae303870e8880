//! Choosing the kind of statement.

use super::{Parsed, Parser, sets};
use crate::ast::{Modification, Statement};
use crate::token::TokenKind::{self, *};
use crate::token::TokenSet;

impl Parser<'_> {
    /// A whole text: one statement and semicolons.
    pub(super) fn statement(&mut self) -> Parsed<Statement> {
        let statement = self.any_statement()?;
        while self.accept(Semicolon) {}
        self.expect(Eof)?;
        Ok(statement)
    }

    fn any_statement(&mut self) -> Parsed<Statement> {
        match self.kind() {
            KSelect => Ok(Statement::Select(Box::new(self.select()?))),
            KInsert => Ok(match self.insert()? {
                Modification::InsertJson(insert) => Statement::InsertJson(insert),
                Modification::Insert(insert) => Statement::Insert(insert),
                Modification::Update(update) => Statement::Update(update),
                Modification::Delete(delete) => Statement::Delete(delete),
            }),
            KUpdate => Ok(Statement::Update(self.update()?)),
            KDelete => Ok(Statement::Delete(self.delete()?)),
            KBegin => Ok(Statement::Batch(self.batch()?)),
            KUse => {
                self.advance();
                Ok(Statement::Use(self.keyspace_name()?))
            }
            KTruncate => {
                self.advance();
                self.accept(KColumnfamily);
                Ok(Statement::Truncate(self.table_name()?))
            }
            KCreate => self.create(),
            KDrop => self.drop(),
            KAlter => self.alter(),
            KGrant => self.grant(),
            KRevoke => self.revoke(),
            KList => self.list_statement(),
            KDescribe | KDesc => Ok(Statement::Describe(self.describe()?)),
            KAdd => Ok(Statement::AddIdentity(self.add_identity()?)),
            _ => self.no_alternative(1),
        }
    }

    fn create(&mut self) -> Parsed<Statement> {
        let mut what = self.kind_at(2);
        if what == KOr {
            self.require(3, TokenSet::of(&[KReplace]))?;
            what = self.require(4, TokenSet::of(&[KFunction, KAggregate]))?;
        }
        let start = self.at;
        self.advance();
        Ok(match what {
            KKeyspace => Statement::CreateKeyspace(self.create_keyspace()?),
            KColumnfamily => Statement::CreateTable(self.create_table()?),
            KUser => Statement::CreateRole(self.create_user()?),
            KTrigger => Statement::CreateTrigger(self.create_trigger()?),
            KType => Statement::CreateType(self.create_type()?),
            KRole => Statement::CreateRole(self.create_role()?),
            KMaterialized => Statement::CreateView(Box::new(self.create_view()?)),
            KCustom | KIndex => Statement::CreateIndex(self.create_index()?),
            KFunction => Statement::CreateFunction(Box::new(self.create_function()?)),
            KAggregate => Statement::CreateAggregate(Box::new(self.create_aggregate()?)),
            _ => return self.unknown_object(start),
        })
    }

    fn drop(&mut self) -> Parsed<Statement> {
        let what = self.kind_at(2);
        let start = self.at;
        self.advance();
        Ok(match what {
            KKeyspace => Statement::DropKeyspace(self.drop_keyspace()?),
            KColumnfamily => Statement::DropTable(self.drop_table()?),
            KIndex => Statement::DropIndex(self.drop_index()?),
            KUser => Statement::DropRole(self.drop_user()?),
            KTrigger => Statement::DropTrigger(self.drop_trigger()?),
            KType => Statement::DropType(self.drop_type()?),
            KFunction => Statement::DropFunction(self.drop_function()?),
            KAggregate => Statement::DropAggregate(self.drop_function()?),
            KRole => Statement::DropRole(self.drop_role()?),
            KMaterialized => Statement::DropView(self.drop_view()?),
            KIdentity => Statement::DropIdentity(self.drop_identity()?),
            _ => return self.unknown_object(start),
        })
    }

    fn alter(&mut self) -> Parsed<Statement> {
        let what = self.kind_at(2);
        let start = self.at;
        self.advance();
        Ok(match what {
            KColumnfamily => Statement::AlterTable(self.alter_table()?),
            KKeyspace => Statement::AlterKeyspace(self.alter_keyspace()?),
            KUser => Statement::AlterRole(self.alter_user()?),
            KType => Statement::AlterType(self.alter_type()?),
            KRole => Statement::AlterRole(self.alter_role()?),
            KMaterialized => Statement::AlterView(self.alter_view()?),
            _ => return self.unknown_object(start),
        })
    }

    /// The error for a second word of a statement that does not fit its first.
    fn unknown_object<T>(&mut self, start: usize) -> Parsed<T> {
        self.at = start;
        self.no_alternative(2)
    }

    fn grant(&mut self) -> Parsed<Statement> {
        if self.changes_role(KTo)? {
            return Ok(Statement::GrantRole(self.role_change(KTo)?));
        }
        Ok(Statement::GrantPermissions(self.permissions_change(KTo)?))
    }

    fn revoke(&mut self) -> Parsed<Statement> {
        if self.changes_role(KFrom)? {
            return Ok(Statement::RevokeRole(self.role_change(KFrom)?));
        }
        Ok(Statement::RevokePermissions(self.permissions_change(KFrom)?))
    }

    /// Whether GRANT or REVOKE is about a role and not about permissions; some words can be both.
    fn changes_role(&mut self, preposition: TokenKind) -> Parsed<bool> {
        let kind = self.require(2, sets::ROLE_NAME.and(sets::PERMISSION))?;
        match kind {
            KAll => Ok(self.require(3, TokenSet::of(&[preposition, KOn, KPermissions]))? == preposition),
            KSelectMasked | KUnmask => {
                Ok(self.require(3, TokenSet::of(&[preposition, KOn, KPermission, Comma]))? == preposition)
            }
            _ => Ok(!sets::RESERVED_PERMISSION.contains(kind)),
        }
    }

    fn list_statement(&mut self) -> Parsed<Statement> {
        match self.require(2, sets::PERMISSION.and(TokenSet::of(&[KAll, KUsers, KRoles])))? {
            KUsers => {
                self.expect_all(&[KList, KUsers])?;
                Ok(Statement::ListUsers)
            }
            KRoles => Ok(Statement::ListRoles(self.list_roles()?)),
            _ => Ok(Statement::ListPermissions(self.list_permissions()?)),
        }
    }
}
