//! Behaviour of the memtable.

mod against_model;
mod behaviour;
mod cells;
mod large_rows;
