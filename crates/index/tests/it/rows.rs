//! A table with a column of every kind, and random rows of it.

use std::sync::Arc;

use model::{
    Cell, Clusterings, Liveness, PartitionKey, PartitionUpdate, PartitionUpdateBuilder, RowBuilder, Table,
    TableBuilder, TableId, push_component,
};
use testkit::Random;
use types::CqlType;
use uuid::Uuid;

/// The columns of the table.
pub const COLUMNS: [&str; 7] = ["p1", "p2", "c1", "c2", "s", "v", "w"];

/// A row that was written: partition, clustering, and the values of `s`, `v` and `w`.
pub struct Written {
    pub key: PartitionKey,
    pub clustering: Vec<u8>,
    pub fixed: Option<Vec<u8>>,
    pub number: Option<Vec<u8>>,
    pub text: Option<Vec<u8>>,
}

pub fn table() -> Arc<Table> {
    let table = TableBuilder::new("k", "t", TableId(Uuid::nil()))
        .partition_key("p1", CqlType::Int)
        .partition_key("p2", CqlType::Text)
        .clustering("c1", CqlType::Int, true)
        .clustering("c2", CqlType::Text, false)
        .static_column("s", CqlType::Int)
        .regular("v", CqlType::Int)
        .regular("w", CqlType::Text);
    Arc::new(table.build())
}

pub fn number(random: &mut Random) -> Vec<u8> {
    (random.below(9) as i32 - 4).to_be_bytes().to_vec()
}

/// Short texts with zeros, and long ones that differ only where terms are cut.
pub fn text(random: &mut Random) -> Vec<u8> {
    match random.one_in(6) {
        true => [vec![b'x'; 1020 + random.below(4)], vec![b'a' + random.below(3) as u8]].concat(),
        false => (0..random.below(4)).map(|_| [0, b'a', b'b'][random.below(3)]).collect(),
    }
}

pub fn random_row(random: &mut Random) -> Written {
    let mut key = Vec::new();
    for part in [number(random), text(random)] {
        key.extend_from_slice(&(part.len() as u16).to_be_bytes());
        key.extend_from_slice(&part);
        key.push(0);
    }
    let mut clustering = Vec::new();
    push_component(Some(&number(random)), &mut clustering);
    push_component(Some(&text(random)), &mut clustering);
    let fixed = random.one_in(3).then(|| number(random));
    let number = (!random.one_in(4)).then(|| number(random));
    let text = (!random.one_in(4)).then(|| text(random));
    Written { key: PartitionKey::new(&key), clustering, fixed, number, text }
}

pub fn update(table: &Arc<Table>, row: &Written) -> PartitionUpdate {
    let mut builder = RowBuilder::default();
    let mut blob = Vec::new();
    builder.start(table.regulars(), false);
    builder.liveness(Liveness::at(1));
    for (index, value) in [&row.number, &row.text].into_iter().enumerate() {
        match value {
            Some(value) => builder.cell(index, &Cell::live(1, value)),
            None => builder.cell(index, &Cell::tombstone(1, 1)),
        }
    }
    builder.finish(&mut blob);
    let mut update = PartitionUpdateBuilder::new(table.clone(), row.key.clone());
    update.row(&row.clustering, &blob);
    if let Some(fixed) = &row.fixed {
        builder.start(table.statics(), true);
        builder.cell(0, &Cell::live(1, fixed));
        blob.clear();
        builder.finish(&mut blob);
        update.static_row(&blob);
    }
    update.build()
}

impl Written {
    pub fn value(&self, column: &str) -> Option<Vec<u8>> {
        let part = |place: usize| Some(self.key.parts(2)[place].to_vec());
        let component = |place: usize| Clusterings(&self.clustering).nth(place).flatten().map(<[u8]>::to_vec);
        match column {
            "p1" => part(0),
            "p2" => part(1),
            "c1" => component(0),
            "c2" => component(1),
            "s" => self.fixed.clone(),
            "v" => self.number.clone(),
            _ => self.text.clone(),
        }
    }
}
