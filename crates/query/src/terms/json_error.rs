//! Cassandra's errors for a text that is not JSON: the messages of its JSON library.

/// The package of its exceptions.
pub(crate) const JACKSON: &str = "com.fasterxml.jackson";
/// How it names the text in which it found an error.
pub(crate) const SOURCE: &str = "Source: REDACTED (`StreamReadFeature.INCLUDE_SOURCE_IN_LOCATION` disabled)";

/// The text of Cassandra's parser for an unknown word. For other errors it is the text of our parser.
pub(crate) fn unreadable_json(text: &str, error: &serde_json::Error) -> String {
    let start = text.trim_start();
    let word: String = start.chars().take_while(|c| c.is_alphanumeric() || *c == '_' || *c == '$').collect();
    if word.is_empty() || !word.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '$') {
        return format!("{JACKSON}.core.JsonParseException: {error}");
    }
    let column = text.chars().count() - start.chars().count() + word.chars().count() + 1;
    format!(
        "{JACKSON}.core.JsonParseException: Unrecognized token '{word}': was expecting (JSON String, Number, Array, \
         Object or token 'null', 'true' or 'false')\n at [{SOURCE}; line: 1, column: {column}]"
    )
}
