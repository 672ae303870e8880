//! Errors for clients without the directories of this node.

/// The message of a failure of this node with each absolute path cut to the file's name. The node's log has all of it.
pub(crate) fn without_directories(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    for word in message.split_inclusive(|c: char| c.is_whitespace()) {
        // Quotes and brackets may stand before a path.
        let start = word.find(|c: char| c == '/' || c.is_alphanumeric()).unwrap_or(word.len());
        let (before, path) = word.split_at(start);
        let name = match path.strip_prefix('/').filter(|rest| rest.contains('/')) {
            Some(rest) => rest.rsplit_once('/').map_or(rest, |(_, name)| name),
            None => path,
        };
        out.push_str(before);
        out.push_str(name);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::without_directories;

    #[test]
    fn absolute_paths_are_cut_to_names() {
        for (message, shown) in [
            ("", ""),
            ("no paths 1/2 here", "no paths 1/2 here"),
            ("/var/lib/data/ks/t-1/da-1-bti-Data.db: damaged", "da-1-bti-Data.db: damaged"),
            ("cannot open (/srv/x/y.db): no\n '/a/b'", "cannot open (y.db): no\n 'b'"),
            ("at / and /etc", "at / and /etc"),
        ] {
            assert_eq!(without_directories(message), shown);
        }
    }
}
