//! Scheduling of threads: background work that yields to other work, and threads that others wait for.
//!
//! Unsafe code here is one system call that rustix does not know. What makes it sound:
//!
//! 1. `sched_setattr(2)` only reads `size` bytes behind the pointer, and `SchedAttr` is that structure in its first
//!    version, of 48 bytes, without padding; it lives until the call returns.

/// The amount that a background thread adds to its niceness. If another thread wants the processor too, the background
/// thread gets a tenth of it.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// The slice of processor time that a background thread requests, the longest that Linux grants. Since 6.12 a thread
/// that wakes up and has a shorter slice preempts it at once. With equal slices the waking thread may have to wait for
/// the next timer tick, up to 4 ms, whatever the niceness, because the running thread's slice is protected.
#[cfg(target_os = "linux")]
const SLICE_NANOS: u64 = 100_000_000;

/// The slice of a thread that should get a processor as soon as it wakes up: shorter than the default slice, and long
/// enough for dozens of requests.
#[cfg(target_os = "linux")]
const PROMPT_SLICE_NANOS: u64 = 500_000;

/// Makes the system choose the slice.
#[cfg(target_os = "linux")]
const ORDINARY_SLICE: u64 = 0;

/// Requests short time slices for the calling thread, so that on wake-up it preempts threads with longer slices. This
/// is for threads that do little work for waiting threads and sleep again. It does not increase their share of the
/// processor. It has no effect where the system has no slices for single threads (Linux before 6.12).
pub fn request_short_slices() {
    #[cfg(target_os = "linux")]
    if let Ok(nice) = rustix::process::nice(0) {
        let _ = ask_for_slices(nice, PROMPT_SLICE_NANOS);
    }
}

/// Requests the system's ordinary slices for the calling thread, and adds to its niceness. This is for long work that a
/// client waits for: threads that called [`request_short_slices`] preempt it, and get a larger share the nicer it is. A
/// new thread inherits the slices of the thread that starts it, so that without this call long work started by a prompt
/// thread would preempt prompt threads.
pub fn add_niceness(niceness: i32) {
    #[cfg(target_os = "linux")]
    if let Ok(nice) = rustix::process::nice(niceness) {
        let _ = ask_for_slices(nice, ORDINARY_SLICE);
    }
}

/// Lowers the priority of the calling thread below all threads of ordinary priority, for long work that no thread waits
/// for. It cannot be undone. It has no effect where the system has no priorities for single threads.
pub fn lower_priority() {
    // Linux treats every thread as a process here. A thread that may not lower its priority continues with the old one.
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

/// Kernels without slices for single threads treat the call as one that changes nothing.
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
            lower_priority();
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
            request_short_slices();
            assert_eq!(rustix::process::nice(0).unwrap(), before);
            if let Err(error) = ask_for_slices(before, PROMPT_SLICE_NANOS) {
                assert_has_meaning(&error);
            }
        });
        thread.join().unwrap();
    }

    #[test]
    fn a_thread_that_starts_later_is_nicer_and_asks_for_ordinary_slices() {
        let thread = std::thread::spawn(|| {
            let before = rustix::process::nice(0).unwrap();
            request_short_slices();
            add_niceness(3);
            let nice = rustix::process::nice(0).unwrap();
            assert_eq!(nice, (before + 3).min(19));
            if let Err(error) = ask_for_slices(nice, ORDINARY_SLICE) {
                assert_has_meaning(&error);
            }
        });
        thread.join().unwrap();
    }

    /// The call may be forbidden or unknown here, but the kernel must never reject the structure itself.
    fn assert_has_meaning(error: &std::io::Error) {
        let meaningless = [libc::EINVAL, libc::E2BIG, libc::EFAULT, libc::ESRCH];
        assert!(!error.raw_os_error().is_some_and(|code| meaningless.contains(&code)), "{error}");
    }
}
