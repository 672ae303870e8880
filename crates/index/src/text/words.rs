//! The words of a text, as Cassandra's `StandardAnalyzer` finds them.

use std::collections::HashSet;
use std::sync::OnceLock;

use model::{Analysis, Language};
use rust_stemmers::{Algorithm, Stemmer};
use unicode_normalization::UnicodeNormalization;
use unicode_segmentation::UnicodeSegmentation;

use super::changed;

/// The greatest length of a word, in units of UTF-16. Longer words are left out.
const WORD_UNITS_MAX: usize = 255;

/// Each line has a language and its stop words, separated by tabs. These are the lists of Cassandra, by Jacques Savoy.
const STOP_WORDS: &str = include_str!("stop_words.txt");

/// The words.
pub(super) fn of(text: &str) -> impl Iterator<Item = &str> {
    text.unicode_words().filter(|word| word.len() <= WORD_UNITS_MAX || word.encode_utf16().count() <= WORD_UNITS_MAX)
}

/// The term of a word; `None` if the word is left out. First the case is changed, then stop words are left out, then
/// the stem is taken.
pub(super) fn term(analysis: Analysis, word: &str) -> Option<String> {
    let case = Analysis { case: analysis.case, ..Analysis::NONE };
    let term = changed(case, word);
    if analysis.stop_words.is_some_and(|language| is_stop_word(language, &term)) {
        return None;
    }
    let term = match analysis.stems.and_then(stemmer) {
        Some(stemmer) => stemmer.stem(&term).into_owned(),
        None => term.into_owned(),
    };
    Some(if analysis.normalizes { term.nfc().collect() } else { term })
}

fn is_stop_word(language: Language, word: &str) -> bool {
    static ALL: OnceLock<HashSet<(&str, &str)>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let lines = STOP_WORDS.lines().filter_map(|line| line.split_once('\t'));
        lines.flat_map(|(language, words)| words.split('\t').map(move |word| (language, word))).collect()
    });
    all.contains(&(language.code(), word))
}

/// The stemmer of a language; `None` if Cassandra has none. Cassandra's code of Finnish is `fl`.
fn stemmer(language: Language) -> Option<Stemmer> {
    Some(Stemmer::create(match language.code() {
        "da" => Algorithm::Danish,
        "de" => Algorithm::German,
        "en" => Algorithm::English,
        "es" => Algorithm::Spanish,
        "fl" => Algorithm::Finnish,
        "fr" => Algorithm::French,
        "hu" => Algorithm::Hungarian,
        "it" => Algorithm::Italian,
        "nl" => Algorithm::Dutch,
        "no" => Algorithm::Norwegian,
        "pt" => Algorithm::Portuguese,
        "ro" => Algorithm::Romanian,
        "ru" => Algorithm::Russian,
        "sv" => Algorithm::Swedish,
        "tr" => Algorithm::Turkish,
        _ => return None,
    }))
}
