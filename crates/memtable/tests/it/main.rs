//! Behaviour of the memtable.

mod address_space;
mod against_model;
mod behaviour;
mod cells;
mod deleted;
mod kinds;
mod large_rows;
mod readers;
mod resident;
mod resident_purge;
mod wanted_columns;
