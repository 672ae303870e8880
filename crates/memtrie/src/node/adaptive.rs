//! The adaptive layout: nodes that grow up to a flat one, and leaves that contain the tail of their key.

pub(crate) mod check;
pub(crate) mod edit;
pub(crate) mod node;
mod remove;

pub(crate) use node::units;
