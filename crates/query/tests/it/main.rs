//! Behaviour of statements over an engine on a simulated disk.
#![allow(clippy::unwrap_used)]

mod allocations;
mod audit;
mod budget;
mod combinations;
mod conditions;
mod cost;
mod counters;
mod describe;
mod dropped_columns;
mod errors;
mod expiry;
mod few_rows;
mod guardrails;
mod in_memory;
mod indexes;
mod indexes_model;
mod logins;
mod masking;
mod modify;
mod node;
mod numbers;
mod one_row;
mod prepared;
mod prepared_size;
mod query_log;
mod role_changes;
mod roles;
mod schema;
mod select;
mod sent_values;
mod sstable_tasks;
mod steps;
mod survival;
mod timestamps;
mod writes;
