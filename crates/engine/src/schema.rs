//! Changes of the schema and of whole tables: DDL, the stored schema, drops and truncations.
//!
//! A change is checked against the rows that will be stored, is durable before it is answered, and then takes effect in
//! one step. Drops and truncations that a crash interrupted are finished by the next start.

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
    /// Whether files of dropped tables may still exist, which is unknown at the start.
    drops_unfinished: AtomicBool,
    /// The number of tables dropped since the start. It changes with the lock held.
    tables_dropped: AtomicU64,
    /// The new paths of files of tables' directories that belonged to no SSTable. The start moved them there.
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

    /// Prevents changes of the schema during the lifetime of the returned guard.
    pub fn lock_schema(&self) -> MutexGuard<'_, ()> {
        lock(&self.changing)
    }

    /// The new paths of files of tables' directories that belonged to no SSTable. The start moved them there.
    pub fn leftovers(&self) -> Vec<PathBuf> {
        lock(&self.leftovers).clone()
    }
}
