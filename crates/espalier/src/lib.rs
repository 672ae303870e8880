#![forbid(unsafe_code)]

