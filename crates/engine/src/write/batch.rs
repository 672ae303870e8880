//! Logged batches that are larger than the largest log record.
//!
//! A logged batch is usually one log record, so it survives a crash completely or not at all. A larger batch is first
//! stored in `system.batches`, where Cassandra stores every logged batch, in pieces that are elements of the column
//! `mutations`. The column `version` is written last and marks the stored batch as complete. Then the updates of the
//! batch are written one by one, and the row is deleted. A start of the node finishes complete batches, and deletes
//! incomplete ones, of which no update was written. It skips the updates of tables that were truncated after the batch
//! began. A batch for which tables in memory have no room is refused before any piece is stored.

use std::any::Any;
use std::sync::Arc;
use std::thread;

use commitlog::LogPosition;
use model::{Mutation, PartitionUpdate, TableId};
use types::collection;
use uuid::Uuid;

use super::Writes;
use super::order::{self, Write};
use crate::error::EngineError;
use crate::hooks::DiskFailureKind;
use crate::read;
use crate::system::{SystemRow, SystemWrite};
use crate::table::in_memory::{self, Reservations};

/// The version of `mutations` with all parts: the mutation in the form of a log record, the log position at which the
/// batch began (i64 segment, i32 offset), and a CRC-32 of both. The elements are pieces of these bytes of any length.
/// If a salvaged log has lost an element, the checksum shows it. Cassandra's versions are greater.
const VERSION: i32 = 3;
/// The version without the position.
const VERSION_WITHOUT_POSITION: i32 = 2;
/// The version with the record alone.
const VERSION_UNCHECKED: i32 = 1;
/// The length of an encoded log position.
const POSITION_BYTES: usize = 12;
/// A limit for the bytes of a log record that are not part of its element.
const PIECE_OVERHEAD: u64 = 1024;
const PIECE_SIZE_MAX: usize = 1 << 20;

/// A value that is kept alive until a batch is complete.
pub(super) type Owner = Arc<dyn Any + Send + Sync>;

/// A batch that is being written. If it is dropped, it is finished in the background.
struct LargeBatch {
    writes: Arc<Writes>,
    owner: Owner,
    id: Uuid,
    /// The updates that are not written yet, in reverse order.
    rest: Vec<PartitionUpdate>,
    /// The room in tables in memory for the whole batch.
    room: Reservations,
    /// Whether the whole batch is in `system.batches`.
    is_kept: bool,
    /// Whether dropping this leaves nothing to be done in the background.
    is_last: bool,
}

/// A complete batch that a start found in `system.batches`.
struct StoredBatch {
    record: Vec<u8>,
    /// Its updates of tables that exist.
    updates: Vec<PartitionUpdate>,
    started: BatchStart,
}

/// When a batch was started.
enum BatchStart {
    At(LogPosition),
    /// The millisecond since the epoch. Batches of earlier versions have no position.
    In(i64),
}

impl BatchStart {
    /// Whether it was started before a truncation at this position and in this millisecond.
    fn is_before(&self, position: LogPosition, millis: i64) -> bool {
        match self {
            BatchStart::At(started) => *started < position,
            BatchStart::In(started) => *started <= millis,
        }
    }
}

impl Writes {
    /// Writes a batch that is larger than the largest log record: first to `system.batches`, then to its tables.
    pub(super) async fn write_stored_batch(
        self: &Arc<Writes>,
        owner: Owner,
        mutation: &Mutation,
    ) -> Result<(), EngineError> {
        self.check_parts(mutation)?;
        let room = in_memory::reserve(mutation, &self.stores_of(mutation)?).await?;
        let rest = mutation.updates().iter().rev().cloned().collect();
        let id = self.shared.files().new_timeuuid();
        let mut batch = LargeBatch { writes: Arc::clone(self), owner, id, rest, room, is_kept: false, is_last: false };
        batch.keep(mutation).await?;
        batch.finish().await
    }

    /// Writes the updates of a mutation one by one.
    pub(super) async fn write_update_by_update(&self, mutation: &Mutation) -> Result<(), EngineError> {
        self.check_parts(mutation)?;
        for update in mutation.updates() {
            self.write(&Mutation::from(update.clone())).await?;
        }
        Ok(())
    }

    /// Writes an update of a batch, which has reserved the room in tables in memory for all its updates.
    async fn write_part(&self, part: &Mutation) -> Result<(), EngineError> {
        let stores = self.stores_of(part)?;
        order::drive_reserved(Write { writes: self, mutation: part, stores: &stores }, Reservations::default()).await
    }

    /// Checks that the table of each update exists, and that each update by itself fits a log record and the limit of
    /// its indexes.
    fn check_parts(&self, mutation: &Mutation) -> Result<(), EngineError> {
        self.stores_of(mutation)?;
        for update in mutation.updates() {
            let checked = self.shared.log().check_size(1, update.as_bytes().len());
            checked.map_err(|error| self.shared.not_appended(std::slice::from_ref(update), error))?;
            self.size_bytes(&Mutation::from(update.clone()))?;
        }
        Ok(())
    }

    /// Finishes the batches of the node's previous run. It is called before clients can write. `truncated` has the
    /// tables that were truncated, with the position of the log and the time in milliseconds since the epoch.
    pub fn finish_batches(&self, truncated: &[(TableId, LogPosition, i64)]) -> Result<(), EngineError> {
        for row in self.kept_batches()? {
            let (Some(id), version) = (row.uuid("id"), row.int("version")) else { continue };
            match version {
                // This row is a batch of Cassandra.
                Some(version) if !(VERSION_UNCHECKED..=VERSION).contains(&version) => continue,
                Some(version) => match self.read_stored(id, row.get("mutations").unwrap_or_default(), version) {
                    Ok(batch) => self.write_stored(batch, truncated)?,
                    Err(error) => {
                        // The row is kept, because another version of this program may be able to read it.
                        self.shared.note_fault(format!("the batch {id} in system.batches is not finished: {error}"));
                        continue;
                    }
                },
                None => {}
            }
            self.system(&self.forget_batch(id))?;
        }
        Ok(())
    }

    /// The rows of `system.batches`. If they cannot be read, the table is quarantined. A quarantined table has no rows.
    fn kept_batches(&self) -> Result<Vec<SystemRow>, EngineError> {
        match read::system_rows(&self.shared, "system", "batches") {
            Err(EngineError::Quarantined { .. }) => Ok(Vec::new()),
            Err(error) if DiskFailureKind::of(&error).is_some() => {
                let store = self.shared.store(&self.shared.find_table("system", "batches"))?;
                self.quarantine.quarantine(&store, &error).map(|()| Vec::new())
            }
            rows => rows,
        }
    }

    fn read_stored(&self, id: Uuid, mutations: &[u8], version: i32) -> Result<StoredBatch, String> {
        let mut record = Vec::new();
        for piece in collection::elements(mutations).map_err(|error| error.to_string())? {
            let piece = piece.map_err(|error| error.to_string())?;
            record.extend_from_slice(piece.unwrap_or_default());
        }
        if version >= VERSION_WITHOUT_POSITION {
            let checksum = record.split_off(record.len().saturating_sub(4));
            if checksum != crc32fast::hash(&record).to_be_bytes() {
                return Err("the checksum of its record does not match".to_owned());
            }
        }
        let started = match version {
            VERSION => {
                let position = record.split_off(record.len().saturating_sub(POSITION_BYTES));
                BatchStart::At(decode_position(&position).ok_or("it has no position")?)
            }
            _ => BatchStart::In(started_millis(id)),
        };
        let (mutation, _of_dropped_tables) =
            Mutation::read_record(&record, &self.shared.schema()).map_err(|error| error.to_string())?;
        Ok(StoredBatch { record, updates: mutation.into_updates(), started })
    }

    fn write_stored(
        &self,
        StoredBatch { record, updates, started }: StoredBatch,
        truncated: &[(TableId, LogPosition, i64)],
    ) -> Result<(), EngineError> {
        let is_gone = |id| {
            let mut of_table = truncated.iter().filter(|(table, ..)| *table == id);
            of_table.any(|(_, position, millis)| started.is_before(*position, *millis))
        };
        self.quarantine.set_batch_aside(&record, is_gone)?;
        let is_served = |id| self.shared.catalog().any_store(id).is_some_and(|store| store.is_served());
        let is_kept = |update: &PartitionUpdate| !is_gone(update.table().id) && is_served(update.table().id);
        let mut kept = updates.into_iter().filter(is_kept);
        kept.try_for_each(|update| self.system(&Mutation::from(update)))
    }

    fn batch_row(&self, id: Uuid) -> SystemWrite {
        SystemWrite::new(
            &self.shared.find_table("system", "batches"),
            id.as_bytes(),
            self.shared.next_timestamp_micros(),
        )
    }

    fn forget_batch(&self, id: Uuid) -> Mutation {
        let mut row = self.batch_row(id);
        row.clear();
        Mutation::from(row.build())
    }
}

fn encode_position(position: LogPosition) -> [u8; POSITION_BYTES] {
    let mut bytes = [0; POSITION_BYTES];
    bytes[..8].copy_from_slice(&position.segment.to_be_bytes());
    bytes[8..].copy_from_slice(&position.offset.to_be_bytes());
    bytes
}

fn decode_position(bytes: &[u8]) -> Option<LogPosition> {
    let (segment, offset) = bytes.split_first_chunk::<8>()?;
    let (segment, offset) = (i64::from_be_bytes(*segment), i32::from_be_bytes(offset.try_into().ok()?));
    Some(LogPosition { segment, offset })
}

/// The time in a batch's id, which is when it was started, in milliseconds since the epoch.
fn started_millis(id: Uuid) -> i64 {
    let (seconds, nanos) = id.get_timestamp().map_or((0, 0), |started| started.to_unix());
    i64::try_from(seconds * 1000 + u64::from(nanos / 1_000_000)).unwrap_or(i64::MAX)
}

impl LargeBatch {
    /// Stores the batch in `system.batches`.
    async fn keep(&mut self, mutation: &Mutation) -> Result<(), EngineError> {
        let mut record = Vec::with_capacity(mutation.record_size() + POSITION_BYTES + size_of::<u32>());
        mutation.write_record(&mut record);
        record.extend_from_slice(&encode_position(self.writes.shared.log().position()));
        let checksum = crc32fast::hash(&record).to_be_bytes();
        record.extend_from_slice(&checksum);
        let room = self.writes.shared.log().record_size_max().saturating_sub(PIECE_OVERHEAD);
        let piece_size = usize::try_from(room).unwrap_or(usize::MAX).clamp(1, PIECE_SIZE_MAX);
        for (number, piece) in (0..).zip(record.chunks(piece_size)) {
            let mut row = self.writes.batch_row(self.id);
            row.entry("mutations", self.place(number).as_bytes(), Some(piece));
            self.writes.write(&Mutation::from(row.build())).await?;
        }
        let mut row = self.writes.batch_row(self.id);
        row.row(&[], &[("version", Some(VERSION.to_be_bytes().to_vec()))]);
        self.writes.write(&Mutation::from(row.build())).await?;
        self.is_kept = true;
        Ok(())
    }

    /// The cell path of an element: a time-based UUID that ascends with the number.
    fn place(&self, number: u64) -> Uuid {
        let node: [u8; 6] = std::array::from_fn(|i| self.id.as_bytes()[10 + i]);
        Uuid::new_v1(uuid::Timestamp::from_gregorian_time(number, 0), &node)
    }

    /// Writes the remaining updates.
    async fn finish(mut self) -> Result<(), EngineError> {
        while let Some(update) = self.rest.last() {
            match self.writes.write_part(&Mutation::from(update.clone())).await {
                // The update of a table that was dropped meanwhile is dropped too.
                Ok(()) | Err(EngineError::UnknownTable(_)) => {}
                // The update of a quarantined table is set aside. That waits for a running repair of the table, so it
                // is done in the background.
                Err(error @ EngineError::Quarantined { .. }) if !self.is_last => return Err(error),
                Err(EngineError::Quarantined { .. }) if !self.writes.quarantine.set_part_aside(update)? => continue,
                Err(EngineError::Quarantined { .. }) => {}
                Err(error) => {
                    self.is_last = true;
                    return Err(error);
                }
            }
            self.rest.pop();
        }
        let forgotten = self.writes.write(&self.writes.forget_batch(self.id)).await;
        self.is_last = true;
        forgotten
    }
}

impl Drop for LargeBatch {
    /// Finishes a batch whose caller gave up. The remaining updates are written in the background. The next start finds
    /// those that cannot be written now.
    fn drop(&mut self) {
        if self.is_last {
            return;
        }
        let rest = if self.is_kept { std::mem::take(&mut self.rest) } else { Vec::new() };
        let room = std::mem::take(&mut self.room);
        let batch = LargeBatch {
            writes: Arc::clone(&self.writes),
            owner: Arc::clone(&self.owner),
            id: self.id,
            rest,
            room,
            is_kept: true,
            is_last: true,
        };
        let finish = move || {
            let _ = crate::block_on(batch.finish());
        };
        let _ = thread::Builder::new().name("BatchlogTasks".into()).spawn(finish);
    }
}
