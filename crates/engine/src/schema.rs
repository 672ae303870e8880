//! Changes of the schema and of what tables hold as a whole: DDL, the stored schema, drops and truncations.
//!
//! A change is checked against the rows that will be stored, is durable before it is answered, and then takes effect in
//! one step. What a crash leaves of a drop or a truncation is finished by the next start.

pub(crate) mod change;
mod check;
mod drops;
mod indispensable_stores;
mod stores;
mod truncation;

pub(crate) use check::check_options;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// What changes of the schema leave for later ones.
pub(crate) struct SchemaState {
    /// Held by a change of the schema, or a repair, which run one at a time.
    pub lock: Mutex<()>,
    /// Whether tables were dropped whose files may still be there; not known at start.
    pub drops_unfinished: AtomicBool,
    /// How many tables were dropped since the start. Changes with the lock held.
    pub tables_dropped: AtomicU64,
}

impl Default for SchemaState {
    fn default() -> Self {
        SchemaState { lock: Mutex::new(()), drops_unfinished: AtomicBool::new(true), tables_dropped: AtomicU64::new(0) }
    }
}
