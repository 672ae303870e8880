//! Opening a log: which log is there, what its bookkeeping says, and whether it may be used.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use blockio::{Disk, OpenOptions};
use uuid::Uuid;

use crate::decision::{EntryDecision, EntryKind, FirstBlock, decide_entry};
use crate::file::{DAMAGED_FILE_NAME, LogFile, foreign_device, free_path};
use crate::format::{BookkeepingEntry, Geometry, SegmentState, Superblock};
use crate::rebuild;
use crate::segment::SegmentUse;
use crate::{Corruption, Gap, LogError, LogOptions};

/// A log that was opened or made.
pub(crate) struct Opened {
    pub file: LogFile,
    /// The greatest segment id ever seen.
    pub last_id: i64,
    /// The segments that hold records, in order of ids.
    pub live: Vec<Arc<SegmentUse>>,
    /// The damage in superblocks and bookkeeping that was repaired or bypassed.
    pub gaps: Vec<Gap>,
}

/// Opens the log in the options' directory. Makes one if there is none, or if the one there holds nothing and has
/// another layout than the options ask for.
pub(crate) fn open_or_create(disk: &dyn Disk, options: &LogOptions) -> Result<Opened, LogError> {
    let measure = |device: &PathBuf| disk.open(device, OpenOptions::read())?.len();
    let wanted = options.geometry(options.device.as_ref().map(measure).transpose()?)?;
    let mut lost_superblocks = None;
    let file = match LogFile::open(disk, options) {
        Ok(Some(file)) => file,
        Ok(None) => return create(disk, options, wanted, new_host_id(options)?, 0),
        Err(LogError::Corrupt(damage)) => match rebuilt(disk, options, wanted, &damage)? {
            Some(file) => {
                lost_superblocks = Some(Gap::of(*damage, 0, None));
                file
            }
            None => return begin_new_log(disk, options, wanted, *damage),
        },
        Err(error) => return Err(error),
    };
    check_host(&file, options)?;
    file.renew()?;
    let mut opened = read_bookkeeping(file, options)?;
    opened.gaps.splice(..0, lost_superblocks);
    if opened.live.is_empty() && opened.gaps.is_empty() && *opened.file.geometry() != wanted {
        let host_id = opened.file.superblock.host_id;
        return create(disk, options, wanted, host_id, opened.last_id);
    }
    Ok(opened)
}

/// With salvage, rebuilds a log whose superblocks are lost from its other blocks.
fn rebuilt(
    disk: &dyn Disk,
    options: &LogOptions,
    wanted: Geometry,
    damage: &Corruption,
) -> Result<Option<LogFile>, LogError> {
    let is_head = damage.offset < Geometry::bookkeeping_start();
    if options.salvage && is_head { rebuild::open(disk, options, wanted) } else { Ok(None) }
}

/// Makes a new log in place of one that cannot be read at all. A device is left untouched.
fn begin_new_log(
    disk: &dyn Disk,
    options: &LogOptions,
    wanted: Geometry,
    damage: Corruption,
) -> Result<Opened, LogError> {
    if options.device.is_some() {
        return Err(foreign_device(&damage, options.salvage));
    }
    if !options.salvage {
        return Err(LogError::Corrupt(Box::new(damage)));
    }
    let gap = set_aside(disk, options, damage)?;
    let made = create(disk, options, wanted, new_host_id(options)?, 0)?;
    Ok(Opened { gaps: vec![gap], ..made })
}

/// The host id for a new log, where there was none before.
fn new_host_id(options: &LogOptions) -> Result<Uuid, LogError> {
    let Some(hook) = &options.on_new_log else { return Ok(options.host_id.unwrap_or_else(Uuid::new_v4)) };
    let id = Uuid::new_v4();
    hook(id)?;
    Ok(id)
}

fn create(
    disk: &dyn Disk,
    options: &LogOptions,
    geometry: Geometry,
    host_id: Uuid,
    last_id: i64,
) -> Result<Opened, LogError> {
    assert!(geometry.segments > 0 && geometry.blocks_per_segment() > 0, "the options were checked");
    let log_id = options.log_id.unwrap_or_else(Uuid::new_v4);
    let superblock = Superblock { geometry, log_id, host_id };
    let file = match &options.device {
        Some(device) => LogFile::create_on_device(disk, device, superblock, last_id)?,
        None => LogFile::create(disk, &options.directory, superblock, last_id)?,
    };
    Ok(Opened { file, last_id, live: Vec::new(), gaps: Vec::new() })
}

/// Keeps a file under another name because nothing in it can be read: neither superblock copy is sound, or the file
/// ends within the bookkeeping.
fn set_aside(disk: &dyn Disk, options: &LogOptions, damage: Corruption) -> Result<Gap, LogError> {
    let length_bytes = disk.open(&damage.path, OpenOptions::read())?.len()?;
    disk.rename(&damage.path, &free_path(disk, &options.directory, DAMAGED_FILE_NAME)?)?;
    disk.sync_dir(&options.directory)?;
    Ok(Gap::of(damage, length_bytes, None))
}

fn check_host(file: &LogFile, options: &LogOptions) -> Result<(), LogError> {
    let theirs = file.superblock.host_id;
    match options.host_id {
        Some(ours) if ours != theirs => {
            let reason = format!(
                "it belongs to host {theirs}; this is host {ours}: give the node the log that it had, or another place for a new one"
            );
            Err(LogError::Refused { path: file.path().to_path_buf(), reason })
        }
        _ => Ok(()),
    }
}

fn read_bookkeeping(file: LogFile, options: &LogOptions) -> Result<Opened, LogError> {
    let mut gaps: Vec<Gap> = file.damaged_superblock.iter().map(|damage| Gap::of(damage.clone(), 0, None)).collect();
    let mut entries = Vec::new();
    for (slot, found) in (0..).zip(file.read_entries()?) {
        let first = match &found {
            Ok(entry) if file.was_used_since(entry)? => FirstBlock::Newer,
            _ => FirstBlock::Older,
        };
        match (decide_entry(EntryKind::from(&found), first), found) {
            (EntryDecision::Skip | EntryDecision::Read, Ok(entry)) => entries.push(entry),
            (_, found) => {
                let damage = match found {
                    Ok(entry) => file.lost_entry(&entry),
                    Err(fault) => file.unsound_entry(slot, &fault),
                };
                if !options.salvage {
                    return Err(LogError::Corrupt(Box::new(damage)));
                }
                let entry = restore_entry(&file, slot)?;
                gaps.push(Gap::of(damage, 0, Some(entry.id)));
                entries.push(entry);
            }
        }
    }
    let last_id = entries.iter().map(|entry| entry.id).fold(0, i64::max);
    debug_assert_eq!(entries.len(), file.geometry().segments as usize, "every segment has an entry");
    entries.retain(is_read);
    entries.sort_by_key(|entry| entry.id);
    let mut twins = BTreeSet::new();
    for pair @ [a, b] in entries.array_windows::<2>().filter(|[a, b]| a.id == b.id) {
        let damage = file.twin_entries(pair);
        if !options.salvage {
            return Err(LogError::Corrupt(Box::new(damage)));
        }
        gaps.push(Gap::of(damage, 0, Some(a.id)));
        twins.extend([a.index, b.index]);
    }
    for entry in entries.iter_mut().filter(|entry| twins.contains(&entry.index)) {
        *entry = restore_entry(&file, entry.index)?;
    }
    // If the blocks of several segments claim the same use, all of them are replayed.
    entries.retain(is_read);
    entries.sort_by_key(|entry| entry.id);
    let live = entries.iter().map(|entry| Arc::new(SegmentUse::found(entry))).collect();
    Ok(Opened { file, last_id, live, gaps })
}

/// Whether the segment of a sound entry has to be read.
fn is_read(entry: &BookkeepingEntry) -> bool {
    decide_entry(EntryKind::from(entry.state), FirstBlock::Older) == EntryDecision::Read
}

/// Rewrites a segment's bookkeeping from its blocks.
fn restore_entry(file: &LogFile, slot: u32) -> Result<BookkeepingEntry, LogError> {
    let entry = guess_entry(file, slot)?;
    debug_assert!(entry.index == slot && entry.without == 0, "a restored entry promises nothing");
    file.write_entry(entry)?;
    Ok(entry)
}

/// An entry derived from the segment's blocks when its bookkeeping is lost: the greatest id among them, treated as
/// live.
fn guess_entry(file: &LogFile, slot: u32) -> Result<BookkeepingEntry, LogError> {
    let id = file.read_image(slot, i64::MAX, None)?.greatest_stale_id();
    let state = if id.is_some() { SegmentState::Live } else { SegmentState::Free };
    Ok(BookkeepingEntry { index: slot, state, id: id.unwrap_or(0), without: 0, durable_blocks: 0 })
}
