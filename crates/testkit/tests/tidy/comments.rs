//! The width of comments in Python, Java and Go, whose code has no formatter here. A docstring is a comment, too.

use crate::{WIDTH_MAX, assert_none, files, read, shown};

/// A text or a comment that has begun: the mark that ends it.
struct Begun {
    end: &'static str,
    is_comment: bool,
}

const TEXTS: [&str; 5] = ["\"\"\"", "'''", "\"", "'", "`"];

#[test]
fn comments_of_other_languages_are_at_most_120_columns_wide() {
    let mut broken = Vec::new();
    for path in files(&["py", "java", "go"]) {
        let is_python = path.extension().is_some_and(|ending| ending == "py");
        broken.extend(wide_comments(&read(&path), is_python).iter().map(|line| format!("{}:{line}", shown(&path))));
    }
    assert_none(broken);
}

#[test]
fn wide_comments_are_found_wherever_they_stand() {
    let wide = "é ".repeat(WIDTH_MAX / 2) + "wide";
    let lines = |text: &str, is_python| wide_comments(&text.replace('~', &wide), is_python);
    assert_eq!(
        lines("\"\"\"~\n\n~\n\"\"\"\na = 1  # ~\n# ~\nclass A:      # a class\n    '''~'''\n", true),
        [1, 3, 5, 6, 8]
    );
    assert_eq!(lines("a = '''\n~ # ~\n'''\nb = \"# ~\"\nf('~', \"\\\"\")  # of wide code\nd = '#'  # ~\n", true), [6]);
    assert_eq!(lines("/**\n * ~\n */ a('\"'); // ~\nb(\"// ~\");\nc(`\n// ~`);\n/* ~ */\n", false), [2, 3, 7]);
}

/// The numbers of the lines that a comment makes too wide.
fn wide_comments(text: &str, is_python: bool) -> Vec<usize> {
    let is_wide = |text: &str| text.chars().count() > WIDTH_MAX;
    let (mut wide, mut begun, mut last) = (Vec::new(), None, ':');
    for (number, line) in text.lines().enumerate() {
        let comment = comment_of(line, is_python, last == ':', &mut begun);
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
fn comment_of(line: &str, is_python: bool, may_document: bool, begun: &mut Option<Begun>) -> Option<usize> {
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
        } else if rest.starts_with(if is_python { "#" } else { "//" }) {
            return first.or(Some(at));
        } else if !is_python && rest.starts_with("/*") {
            first = first.or(Some(at));
            step = 2;
            *begun = Some(Begun { end: "*/", is_comment: true });
        } else if let Some(end) = TEXTS.into_iter().find(|quotes| rest.starts_with(quotes)) {
            let is_comment = is_python && may_document && end.len() == 3 && line[..at].trim().is_empty();
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
