//! Work that is to give way to other work, and work that others wait for.
//!
//! A thread in the background is nice, and passes its turn now and then ([`Turns`]). Being nice says how much of a processor it gets beside others; but
//! what it is owed of that, others wait for. A merge that slept until its bytes were written, or stood back behind requests, then runs for some tenths of a
//! millisecond while a request waits on the same processor, perhaps with another one idle. Who passes its turn is owed nothing (Linux 6.18).
//!
//! Unsafe code here is one system call that rustix does not know. What makes it sound:
//!
//! 1. `sched_setattr(2)` only reads `size` bytes behind the pointer, and `SchedAttr` is that structure in its first version, of 48
//!    bytes, without padding; it lives until the call returns.

use std::time::{Duration, Instant};

/// What a thread in the background adds to its niceness: beside a thread that wants the processor it gets a tenth.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// The slice of processor time that such a thread asks for, the shortest that Linux grants (since 6.12). The slice of a running thread is protected, and who passes
/// its turn stands back until others had what a slice of its own comes to, by how nice it is: here 0.1 ms and 1 ms. With long slices it would be
/// owed much whenever it slept, which others then wait for.
#[cfg(target_os = "linux")]
const SLICE_NANOS: u64 = 100_000;

/// The slice of a thread that is to have a processor when it wakes up: shorter than what a thread has that asked for nothing, and long
/// enough for dozens of requests.
#[cfg(target_os = "linux")]
const PROMPT_SLICE_NANOS: u64 = 500_000;

/// From now on the calling thread, when it wakes up, need not wait for the slice of another that did not ask for as short ones: for
/// threads that do a little for whoever waits, and sleep again. It gets no more of a processor by that. Without effect where the system
/// knows no slices of threads' own (Linux before 6.12).
pub fn start_promptly() {
    #[cfg(target_os = "linux")]
    if let Ok(nice) = rustix::process::nice(0) {
        let _ = ask_for_slices(nice, PROMPT_SLICE_NANOS);
    }
}

/// From now on the calling thread gives way to all threads of ordinary priority that want a processor: for long work that
/// nobody waits for. There is no way back. Without effect where the system has no priorities for single threads.
pub fn give_way() {
    // For Linux every thread is a process here. One that may not lower itself goes on as it is.
    #[cfg(target_os = "linux")]
    if let Ok(nice) = rustix::process::nice(NICENESS) {
        let _ = ask_for_slices(nice, SLICE_NANOS);
    }
}

/// How often a thread in the background passes its turn.
const TURN: Duration = Duration::from_micros(100);
/// It does so while others leave it at least one part in so many of the time: on a machine that has no idle time it goes on with what it is owed.
const LEAST_SHARE: u32 = 10;
/// What was longer ago counts half.
const REMEMBERED: Duration = Duration::from_secs(1);

/// The turns of a thread that does long work in the background. Whoever waits for its processor need not wait until the kernel has given the thread all
/// that it is owed: it passes its turn now and then. Never for ever: where that leaves it less than a tenth of the time, it does not.
#[derive(Debug)]
pub struct Turns {
    /// When it had its turn last.
    since: Instant,
    worked: Duration,
    /// Until it had its turn again.
    waited: Duration,
}

impl Turns {
    /// Of work that begins now.
    pub fn new() -> Turns {
        Turns { since: Instant::now(), worked: Duration::ZERO, waited: Duration::ZERO }
    }

    /// Passes the turn, if it is time to. To be called often, in microseconds.
    pub fn pass(&mut self) {
        self.pass_at(Instant::now, std::thread::yield_now);
    }

    fn pass_at(&mut self, now: impl Fn() -> Instant, pass: impl FnOnce()) {
        let began = now();
        let worked = began.saturating_duration_since(self.since);
        if worked < TURN {
            return;
        }
        self.worked += worked;
        self.since = began;
        if self.waited <= self.worked * (LEAST_SHARE - 1) {
            pass();
            self.since = now();
            self.waited += self.since.saturating_duration_since(began);
        }
        if self.worked + self.waited > REMEMBERED {
            self.worked /= 2;
            self.waited /= 2;
        }
    }
}

impl Default for Turns {
    fn default() -> Self {
        Turns::new()
    }
}

/// `struct sched_attr` of `sched_setattr(2)`, version 0.
#[cfg(target_os = "linux")]
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size_bytes: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_nanos: u64,
    deadline_nanos: u64,
    period_nanos: u64,
}

/// Kernels that have no slices of threads' own take the call for one that changes nothing.
#[cfg(target_os = "linux")]
fn ask_for_slices(nice: i32, runtime_nanos: u64) -> std::io::Result<()> {
    let attributes = SchedAttr {
        size_bytes: size_of::<SchedAttr>() as u32,
        policy: libc::SCHED_OTHER as u32,
        nice,
        runtime_nanos,
        ..SchedAttr::default()
    };
    // SAFETY: invariant 1. The thread is the calling one (0), and there are no flags.
    let answer = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if answer == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A second of work in steps of `step`, each turn that is passed taking `wait`: how often it was passed, and the share of the time that was work.
    fn shared(step: Duration, wait: Duration) -> (u32, f64) {
        let start = Instant::now();
        let (now, mut passed, mut turns) = (Cell::new(start), 0, Turns::new());
        turns.since = start;
        let mut worked = Duration::ZERO;
        while now.get() - start < Duration::from_secs(1) {
            now.set(now.get() + step);
            worked += step;
            turns.pass_at(
                || now.get(),
                || {
                    passed += 1;
                    now.set(now.get() + wait);
                },
            );
        }
        (passed, worked.as_secs_f64() / (now.get() - start).as_secs_f64())
    }

    #[test]
    fn a_turn_is_passed_every_tenth_of_a_millisecond_while_nobody_wants_the_processor() {
        let (passed, worked) = shared(Duration::from_micros(10), Duration::ZERO);
        assert_eq!((passed, worked), (10_000, 1.0));
        let (passed, _) = shared(Duration::from_millis(1), Duration::ZERO);
        assert_eq!(passed, 1_000, "once for a long step");
    }

    #[test]
    fn turns_are_not_passed_where_that_leaves_less_than_a_tenth_of_the_time() {
        for wait in [2, 9, 40].map(Duration::from_millis) {
            let (passed, worked) = shared(Duration::from_micros(20), wait);
            assert!(passed > 0 && (0.08..0.2).contains(&worked), "{wait:?}: {passed} {worked}");
        }
        let (_, worked) = shared(Duration::from_micros(20), Duration::from_micros(300));
        assert!((0.24..0.26).contains(&worked), "{worked}");
    }

    #[test]
    fn a_thread_in_the_background_is_nicer_and_asks_for_short_slices() {
        assert_eq!(size_of::<SchedAttr>(), 48);
        let thread = std::thread::spawn(|| {
            let before = rustix::process::nice(0).unwrap();
            give_way();
            let nice = rustix::process::nice(0).unwrap();
            assert_eq!(nice, (before + NICENESS).min(19));
            if let Err(error) = ask_for_slices(nice, SLICE_NANOS) {
                assert_has_meaning(&error);
            }
        });
        thread.join().unwrap();
    }

    #[test]
    fn a_thread_that_starts_promptly_is_as_nice_as_before() {
        let thread = std::thread::spawn(|| {
            let before = rustix::process::nice(0).unwrap();
            start_promptly();
            assert_eq!(rustix::process::nice(0).unwrap(), before);
            if let Err(error) = ask_for_slices(before, PROMPT_SLICE_NANOS) {
                assert_has_meaning(&error);
            }
        });
        thread.join().unwrap();
    }

    /// It may be forbidden or unknown here. What must not be is a structure that the kernel cannot make sense of.
    fn assert_has_meaning(error: &std::io::Error) {
        let meaningless = [libc::EINVAL, libc::E2BIG, libc::EFAULT, libc::ESRCH];
        assert!(!error.raw_os_error().is_some_and(|code| meaningless.contains(&code)), "{error}");
    }
}
