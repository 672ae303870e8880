//! Groups of addresses: the operator's commands to show and change them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

use ipnet::IpNet;
use types::collection;

use super::access::{AccessBook, cidr_block};
use crate::{Processor, QueryError};

impl Processor {
    /// All groups with their blocks, as `system_auth.cidr_groups` has them.
    pub fn cidr_groups(&self) -> Result<BTreeMap<String, Vec<IpNet>>, QueryError> {
        Ok(self.read_access_book(&mut false)?.blocks)
    }

    /// Creates a group of these blocks, or replaces the blocks of an existing group. Logins are checked with it at
    /// once.
    pub fn update_cidr_group(&self, group: &str, blocks: &[String]) -> Result<(), QueryError> {
        let parsed = blocks.iter().map(|text| {
            cidr_block(text).ok_or_else(|| QueryError::invalid(format!("{text} is not a valid CIDR String")))
        });
        let blocks = parsed.collect::<Result<BTreeSet<IpNet>, _>>()?;
        let _one_at_a_time = self.auth().one_at_a_time();
        self.write_cidr_group(group, &blocks.iter().map(stored).collect())?;
        self.auth().edit(|book| drop(book.access.blocks.insert(group.to_owned(), blocks.into_iter().collect())));
        Ok(())
    }

    /// Deletes a group. Logins are no longer checked with it.
    pub fn drop_cidr_group(&self, group: &str) -> Result<(), QueryError> {
        let _one_at_a_time = self.auth().one_at_a_time();
        if !self.cidr_groups()?.contains_key(group) {
            return Err(QueryError::invalid(format!("CIDR group '{group}' doesn't exists")));
        }
        self.delete_cidr_group(group)?;
        self.auth().edit(|book| drop(book.access.blocks.remove(group)));
        Ok(())
    }

    /// The groups that an address belongs to.
    pub fn cidr_groups_of(&self, address: IpAddr) -> Result<Vec<String>, QueryError> {
        let book: AccessBook = self.read_access_book(&mut false)?;
        Ok(book.groups_of(address).into_iter().map(str::to_owned).collect())
    }

    /// Reads the groups again, because clients may have written their rows directly.
    pub fn reload_cidr_groups(&self) -> Result<(), QueryError> {
        let (_one_at_a_time, begun) = (self.auth().one_at_a_time(), Instant::now());
        let blocks = self.cidr_groups()?;
        self.auth().edit(|book| book.access.blocks = blocks);
        self.auth().cidr_stats.reloaded(begun);
        Ok(())
    }
}

/// A block as a value of `system_auth.cidr_groups`.
fn stored(block: &IpNet) -> Vec<u8> {
    let address = match block.addr() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let length = i16::from(block.prefix_len()).to_be_bytes();
    collection::tuple([Some(&address[..]), Some(&length[..])].into_iter())
}
