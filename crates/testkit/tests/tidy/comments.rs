//! The width of comments in Python, Java, Go, CQL, TOML and YAML, which have no formatter here. A docstring is a
//! comment, too.

use std::path::{Path, PathBuf};

use crate::{WIDTH_MAX, assert_none, files, read, shown};

/// The languages, by how they write comments.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Language {
    Python,
    TomlOrYaml,
    JavaOrGo,
    Cql,
}

impl Language {
    fn of(path: &Path) -> Self {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("py") => Self::Python,
            Some("toml" | "yaml" | "yml") => Self::TomlOrYaml,
            Some("cql") => Self::Cql,
            _ => Self::JavaOrGo,
        }
    }

    /// The marks of a comment that ends with its line.
    fn line_marks(self) -> &'static [&'static str] {
        match self {
            Self::Python | Self::TomlOrYaml => &["#"],
            Self::JavaOrGo => &["//"],
            Self::Cql => &["--", "//"],
        }
    }

    /// Whether a comment may begin with `/*`.
    fn has_block_comments(self) -> bool {
        matches!(self, Self::JavaOrGo | Self::Cql)
    }
}

/// A text or a comment that has begun: the mark that ends it.
struct Begun {
    end: &'static str,
    is_comment: bool,
}

const TEXTS: [&str; 5] = ["\"\"\"", "'''", "\"", "'", "`"];

#[test]
fn comments_of_other_languages_are_at_most_120_columns_wide() {
    let mut broken = Vec::new();
    // Cassandra's files stay as they are.
    let is_ours = |path: &PathBuf| path.iter().all(|part| part != "from_cassandra");
    for path in files(&["py", "java", "go", "cql", "toml", "yaml", "yml"]).into_iter().filter(is_ours) {
        let wide = wide_comments(&read(&path), Language::of(&path));
        broken.extend(wide.iter().map(|line| format!("{}:{line}", shown(&path))));
    }
    assert_none(broken);
}

#[test]
fn wide_comments_are_found_wherever_they_stand() {
    let wide = "é ".repeat(WIDTH_MAX / 2) + "wide";
    let lines = |language, text: &str| wide_comments(&text.replace('~', &wide), language);
    let documented = "\"\"\"~\n\n~\n\"\"\"\na = 1  # ~\n# ~\nclass A:      # a class\n    '''~'''\n";
    assert_eq!(lines(Language::Python, documented), [1, 3, 5, 6, 8]);
    let quoted = "a = '''\n~ # ~\n'''\nb = \"# ~\"\nf('~', \"\\\"\")  # of wide code\nd = '#'  # ~\n";
    assert_eq!(lines(Language::Python, quoted), [6]);
    let java = "/**\n * ~\n */ a('\"'); // ~\nb(\"// ~\");\nc(`\n// ~`);\n/* ~ */\n";
    assert_eq!(lines(Language::JavaOrGo, java), [2, 3, 7]);
    let cql = "-- ~\nSELECT '--'; // ~\n/*\n~\n*/\nSELECT \"// ~\";\n# ~\n";
    assert_eq!(lines(Language::Cql, cql), [1, 2, 4]);
    assert_eq!(lines(Language::TomlOrYaml, "# ~\na = \"# ~\"\n[b] # ~\n'''\n# ~\n'''\n// ~\n"), [1, 3]);
}

/// The numbers of the lines that a comment makes too wide.
fn wide_comments(text: &str, language: Language) -> Vec<usize> {
    let is_wide = |text: &str| text.chars().count() > WIDTH_MAX;
    let (mut wide, mut begun, mut last) = (Vec::new(), None, ':');
    for (number, line) in text.lines().enumerate() {
        let comment = comment_of(line, language, last == ':', &mut begun);
        let code = line[..comment.unwrap_or(line.len())].trim_end();
        if comment.is_some() && is_wide(line) && !is_wide(code) {
            wide.push(number + 1);
        }
        last = code.chars().next_back().unwrap_or(last);
    }
    wide
}

/// Where the first comment of a line begins. A text with three quotes that begins a line of Python is a docstring if
/// it `may_document`: no code stands before it, or code that ends with a colon.
fn comment_of(line: &str, language: Language, may_document: bool, begun: &mut Option<Begun>) -> Option<usize> {
    let mut first = begun.as_ref().filter(|begun| begun.is_comment).map(|_| 0);
    let mut at = 0;
    while let Some(character) = line[at..].chars().next() {
        let rest = &line[at..];
        let mut step = character.len_utf8();
        if let Some(Begun { end, .. }) = begun {
            if rest.starts_with(*end) {
                step = end.len();
                *begun = None;
            } else if character == '\\' && !["*/", "`"].contains(end) {
                step += rest.chars().nth(1).map_or(0, char::len_utf8);
            }
        } else if language.line_marks().iter().any(|mark| rest.starts_with(mark)) {
            return first.or(Some(at));
        } else if language.has_block_comments() && rest.starts_with("/*") {
            first = first.or(Some(at));
            step = 2;
            *begun = Some(Begun { end: "*/", is_comment: true });
        } else if let Some(end) = TEXTS.into_iter().find(|quotes| rest.starts_with(quotes)) {
            let documents = language == Language::Python && may_document;
            let is_comment = documents && end.len() == 3 && line[..at].trim().is_empty();
            first = first.or(is_comment.then_some(at));
            step = end.len();
            *begun = Some(Begun { end, is_comment });
        }
        at += step;
    }
    // Where it has one quote, a text ends with its line.
    begun.take_if(|begun| ["\"", "'"].contains(&begun.end));
    first
}
