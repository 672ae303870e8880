//! The adaptive layout: nodes of growing sizes up to a flat one, and the tail of a key in its leaf.

pub(crate) mod check;
pub(crate) mod edit;
pub(crate) mod node;
mod remove;

pub(crate) use node::units;
