//! The expected content of the tables: a list of events, of which some may or may not have happened.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

/// A row's values by column; the key's second part is `None` for the static row.
pub type Rows = BTreeMap<(i32, Option<i32>), BTreeMap<String, String>>;

/// The expected state of a table, or the one that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableState {
    pub id: Uuid,
    pub columns: BTreeSet<String>,
    pub rows: Rows,
}

/// All tables by name.
pub type State = BTreeMap<String, TableState>;

/// A change to one partition.
#[derive(Clone, Debug)]
pub enum Edit {
    Rows(Vec<(i32, Vec<(String, String)>)>),
    Static(String),
    DeleteRow(i32),
    /// Both ends included.
    DeleteRange(i32, i32),
    DeletePartition,
}

impl Edit {
    /// The values that it writes.
    pub fn values(&self) -> Vec<&String> {
        match self {
            Edit::Rows(rows) => rows.iter().flat_map(|(_, values)| values.iter().map(|(_, value)| value)).collect(),
            Edit::Static(value) => vec![value],
            Edit::DeleteRow(_) | Edit::DeleteRange(..) | Edit::DeletePartition => Vec::new(),
        }
    }
}

/// An edit and its partition.
#[derive(Clone, Debug)]
pub struct Update {
    pub table: Uuid,
    pub key: i32,
    pub edit: Edit,
}

#[derive(Clone, Debug)]
pub enum Change {
    /// A mutation. Timestamps grow from event to event, so that the later one wins.
    Write(Vec<Update>),
    Truncate(Uuid),
    /// Into a table that was just emptied.
    Import(Uuid, Rows),
    Create(String, Uuid, BTreeSet<String>),
    Drop(String),
    /// A change of options that does not affect reads.
    SetOptions,
    AddColumn(Uuid, String),
    DropColumn(Uuid, String),
}

/// How certain it is that a change survives a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    Durable,
    /// Acknowledged before the log was synced: if it is lost, later changes are lost too.
    Acknowledged,
    /// Answered with an error.
    Refused,
}

#[derive(Clone, Debug)]
pub struct Event {
    pub change: Change,
    pub certainty: Certainty,
}

/// The history so far.
#[derive(Clone, Default)]
pub struct Model {
    pub events: Vec<Event>,
}

impl Model {
    pub fn note(&mut self, change: Change, certainty: Certainty) {
        self.events.push(Event { change, certainty });
    }

    /// The log was synced, so acknowledged changes are durable.
    pub fn synced(&mut self) {
        for event in &mut self.events {
            if event.certainty == Certainty::Acknowledged {
                event.certainty = Certainty::Durable;
            }
        }
    }

    pub fn refused(&self) -> usize {
        self.events.iter().filter(|event| event.certainty == Certainty::Refused).count()
    }

    /// The state that reads see before a crash: all acknowledged changes.
    pub fn acknowledged(&self) -> State {
        state_of(self.events.iter().filter(|event| event.certainty != Certainty::Refused))
    }

    /// Checks that the found state is the expected one, except for the last change in the log, which may be missing in
    /// any of its tables. Rows that a truncation or a drop deleted must not return because of that.
    pub fn check_but_for_the_last(&self, found: &State) -> Result<(), String> {
        let is_logged = |event: &Event| !matches!(event.change, Change::Import(..));
        let Some(last) = self.events.iter().rposition(is_logged) else { return Ok(()) };
        let mut model = self.clone();
        let doubtful = |change| Event { change, certainty: Certainty::Refused };
        let parts: Vec<Event> = match model.events[last].change.clone() {
            Change::Truncate(id) => return self.check_without(found, |_, table| table.id == id),
            Change::Drop(dropped) => return self.check_without(found, |name, _| name == dropped),
            Change::Write(updates) => updates.into_iter().map(|update| doubtful(Change::Write(vec![update]))).collect(),
            change => vec![doubtful(change)],
        };
        model.events.splice(last..=last, parts);
        model.settle(found, true)
    }

    /// Checks the content of all tables but one, before a crash: it is what some uncertain events explain.
    pub fn check_all_but(&self, found: &State, left_out: Option<&str>) -> Result<(), String> {
        let is_explained = self.explaining(found, false, left_out).is_some();
        if is_explained { Ok(()) } else { Err(self.unexplained(found)) }
    }

    /// Checks the content of all other tables.
    fn check_without(&self, found: &State, is_left_out: impl Fn(&str, &TableState) -> bool) -> Result<(), String> {
        let rest = |mut state: State| {
            state.retain(|name, table| !is_left_out(name, table));
            state
        };
        let (expected, found) = (rest(self.acknowledged()), rest(found.clone()));
        if expected == found { Ok(()) } else { Err(difference(&expected, &found)) }
    }

    /// The durable writes that lack a value in one of the existing tables.
    pub fn lost_writes(&self, found: &State) -> BTreeSet<usize> {
        let writes = self.events.iter().enumerate().filter(|(_, event)| event.certainty == Certainty::Durable);
        let values = writes.filter_map(|(index, event)| match &event.change {
            Change::Write(updates) => Some((index, updates)),
            _ => None,
        });
        let writer_of: BTreeMap<&String, usize> = values
            .flat_map(|(index, updates)| {
                updates.iter().flat_map(|update| update.edit.values()).map(move |v| (v, index))
            })
            .collect();
        let mut lost = BTreeSet::new();
        for (name, expected) in &self.acknowledged() {
            let Some(found) = found.get(name).filter(|found| found.id == expected.id) else { continue };
            for (key, row) in &expected.rows {
                let is_there = |column, value| found.rows.get(key).and_then(|row| row.get(column)) == Some(value);
                let gone = row.iter().filter(|(column, value)| {
                    let is_shown = found.columns.contains(*column) || *column == "s";
                    is_shown && !is_there(*column, *value)
                });
                lost.extend(gone.filter_map(|(_, value)| writer_of.get(value)));
            }
        }
        lost
    }

    /// Whether an event is a write with values of a column that its table should have and lacks.
    pub fn needs_lost_column(&self, index: usize, found: &State) -> bool {
        let Change::Write(updates) = &self.events[index].change else { return false };
        let expected = self.acknowledged();
        let lacks = |id: Uuid, column: &str| {
            let of_id = |state: &State| state.values().find(|table| table.id == id).map(|table| table.columns.clone());
            of_id(&expected).is_some_and(|columns| columns.contains(column))
                && of_id(found).is_some_and(|columns| !columns.contains(column))
        };
        updates.iter().any(|update| match &update.edit {
            Edit::Rows(rows) => {
                rows.iter().flat_map(|(_, values)| values).any(|(column, _)| lacks(update.table, column))
            }
            _ => false,
        })
    }

    /// An event, shortened to what fits a line or two.
    pub fn describe(&self, index: usize) -> String {
        let text: String = format!("{:?}", self.events[index].change).chars().take(300).collect();
        format!("event {index} of {}: {text}", self.events.len())
    }

    /// Finds the uncertain events that explain the state after a crash, and treats them as certain from now on.
    pub fn settle(&mut self, found: &State, after_crash: bool) -> Result<(), String> {
        let Some(events) = self.explaining(found, after_crash, None) else { return Err(self.unexplained(found)) };
        if after_crash {
            self.events = events.into_iter().map(|index| self.events[index].clone()).collect();
            self.events.iter_mut().for_each(|event| event.certainty = Certainty::Durable);
        }
        Ok(())
    }

    /// The events that explain a state in which a table may be left out.
    fn explaining(&self, found: &State, after_crash: bool, left_out: Option<&str>) -> Option<Vec<usize>> {
        let index_of = |certainty| {
            let events = self.events.iter().enumerate();
            events.filter(move |(_, event)| event.certainty == certainty).map(|(i, _)| i).collect::<Vec<_>>()
        };
        let (acknowledged, refused) = (index_of(Certainty::Acknowledged), index_of(Certainty::Refused));
        assert!(refused.len() < 12, "a history with too many refused changes");
        let shortest = if after_crash { 0 } else { acknowledged.len() };
        for kept in (shortest..=acknowledged.len()).rev() {
            for subset in 0..1u32 << refused.len() {
                let gone = |index: &usize| {
                    acknowledged[kept..].contains(index)
                        || refused.iter().position(|refused| refused == index).is_some_and(|bit| subset >> bit & 1 == 0)
                };
                let there = |index: &usize| !gone(index);
                let events: Vec<usize> = (0..self.events.len()).filter(there).collect();
                let mut state = state_of(events.iter().map(|index| &self.events[*index]));
                left_out.iter().for_each(|name| _ = state.remove(*name));
                if state == *found {
                    return Some(events);
                }
            }
        }
        None
    }

    fn unexplained(&self, found: &State) -> String {
        let uncertain: Vec<_> = self.events.iter().filter(|event| event.certainty != Certainty::Durable).collect();
        let durable = state_of(self.events.iter().filter(|event| event.certainty == Certainty::Durable));
        format!("{}uncertain: {uncertain:?}", difference(&durable, found))
    }
}

/// Describes where two states differ.
pub fn difference(expected: &State, found: &State) -> String {
    let mut text = String::new();
    let names: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
    for name in names {
        match (expected.get(name), found.get(name)) {
            (Some(expected), Some(found)) if expected.id == found.id && expected.columns == found.columns => {
                let keys: BTreeSet<_> = expected.rows.keys().chain(found.rows.keys()).collect();
                for key in keys.into_iter().filter(|key| expected.rows.get(key) != found.rows.get(key)) {
                    text += &format!(
                        "{name} {key:?}: expected {:?}, found {:?}\n",
                        expected.rows.get(key).map(short),
                        found.rows.get(key).map(short)
                    );
                }
            }
            (expected, found) => {
                let head = |table: &TableState| (table.id, table.columns.clone(), table.rows.len());
                text += &format!("{name}: expected {:?}, found {:?}\n", expected.map(head), found.map(head));
            }
        }
    }
    text
}

fn short(values: &BTreeMap<String, String>) -> BTreeMap<&str, &str> {
    values.iter().map(|(column, value)| (column.as_str(), &value[..value.len().min(12)])).collect()
}

fn state_of<'e>(events: impl Iterator<Item = &'e Event>) -> State {
    let mut state = State::new();
    events.for_each(|event| apply(&mut state, &event.change));
    state
}

fn apply(state: &mut State, change: &Change) {
    match change {
        Change::Write(updates) => updates.iter().for_each(|update| write(state, update)),
        Change::Truncate(id) => {
            of_id(state, *id).into_iter().for_each(|table| table.rows.clear());
        }
        Change::Import(id, rows) => {
            of_id(state, *id).into_iter().for_each(|table| table.rows.clone_from(rows));
        }
        Change::Create(name, id, columns) => {
            state.insert(name.clone(), TableState { id: *id, columns: columns.clone(), rows: Rows::new() });
        }
        Change::Drop(name) => {
            state.remove(name);
        }
        Change::SetOptions => {}
        Change::AddColumn(id, column) => {
            of_id(state, *id).into_iter().for_each(|table| {
                table.columns.insert(column.clone());
            });
        }
        Change::DropColumn(id, column) => {
            of_id(state, *id).into_iter().for_each(|table| {
                table.columns.remove(column);
                table.rows.values_mut().for_each(|row| {
                    row.remove(column);
                });
            });
        }
    }
}

fn of_id(state: &mut State, id: Uuid) -> Option<&mut TableState> {
    state.values_mut().find(|table| table.id == id)
}

fn write(state: &mut State, update: &Update) {
    let Some(table) = of_id(state, update.table) else { return };
    let key = update.key;
    match &update.edit {
        Edit::Rows(rows) => {
            for (row, values) in rows {
                table.rows.entry((key, Some(*row))).or_default().extend(values.iter().cloned());
            }
        }
        Edit::Static(value) => {
            table.rows.insert((key, None), BTreeMap::from([("s".to_owned(), value.clone())]));
        }
        Edit::DeleteRow(row) => {
            table.rows.remove(&(key, Some(*row)));
        }
        Edit::DeleteRange(from, to) => {
            table.rows.retain(|(k, row), _| *k != key || row.is_none_or(|row| row < *from || row > *to));
        }
        Edit::DeletePartition => table.rows.retain(|(k, _), _| *k != key),
    }
}

/// The names of the tables of the history.
pub fn table_name(slot: u64) -> String {
    format!("t{slot}")
}

/// A text that no other value shares.
pub fn value_of(number: i64, length: usize) -> String {
    let mut text = format!("{number}:");
    text.extend(
        (0..length).map(|i| char::from(b'a' + (((number as usize).wrapping_mul(31).wrapping_add(i * i)) % 26) as u8)),
    );
    text
}
