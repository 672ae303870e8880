//! The answer to a statement.

use protocol::{MetadataForm, ResponseBody};

/// The answer to a statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// The answer itself.
    pub body: ResponseBody,
    /// Warnings for the client.
    pub warnings: Vec<String>,
}

impl Response {
    /// An answer of nothing but warnings.
    pub(crate) fn void(warnings: Vec<String>) -> Response {
        Response { body: ResponseBody::Void, warnings }
    }
}

/// Sets how the columns accompany the rows of an answer, if it has any.
pub(crate) fn set_form(body: &mut ResponseBody, form: impl FnOnce(&protocol::Rows) -> MetadataForm) {
    if let ResponseBody::Rows(rows) = body {
        rows.form = form(rows);
    }
}
