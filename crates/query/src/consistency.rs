//! Consistency levels, checked for a cluster of one node.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use model::{Keyspace, Schema};
use uuid::Uuid;

use crate::{Consistency, ErrorKind, QueryError};

/// Refuses a level that clients may not use.
pub(crate) fn refuse_node_local(consistency: Consistency) -> Result<(), QueryError> {
    match consistency {
        Consistency::NodeLocal => Err(QueryError::invalid(
            "NODE_LOCAL consistency level is highly dangerous and should be used only for debugging purposes",
        )),
        _ => Ok(()),
    }
}

/// Refuses a level that is not allowed for reads.
pub(crate) fn validate_read(consistency: Consistency) -> Result<(), QueryError> {
    match consistency {
        Consistency::Any => Err(QueryError::invalid("ANY ConsistencyLevel is only supported for writes")),
        other => refuse_node_local(other),
    }
}

/// Refuses a level at which one live node cannot read.
#[inline]
pub(crate) fn check_read(
    consistency: Consistency,
    schema: &Schema,
    keyspace: &Arc<str>,
    data_center: &Arc<str>,
) -> Result<(), QueryError> {
    // A serial read first completes the agreement on conditional writes, and then reads at a quorum.
    let consistency = match consistency {
        Consistency::Serial => Consistency::Quorum,
        Consistency::LocalSerial => Consistency::LocalQuorum,
        other => other,
    };
    check_alive(consistency, schema, keyspace, data_center)
}

/// Refuses a level at which conditional writes cannot be committed.
pub(crate) fn validate_commit(consistency: Consistency, schema: &Schema, keyspace: &str) -> Result<(), QueryError> {
    if consistency.is_serial() {
        return Err(QueryError::invalid(format!(
            "{consistency} is not supported as conditional update commit consistency. Use ANY if you mean \"make sure it \
             is accepted but I don't care how many replicas commit it for non-SERIAL reads\""
        )));
    }
    let class = schema.keyspace(keyspace).and_then(|keyspace| keyspace.replication.get("class"));
    match (consistency, class) {
        (Consistency::EachQuorum, Some(class)) if !class.ends_with("NetworkTopologyStrategy") => {
            Err(QueryError::invalid(format!(
                "consistency level EACH_QUORUM not compatible with replication strategy ({class})"
            )))
        }
        (other, _) => refuse_node_local(other),
    }
}

/// Refuses EACH_QUORUM if a data center has no live quorum.
fn check_each_center(replication: &Replication, data_center: &str) -> Result<(), QueryError> {
    let lacks = |(name, count): &&(String, i32)| {
        let alive = if name == data_center { (*count).min(1) } else { 0 };
        alive < quorum(*count)
    };
    let Some((name, count)) = replication.by_data_center.iter().find(lacks) else { return Ok(()) };
    // As in Cassandra, whose error does not contain the number of live replicas.
    let kind = ErrorKind::Unavailable { consistency: Consistency::EachQuorum, required: quorum(*count), alive: 0 };
    Err(QueryError::new(kind, format!("Cannot achieve consistency level EACH_QUORUM in DC {name}")))
}

/// The last level that was reachable, because statements use the same one again and again.
struct Reached {
    /// The version of the schema.
    version: Uuid,
    keyspace: Arc<str>,
    data_center: Arc<str>,
    consistency: Consistency,
}

thread_local! {
    static REACHED: RefCell<Option<Reached>> = const { RefCell::new(None) };
}

/// Refuses a level that one live node, in this data center, cannot reach under the keyspace's replication.
#[inline]
pub(crate) fn check_alive(
    consistency: Consistency,
    schema: &Schema,
    keyspace: &Arc<str>,
    data_center: &Arc<str>,
) -> Result<(), QueryError> {
    // They usually are the same allocation.
    let is_same = |one: &Arc<str>, other: &Arc<str>| Arc::ptr_eq(one, other) || one == other;
    REACHED.with_borrow_mut(|reached| {
        let is_known = reached.as_ref().is_some_and(|known| {
            known.consistency == consistency
                && known.version == schema.version
                && is_same(&known.keyspace, keyspace)
                && is_same(&known.data_center, data_center)
        });
        if is_known {
            return Ok(());
        }
        check_replication(consistency, schema, keyspace, data_center)?;
        let (version, keyspace, data_center) = (schema.version, Arc::clone(keyspace), Arc::clone(data_center));
        *reached = Some(Reached { version, keyspace, data_center, consistency });
        Ok(())
    })
}

fn check_replication(
    consistency: Consistency,
    schema: &Schema,
    keyspace: &str,
    data_center: &str,
) -> Result<(), QueryError> {
    refuse_node_local(consistency)?;
    let Some(keyspace) = schema.keyspace(keyspace) else { return Ok(()) };
    let replication = Replication::of(keyspace, data_center);
    if consistency == Consistency::EachQuorum {
        check_each_center(&replication, data_center)?;
    }
    let (required, alive) = replication.needs(consistency);
    if alive >= required {
        return Ok(());
    }
    let kind = ErrorKind::Unavailable { consistency, required, alive };
    Err(QueryError::new(kind, format!("Cannot achieve consistency level {consistency}")))
}

/// The number of a keyspace's replicas, and of those in this data center.
struct Replication {
    total: i32,
    local: i32,
    /// The replicas of each data center; empty if replication is not defined by data centers.
    by_data_center: Vec<(String, i32)>,
}

impl Replication {
    fn of(keyspace: &Keyspace, data_center: &str) -> Replication {
        let options: &BTreeMap<String, String> = &keyspace.replication;
        let class = options.get("class").map_or("", String::as_str);
        // `3/1` means three replicas, one of which is transient.
        let factor = |text: &String| text.split('/').next().and_then(|count| count.parse().ok()).unwrap_or(0);
        if class.ends_with("NetworkTopologyStrategy") {
            let centers = options.iter().filter(|(name, _)| *name != "class");
            let by_data_center: Vec<(String, i32)> =
                centers.map(|(name, count)| (name.clone(), factor(count))).collect();
            let local = options.get(data_center).map_or(0, factor);
            return Replication { total: by_data_center.iter().map(|(_, count)| count).sum(), local, by_data_center };
        }
        let total = options.get("replication_factor").map_or(1, factor);
        Replication { total, local: total, by_data_center: Vec::new() }
    }

    /// The number of replicas that the level needs, and of live replicas that count for it.
    fn needs(&self, consistency: Consistency) -> (i32, i32) {
        let alive = self.total.min(1);
        let local_alive = self.local.min(1);
        match consistency {
            Consistency::Any | Consistency::NodeLocal => (0, alive),
            Consistency::One => (1, alive),
            Consistency::Two => (2, alive),
            Consistency::Three => (3, alive),
            Consistency::LocalOne => (1, local_alive),
            Consistency::Quorum | Consistency::Serial => (quorum(self.total), alive),
            Consistency::All => (self.total, alive),
            Consistency::LocalQuorum | Consistency::LocalSerial => (quorum(self.local), local_alive),
            Consistency::EachQuorum if self.by_data_center.is_empty() => (quorum(self.total), alive),
            Consistency::EachQuorum => (self.by_data_center.iter().map(|(_, count)| quorum(*count)).sum(), alive),
        }
    }
}

fn quorum(replicas: i32) -> i32 {
    replicas / 2 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(class: &str, factors: &[(&str, &str)], consistency: Consistency) -> (i32, i32) {
        let mut options: BTreeMap<String, String> =
            factors.iter().map(|(name, count)| (name.to_string(), count.to_string())).collect();
        options.insert("class".into(), format!("org.apache.cassandra.locator.{class}"));
        Replication::of(&Keyspace::new("k", options, true), "datacenter1").needs(consistency)
    }

    #[test]
    fn levels_need_the_replicas_of_the_replication_options() {
        let three: &[(&str, &str)] = &[("replication_factor", "3")];
        assert_eq!(needs("SimpleStrategy", three, Consistency::Quorum), (2, 1));
        assert_eq!(needs("SimpleStrategy", three, Consistency::All), (3, 1));
        assert_eq!(needs("SimpleStrategy", three, Consistency::One), (1, 1));
        let centers: &[(&str, &str)] = &[("datacenter1", "1"), ("other", "3/1")];
        assert_eq!(needs("NetworkTopologyStrategy", centers, Consistency::LocalQuorum), (1, 1));
        assert_eq!(needs("NetworkTopologyStrategy", centers, Consistency::EachQuorum), (3, 1));
        assert_eq!(needs("NetworkTopologyStrategy", &[], Consistency::One), (1, 0));
        assert_eq!(needs("LocalStrategy", &[], Consistency::All), (1, 1));
    }
}
