//! The deletions of partitions, and the open markers of the row index, which have the same form.

use model::DeletionTime;

use super::LIVE_DELETION;
use crate::descriptor::Version;
use crate::error::{Decoded, SSTableError};
use crate::input::Input;

/// Reads a partition deletion, or an open marker of the row index: one byte if live, else twelve.
pub(crate) fn read_deletion(input: &mut Input<'_>) -> Decoded<DeletionTime> {
    match input.peek() {
        Some(LIVE_DELETION) => {
            input.u8("deletion")?;
            Ok(DeletionTime::LIVE)
        }
        Some(first) if first > LIVE_DELETION => {
            Err(input.damaged("a deletion that is live (80) or has a positive timestamp", format!("{first:02x}")))
        }
        _ => Ok(DeletionTime::new(input.i64("deletion timestamp")?, input.u32("local deletion time")?)),
    }
}

/// Reads a partition's deletion in the encoding of a version.
pub(crate) fn read_partition_deletion(version: Version, input: &mut Input<'_>) -> Decoded<DeletionTime> {
    if version != Version::Nb {
        return read_deletion(input);
    }
    let local_deletion_time = input.i32("local deletion time")?;
    let marked_for_delete_at = input.i64("deletion timestamp")?;
    match (local_deletion_time, marked_for_delete_at) {
        (i32::MAX, i64::MIN) => Ok(DeletionTime::LIVE),
        (0.., _) => Ok(DeletionTime::new(marked_for_delete_at, local_deletion_time as u32)),
        _ => Err(input.damaged("a local deletion time from 1970 on", local_deletion_time.to_string())),
    }
}

/// Appends a partition deletion or an open marker of the row index.
pub(crate) fn write_deletion(deletion: DeletionTime, out: &mut Vec<u8>) -> Result<(), SSTableError> {
    if deletion.is_live() {
        out.push(LIVE_DELETION);
        return Ok(());
    }
    if !deletion.has_whole_form() {
        let what = "a partition or range deletion with a negative timestamp".into();
        return Err(SSTableError::Unwritable { what });
    }
    out.extend_from_slice(&deletion.marked_for_delete_at.to_be_bytes());
    out.extend_from_slice(&deletion.local_deletion_time.to_be_bytes());
    Ok(())
}
