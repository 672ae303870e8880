//! Damaged files of one table while the node lives on: a component of an SSTable, a side file, or files that belong to
//! nothing. Nothing panics, and no row is wrong. The fault stays with its table, whose requests then give the reason;
//! all other tables are as they should be. Once the file is as it was, a repair takes the table back, and nothing is
//! lost.

use std::path::{Path, PathBuf};

use blockio::{Disk, OpenOptions};
use model::Table;
use sstable::{Descriptor, SSTableId};
use uuid::Uuid;

use super::model::State;
use super::node::{KEYSPACE, Node, read_table, tables_of};

const SIDE_FILES: &str = "/node/quarantine";
/// Refused changes are uncertain until the end, and each doubles what may be found.
const REFUSED_MAX: usize = 4;

/// A file that was damaged.
struct Damaged {
    path: PathBuf,
    before: Vec<u8>,
    /// The current content; `None` if the file was removed.
    after: Option<Vec<u8>>,
}

impl Node {
    /// Some steps, kills and power cuts with a damaged SSTable. Before it, nothing is uncertain, and no fault is to
    /// come; after it that is so again.
    pub fn live_with_damage(&mut self) {
        let Some(table) = self.some_table() else { return };
        let Some(path) = self.some_component(&table) else { return };
        let mut damaged = vec![self.damage(path, true)];
        if self.choices.one_in(3) {
            self.leave_something(&table);
        }
        for _ in 0..1 + self.choices.below(3) {
            self.steps_with_damage(&table, &damaged);
            if self.choices.one_in(2) {
                self.restart_with_damage(&damaged);
                self.check_with_damage(&table, &damaged);
            }
            if self.choices.one_in(3) {
                damaged.extend(self.damage_side_file(&table, &damaged));
            }
            if self.choices.one_in(4) {
                self.repair_too_early(&table, &damaged);
            }
        }
        self.put_back(&table, &damaged);
        self.settle_undamaged(false, "the damage is undone");
        self.make_durable();
        self.die();
        self.open().unwrap();
        self.settle_undamaged(true, "a start without damage");
        self.check_snapshots().unwrap();
    }

    fn settle_undamaged(&mut self, after_crash: bool, when: &str) {
        assert_eq!(self.engine().quarantined_tables(), [], "{when}");
        if !self.shows_whole_batches() {
            return;
        }
        self.check_columns().unwrap();
        let found = self.read().unwrap();
        self.model.settle(&found, after_crash).unwrap_or_else(|difference| panic!("{when}: {difference}"));
    }

    fn directory_of(&self, table: &Table) -> PathBuf {
        Path::new("/node/data").join(KEYSPACE).join(format!("{}-{}", table.name, table.id.0.simple()))
    }

    /// The content of a file; `None` if there is none.
    fn content(&self, path: &Path) -> Option<Vec<u8>> {
        if !self.disk.exists(path).unwrap() {
            return None;
        }
        let file = self.disk.open(path, OpenOptions::read()).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        Some(bytes)
    }

    fn put(&self, path: &Path, bytes: &[u8]) {
        let file = self.disk.open(path, OpenOptions::write_or_create()).unwrap();
        file.set_len(0).unwrap();
        file.write_at(bytes, 0).unwrap();
        file.sync_data().unwrap();
        self.disk.sync_dir(path.parent().unwrap()).unwrap();
    }

    /// A component of an SSTable of the table, which is flushed first.
    fn some_component(&mut self, table: &Table) -> Option<PathBuf> {
        let directory = self.directory_of(table);
        self.engine().flush(table).unwrap();
        if !self.disk.exists(&directory).unwrap() {
            return None;
        }
        let entries = self.disk.list(&directory).unwrap();
        let components: Vec<_> =
            entries.iter().filter(|entry| Descriptor::parse_file_name(&entry.name).is_some()).collect();
        if components.is_empty() {
            return None;
        }
        Some(directory.join(&components[self.choices.below(components.len() as u64) as usize].name))
    }

    /// Damages a file where it is, so that open readers see it, or puts a damaged one in its place.
    fn damage(&mut self, path: PathBuf, may_be_removed: bool) -> Damaged {
        let before = self.content(&path).unwrap();
        let (mut bytes, length) = (before.clone(), before.len());
        let at = if length == 0 { 0 } else { self.choices.below(length as u64) as usize };
        let kind = self.choices.below(6);
        let is_removed = kind == 0 && may_be_removed;
        match kind {
            1 => bytes.truncate(at),
            2 => bytes[at..].fill(0),
            _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << self.choices.below(8)),
        }
        if is_removed || self.choices.one_in(2) {
            self.disk.remove_file(&path).unwrap();
            self.disk.sync_dir(path.parent().unwrap()).unwrap();
        }
        if !is_removed {
            self.put(&path, &bytes);
        }
        Damaged { path, before, after: (!is_removed).then_some(bytes) }
    }

    /// Leaves files that belong to nothing: a lone Data.db, an unfinished side file, and one of no known kind.
    fn leave_something(&mut self, table: &Table) {
        let directory = self.directory_of(table);
        let alone = format!("da-{}-bti-Data.db", SSTableId::from_uuid(Uuid::from_u128(1 << 76 | 1 << 63)));
        assert!(Descriptor::parse_file_name(&alone).is_some(), "{alone}");
        let unfinished = Path::new(SIDE_FILES).join(format!("{}-9.records.new", table.id.0.simple()));
        self.disk.create_dir_all(Path::new(SIDE_FILES)).unwrap();
        for path in [directory.join(alone), unfinished, directory.join("note.tmp")] {
            self.put(&path, b"left over");
        }
    }

    /// Damages one of the table's side files that is sound. One that is gone leaves no trace, so none is removed.
    fn damage_side_file(&mut self, table: &Table, damaged: &[Damaged]) -> Option<Damaged> {
        let quarantined = self.engine().quarantined_tables();
        let side_files = &quarantined.iter().find(|it| *it.table == *table.name)?.side_files;
        let sound = side_files.iter().find(|path| damaged.iter().all(|file| file.path != **path))?;
        Some(self.damage(sound.clone(), false))
    }

    fn steps_with_damage(&mut self, table: &Table, damaged: &[Damaged]) {
        for _ in 0..self.choices.below(12) {
            if self.model.refused() >= REFUSED_MAX {
                return;
            }
            self.step_beside_damage();
            if self.choices.one_in(4) {
                self.check_with_damage(table, damaged);
            }
        }
    }

    /// A kill, a power cut or a clean stop, and a start. All that was acknowledged is durable before it.
    fn restart_with_damage(&mut self, damaged: &[Damaged]) {
        self.make_durable();
        match self.choices.below(3) {
            0 => self.die(),
            1 => self.crash(),
            _ => {
                // It fails where a table cannot be flushed.
                let _ = self.engine().shutdown();
                self.kill();
            }
        }
        if self.choices.one_in(4)
            && let Err(error) = self.open()
        {
            let reported = error.to_string();
            assert!(is_named(&reported, damaged), "a start that is refused names the file: {reported}");
        }
        self.kill();
        self.opens_damaged = true;
        self.open().unwrap_or_else(|error| panic!("a damaged table stops a start: {error}"));
        self.opens_damaged = false;
    }

    /// Checks what reads show: of the damaged table all of it, or the reason; of the others what they hold.
    fn check_with_damage(&self, damaged_table: &Table, damaged: &[Damaged]) {
        let engine = self.engine();
        let (mut found, mut unread) = (State::new(), None);
        for table in tables_of(&engine) {
            match read_table(&engine, &table) {
                Ok(state) => _ = found.insert(table.name.to_string(), state),
                Err(error) => {
                    let reported = error.to_string();
                    assert_eq!(table.id, damaged_table.id, "another table is hit: {reported}");
                    assert!(
                        is_named(&reported, damaged) && reported.contains(&*table.name),
                        "table and file are named: {reported}"
                    );
                    unread = Some(table.name.to_string());
                }
            }
        }
        for quarantined in engine.quarantined_tables() {
            assert_eq!(quarantined.table, *damaged_table.name, "another table: {}", quarantined.reason);
        }
        if self.shows_whole_batches() {
            let checked = self.model.check_all_but(&found, unread.as_deref());
            checked.unwrap_or_else(|difference| panic!("with damage: {difference}"));
        }
    }

    /// A repair while the file is still damaged. It fails, names the file and changes nothing; or nothing needs what is
    /// damaged.
    fn repair_too_early(&mut self, table: &Table, damaged: &[Damaged]) {
        let is_quarantined = !self.engine().quarantined_tables().is_empty();
        if let (true, Err(error)) = (is_quarantined, self.engine().repair_table(KEYSPACE, &table.name)) {
            let reported = error.to_string();
            assert!(is_named(&reported, damaged), "a repair that fails names the file: {reported}");
        }
        self.check_with_damage(table, damaged);
    }

    /// Puts back the files that still are as the damage left them, and repairs the table if it is quarantined.
    fn put_back(&mut self, table: &Table, damaged: &[Damaged]) {
        for file in damaged {
            let name = file.path.file_name().unwrap();
            let is_left = |path: &Path| file.after.is_some() && self.content(path) == file.after;
            let copies = self.snapshots().map(|directory| directory.join(name)).filter(|path| is_left(path));
            copies.for_each(|path| self.put(&path, &file.before));
            if is_left(&file.path) || file.after.is_none() && self.is_needed(&file.path) {
                self.put(&file.path, &file.before);
            }
        }
        if self.engine().quarantined_tables().iter().any(|it| *it.table == *table.name) {
            self.engine().repair_table(KEYSPACE, &table.name).unwrap_or_else(|error| panic!("a repair: {error}"));
        }
    }

    /// Whether other components of a removed one's SSTable are there.
    fn is_needed(&self, path: &Path) -> bool {
        let (directory, sstable) = (path.parent().unwrap(), sstable_of(path));
        self.disk.exists(directory).unwrap()
            && self.disk.list(directory).unwrap().iter().any(|entry| entry.name.starts_with(&sstable))
    }
}

/// `da-<id>-bti` of a component, and the table of a side file.
fn sstable_of(path: &Path) -> String {
    let name = path.file_name().unwrap().to_string_lossy();
    name.rsplit_once('-').map_or(name.to_string(), |(sstable, _)| sstable.to_owned())
}

/// Whether an error names one of the files, or another component of its SSTable: damage of one may show in another.
fn is_named(reported: &str, damaged: &[Damaged]) -> bool {
    damaged.iter().any(|file| reported.contains(&sstable_of(&file.path)))
}
