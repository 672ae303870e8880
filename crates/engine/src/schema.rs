//! Changes of the schema and of what tables hold as a whole: DDL, the stored schema, drops and truncations.
//!
//! A change is checked against the rows that will be stored, is durable before it is answered, and then takes effect in
//! one step. What a crash leaves of a drop or a truncation is finished by the next start.

pub(crate) mod change;
mod check;
mod drops;
mod indispensable_stores;
mod stored;
mod stores;
mod truncation;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::compaction::Compaction;
use crate::flush::Flush;
use crate::lock::lock;
use crate::quarantine::Quarantine;
use crate::residents::Residents;
use crate::shared::Shared;
use crate::write::Writes;

pub(crate) use check::check_options;
pub(crate) use stored::StoredSchema;
use truncation::Truncations;

/// Opens, alters, drops and truncates tables.
pub(crate) struct Tables {
    shared: Arc<Shared>,
    compaction: Arc<Compaction>,
    quarantine: Arc<Quarantine>,
    flush: Arc<Flush>,
    residents: Arc<Residents>,
    writes: Arc<Writes>,
    truncations: Truncations,
    /// Held by a change of the schema, or a repair, which run one at a time.
    changing: Mutex<()>,
    /// Whether tables were dropped whose files may still be there; not known at start.
    drops_unfinished: AtomicBool,
    /// How many tables were dropped since the start. Changes with the lock held.
    tables_dropped: AtomicU64,
    /// Files of tables' directories that belong to no SSTable, and where the start put them.
    leftovers: Mutex<Vec<PathBuf>>,
}

impl Tables {
    pub fn new(
        shared: &Arc<Shared>,
        compaction: &Arc<Compaction>,
        quarantine: &Arc<Quarantine>,
        flush: &Arc<Flush>,
        residents: &Arc<Residents>,
        writes: &Arc<Writes>,
    ) -> Tables {
        Tables {
            truncations: Truncations::new(shared, compaction, quarantine, flush, residents, writes),
            shared: Arc::clone(shared),
            compaction: Arc::clone(compaction),
            quarantine: Arc::clone(quarantine),
            flush: Arc::clone(flush),
            residents: Arc::clone(residents),
            writes: Arc::clone(writes),
            changing: Mutex::default(),
            drops_unfinished: AtomicBool::new(true),
            tables_dropped: AtomicU64::new(0),
            leftovers: Mutex::default(),
        }
    }

    /// The truncations of tables.
    pub fn truncations(&self) -> &Truncations {
        &self.truncations
    }

    /// Keeps the schema from changing as long as what is returned lives.
    pub fn hold_schema(&self) -> MutexGuard<'_, ()> {
        lock(&self.changing)
    }

    /// Files of tables' directories that belong to no SSTable, and where the start put them.
    pub fn leftovers(&self) -> Vec<PathBuf> {
        lock(&self.leftovers).clone()
    }
}
