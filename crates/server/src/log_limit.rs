//! A rate limit for log messages that clients can cause at will: a limited number of each kind is logged in a minute.
//!
//! Cassandra's NoSpamLogger does the same. The first message after others were left out says how many there were.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const PERIOD: Duration = Duration::from_secs(60);

/// The messages of one kind that are logged in a minute, unless another number is asked for.
const MESSAGES_MAX: u32 = 20;

/// Limits the messages of one kind.
#[derive(Debug)]
pub struct LogRateLimit {
    messages_max: u32,
    period: Mutex<Period>,
}

#[derive(Debug, Default)]
struct Period {
    began: Option<Instant>,
    logged: u32,
    left_out: u64,
}

/// The number of messages that were left out before one that is logged. It is written after that message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOut(u64);

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            1 => f.write_str(" (one such message before this was left out)"),
            count => write!(f, " ({count} such messages before this were left out)"),
        }
    }
}

impl Default for LogRateLimit {
    fn default() -> Self {
        LogRateLimit::new(MESSAGES_MAX)
    }
}

impl LogRateLimit {
    /// Lets this number of messages pass in a minute.
    pub fn new(messages_max: u32) -> Self {
        LogRateLimit { messages_max, period: Mutex::default() }
    }

    /// Calls `log`, unless enough was logged in this minute.
    pub fn log(&self, log: impl FnOnce(LeftOut)) {
        if let Some(left_out) = self.admit(Instant::now()) {
            log(left_out);
        }
    }

    fn admit(&self, now: Instant) -> Option<LeftOut> {
        let mut period = self.period.lock().unwrap_or_else(PoisonError::into_inner);
        if period.began.is_none_or(|began| now.saturating_duration_since(began) >= PERIOD) {
            (period.began, period.logged) = (Some(now), 0);
        }
        if period.logged >= self.messages_max {
            period.left_out += 1;
            return None;
        }
        period.logged += 1;
        Some(LeftOut(std::mem::take(&mut period.left_out)))
    }
}

/// The limits of the messages that connections log.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// TLS handshakes that fail.
    pub handshakes: LogRateLimit,
    /// Connections that the server closes.
    pub closings: LogRateLimit,
    /// Logins that are refused.
    pub logins: LogRateLimit,
    /// Logins with something to say to the operator.
    pub login_notices: LogRateLimit,
    /// Requests that fail for a fault of the server.
    pub failures: LogRateLimit,
    /// Traces that are not written.
    pub traces: LogRateLimit,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_messages_is_logged_in_part_and_counted() {
        let (limit, now) = (LogRateLimit::new(3), Instant::now());
        let admitted = |at| limit.admit(at).map(|left_out| left_out.to_string());
        let first: Vec<_> = (0..1000).map(|_| admitted(now)).collect();
        assert_eq!(first.iter().filter(|message| message.is_some()).count(), 3);
        assert_eq!(first[..3], [const { Some(String::new()) }; 3]);
        assert_eq!(admitted(now + PERIOD - Duration::from_millis(1)), None);
        let next = admitted(now + PERIOD);
        assert_eq!(next.as_deref(), Some(" (998 such messages before this were left out)"));
        assert_eq!(admitted(now + PERIOD), Some(String::new()));
    }
}
