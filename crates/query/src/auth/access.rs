//! Access by place: the data centers that a role may connect to (`CassandraNetworkAuthorizer`), and the groups of
//! addresses that it may connect from (`CassandraCIDRAuthorizer`).
//!
//! A group is a set of CIDR blocks. An address belongs to the groups of the smallest block that contains it. A role
//! without a list may connect from everywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

use ipnet::IpNet;
use types::collection;

use super::book::RoleBook;
use super::cidr_stats::CidrStats;
use crate::{ClientState, Processor, QueryError};

/// Whether addresses of clients are checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CidrChecks {
    /// `AllowAllCIDRAuthorizer`.
    #[default]
    Off,
    /// Logins from an address that a role may not connect from are reported, and accepted.
    Monitor,
    /// Statements of such clients are refused.
    Enforce,
}

/// Which checks of places are in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccessOptions {
    /// `network_authorizer: CassandraNetworkAuthorizer`.
    pub data_centers: bool,
    /// The class and the mode of `cidr_authorizer`.
    pub cidrs: CidrChecks,
    /// `cidr_checks_for_superusers`: superusers too may connect from their groups only.
    pub cidrs_of_superusers: bool,
}

/// The lists of all roles, and the groups.
#[derive(Debug, Default)]
pub(super) struct AccessBook {
    /// The data centers of roles that may not connect to all.
    pub data_centers: BTreeMap<String, BTreeSet<String>>,
    /// The groups of roles that may not connect from everywhere.
    pub cidr_groups: BTreeMap<String, BTreeSet<String>>,
    /// The blocks of each group.
    pub blocks: BTreeMap<String, Vec<IpNet>>,
}

impl AccessBook {
    /// Sets a list. An empty one stands for no restriction, as in the tables.
    pub fn put(lists: &mut BTreeMap<String, BTreeSet<String>>, role: &str, names: BTreeSet<String>) {
        match names.is_empty() {
            true => lists.remove(role),
            false => lists.insert(role.to_owned(), names),
        };
    }

    /// The groups of the smallest blocks that contain this address. A socket of IPv6 shows clients of IPv4 by mapped
    /// addresses, so such an address counts as the one of IPv4.
    pub fn groups_of(&self, address: IpAddr) -> BTreeSet<&str> {
        let address = address.to_canonical();
        let mut groups = BTreeSet::new();
        let mut longest = 0;
        for (group, blocks) in &self.blocks {
            let containing = blocks.iter().filter(|block| block.contains(&address));
            let Some(length) = containing.map(IpNet::prefix_len).max().filter(|length| *length >= longest) else {
                continue;
            };
            if length > longest {
                groups.clear();
                longest = length;
            }
            groups.insert(group.as_str());
        }
        groups
    }

    /// Whether a role may connect from an address in these groups.
    fn allows_groups(&self, role: &str, groups: &BTreeSet<&str>) -> bool {
        let Some(allowed) = self.cidr_groups.get(role) else { return true };
        groups.iter().any(|group| allowed.contains(*group))
    }
}

/// Parses a CIDR block as an operator writes it, and clears the bits after its prefix. A block of mapped addresses
/// (`::ffff:10.0.0.0/104`) is the one of IPv4, as in Cassandra.
pub fn cidr_block(text: &str) -> Option<IpNet> {
    /// The bits before the address of IPv4 in a mapped one.
    const BEFORE_MAPPED: u8 = 96;
    let written: IpNet = text.parse().ok()?;
    let address = written.addr().to_canonical();
    let length = match written.addr() == address {
        true => written.prefix_len(),
        false => written.prefix_len().checked_sub(BEFORE_MAPPED)?,
    };
    Some(IpNet::new(address, length).ok()?.trunc())
}

/// A CIDR block as it is stored: a tuple of an address and the length of its prefix. A mapped address is one of IPv4,
/// with the length of its prefix, as in Cassandra.
pub fn stored_cidr_block(stored: &[u8]) -> Option<IpNet> {
    let mut fields = collection::fields(stored);
    let mut field = || fields.next()?.ok()?;
    let (address, length) = (field()?, field()?);
    let address = match address.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(address).ok()?),
        16 => IpAddr::from(<[u8; 16]>::try_from(address).ok()?),
        _ => return None,
    };
    let length = i16::from_be_bytes(length.try_into().ok()?);
    IpNet::new(address.to_canonical(), u8::try_from(length).ok()?).ok()
}

impl RoleBook {
    /// The data centers that LIST shows for a role. Superusers may connect to all.
    pub fn shown_data_centers(&self, role: &str, is_superuser: bool, options: AccessOptions) -> String {
        if !options.data_centers {
            return "ALL".to_owned();
        }
        if !self.can_log_in(role) {
            return "n/a".to_owned();
        }
        if is_superuser {
            return "ALL".to_owned();
        }
        match self.access.data_centers.get(role) {
            None => "ALL".to_owned(),
            Some(names) => names.iter().map(String::as_str).collect::<Vec<_>>().join(", "),
        }
    }

    /// Whether a role may log in. A client may still be connected with a role that was dropped or has lost LOGIN. As in
    /// Cassandra, such a role has access to no data center and from no address.
    fn can_log_in(&self, role: &str) -> bool {
        self.roles.get(role).is_some_and(|role| role.can_login)
    }

    /// Whether a role may connect to this data center. Superusers may connect to all.
    fn allows_data_center(&self, role: &str, is_superuser: bool, own: &str) -> bool {
        let is_listed = || self.access.data_centers.get(role).is_none_or(|names| names.contains(own));
        self.can_log_in(role) && (is_superuser || is_listed())
    }

    /// Whether a role may connect from this address. Notes the check.
    fn allows_address(&self, role: &str, address: IpAddr, options: AccessOptions, stats: &CidrStats) -> bool {
        let begun = Instant::now();
        let groups = self.access.groups_of(address);
        let found = Instant::now();
        let is_allowed = self.can_log_in(role) && self.access.allows_groups(role, &groups);
        stats.checked(&groups, is_allowed || options.cidrs == CidrChecks::Monitor, begun, found);
        is_allowed
    }
}

impl Processor {
    /// Refuses a client whose role may not connect to this data center, or from its address.
    pub(super) fn check_access(&self, client: &ClientState) -> Result<(), QueryError> {
        let options = self.auth().options.access;
        let Some(user) = &client.user else { return Ok(()) };
        let book = self.auth().book();
        let is_superuser = self.auth().authority_of(user, &book).is_superuser;
        let own = &*self.options().node.data_center;
        if options.data_centers && !book.allows_data_center(user, is_superuser, own) {
            return Err(QueryError::unauthorized(format!("You do not have access to this datacenter ({own})")));
        }
        if let Some(address) = client.address.map(|address| address.ip())
            && options.cidrs == CidrChecks::Enforce
            && !(is_superuser && !options.cidrs_of_superusers && book.can_log_in(user))
            && !book.allows_address(user, address, options, &self.auth().cidr_stats)
        {
            return Err(QueryError::unauthorized(format!("You do not have access from this IP {address}")));
        }
        Ok(())
    }

    /// The report about a login from an address that its role may not connect from, if such logins are only reported.
    pub(super) fn access_notice(&self, user: &str, address: Option<IpAddr>) -> Option<String> {
        let options = self.auth().options.access;
        let address = address.filter(|_| options.cidrs == CidrChecks::Monitor)?;
        let book = self.auth().book();
        let is_exempt = !options.cidrs_of_superusers && self.auth().authority_of(user, &book).is_superuser;
        let is_allowed = is_exempt || book.allows_address(user, address, options, &self.auth().cidr_stats);
        (!is_allowed).then(|| format!("role {user} does not have access from IP {address}, and was let in"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn an_address_belongs_to_the_groups_of_its_smallest_block() {
        let mut book = AccessBook::default();
        for (group, blocks) in [
            ("all", &["0.0.0.0/0"][..]),
            ("office", &["10.0.0.0/8", "10.1.2.0/24"]),
            ("lab", &["10.1.0.0/16"]),
            ("desk", &["10.1.2.0/24"]),
            ("six", &["2001:db8::/32"]),
        ] {
            book.blocks.insert(group.to_owned(), blocks.iter().map(|block| block.parse().unwrap()).collect());
        }
        let groups = |address: &str| book.groups_of(address.parse().unwrap());
        assert_eq!(groups("10.9.9.9"), BTreeSet::from(["office"]));
        assert_eq!(groups("10.1.9.9"), BTreeSet::from(["lab"]));
        assert_eq!(groups("10.1.2.3"), BTreeSet::from(["desk", "office"]));
        assert_eq!(groups("192.0.2.1"), BTreeSet::from(["all"]));
        assert_eq!(groups("::ffff:10.1.9.9"), BTreeSet::from(["lab"]));
        assert_eq!(groups("2001:db8::1"), BTreeSet::from(["six"]));
        assert!(groups("2001:db9::1").is_empty());

        AccessBook::put(&mut book.cidr_groups, "r", names(&["office"]));
        let allows = |book: &AccessBook, role, address: &str| {
            book.allows_groups(role, &book.groups_of(address.parse().unwrap()))
        };
        assert!(allows(&book, "r", "10.1.2.3"));
        assert!(!allows(&book, "r", "10.1.9.9"));
        assert!(!allows(&book, "r", "2001:db9::1"));
        assert!(allows(&book, "other", "10.1.9.9"));
        AccessBook::put(&mut book.cidr_groups, "r", names(&[]));
        assert!(allows(&book, "r", "10.1.9.9"));
    }

    #[test]
    fn a_block_of_mapped_addresses_is_one_of_ipv4() {
        let block = |text: &str| cidr_block(text).map(|block| block.to_string());
        assert_eq!(block("10.1.2.3/8").as_deref(), Some("10.0.0.0/8"));
        assert_eq!(block("::ffff:10.0.0.0/104").as_deref(), Some("10.0.0.0/8"));
        assert_eq!(block("fe80::1/10").as_deref(), Some("fe80::/10"));
        assert_eq!(block("::10.0.0.0/104").as_deref(), Some("::a00:0/104"));
        for refused in ["::ffff:10.0.0.0/8", "10.0.0.0/33", "10.0.0.0", "10.1.2.3/-1", "abc", ""] {
            assert_eq!(block(refused), None, "{refused}");
        }
    }

    #[test]
    fn a_block_is_read_from_its_stored_form_and_no_bytes_are_trusted() {
        let stored = |address: &[u8], length: i16| {
            collection::tuple([Some(address), Some(&length.to_be_bytes()[..])].into_iter())
        };
        assert_eq!(stored_cidr_block(&stored(&[10, 0, 0, 0], 8)), Some("10.0.0.0/8".parse().unwrap()));
        assert_eq!(stored_cidr_block(&stored(&[10, 0, 0, 0], 33)), None);
        assert_eq!(stored_cidr_block(&stored(&[10, 0, 0, 0], -1)), None);
        assert_eq!(stored_cidr_block(&stored(&[10, 0, 0], 8)), None);
        let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 0];
        assert_eq!(stored_cidr_block(&stored(&mapped, 8)), Some("10.0.0.0/8".parse().unwrap()));
        assert_eq!(stored_cidr_block(&stored(&mapped, 104)), None);
        let whole = stored(&[10, 0, 0, 0], 8);
        for end in 0..whole.len() {
            assert_eq!(stored_cidr_block(&whole[..end]), None);
        }
    }
}
