//! Behaviour of the trie against a `BTreeMap`, in both layouts.

#![allow(clippy::duplicate_mod, reason = "every module is included twice, once for each layout")]

/// All tests, once for each layout.
macro_rules! suite {
    ($name:ident, $layout:ident) => {
        #[path = "."]
        mod $name {
            const LAYOUT: memtrie::Layout = memtrie::Layout::$layout;

            #[path = "concurrency.rs"]
            mod concurrency;
            #[path = "cursors.rs"]
            mod cursors;
            #[path = "gets.rs"]
            mod gets;
            #[path = "history.rs"]
            mod history;
            #[path = "intersection.rs"]
            mod intersection;
            #[path = "limits.rs"]
            mod limits;
            #[path = "model.rs"]
            mod model;
            #[path = "node_cursor.rs"]
            mod node_cursor;
            #[path = "recycling.rs"]
            mod recycling;
            #[path = "small_scope.rs"]
            mod small_scope;
            #[path = "spare_pages.rs"]
            mod spare_pages;
            #[path = "together.rs"]
            mod together;
        }
    };
}

suite!(paper, Paper);
suite!(adaptive, Adaptive);
