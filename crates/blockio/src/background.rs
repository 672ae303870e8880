//! Work that is to give way to other work.

/// What a thread in the background adds to its niceness: beside a thread that wants the processor it gets a tenth.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// From now on the calling thread gives way to all threads of ordinary priority that want a processor: for long work that
/// nobody waits for. There is no way back. Without effect where the system has no priorities for single threads.
pub fn give_way() {
    // For Linux every thread is a process here. One that may not lower itself goes on as it is.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(NICENESS);
}
