//! Work that is to give way to other work, and work that others wait for.
//!
//! Unsafe code here is one system call that rustix does not know. What makes it sound:
//!
//! 1. `sched_setattr(2)` only reads `size` bytes behind the pointer, and `SchedAttr` is that structure in its first
//!    version, of 48 bytes, without padding; it lives until the call returns.

/// What a thread in the background adds to its niceness: beside a thread that wants the processor it gets a tenth.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// The slice of processor time that such a thread asks for, the longest that Linux grants. Since 6.12 whoever wakes up
/// and asks for a shorter one takes the processor at once. With equal slices it may have to wait for the clock's next
/// tick, up to 4 ms, however nice the other is: the running thread's slice is protected.
#[cfg(target_os = "linux")]
const SLICE_NANOS: u64 = 100_000_000;

/// The slice of a thread that is to have a processor when it wakes up: shorter than what a thread has that asked for
/// nothing, and long enough for dozens of requests.
#[cfg(target_os = "linux")]
const PROMPT_SLICE_NANOS: u64 = 500_000;

/// From now on the calling thread, when it wakes up, need not wait for the slice of another that did not ask for as
/// short ones: for threads that do a little for whoever waits, and sleep again. It gets no more of a processor by that.
/// Without effect where the system knows no slices of threads' own (Linux before 6.12).
pub fn start_promptly() {
    #[cfg(target_os = "linux")]
    if let Ok(nice) = rustix::process::nice(0) {
        let _ = ask_for_slices(nice, PROMPT_SLICE_NANOS);
    }
}

/// From now on the calling thread gives way to all threads of ordinary priority that want a processor: for long work
/// that nobody waits for. There is no way back. Without effect where the system has no priorities for single threads.
pub fn give_way() {
    // For Linux every thread is a process here. One that may not lower itself goes on as it is.
    #[cfg(target_os = "linux")]
    if let Ok(nice) = rustix::process::nice(NICENESS) {
        let _ = ask_for_slices(nice, SLICE_NANOS);
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
    use super::*;

    #[test]
    fn a_thread_in_the_background_is_nicer_and_asks_for_long_slices() {
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
