//! What is worth a warning at start: one line each, with what to do.

use std::path::Path;

use rustix::fs::statfs;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// With fewer files than this a broker runs out of them at a few thousand partitions or clients.
const OPEN_FILES_WANTED: u64 = 65_536;
const OPEN_FILES_LOW: u64 = 4_096;

/// Raises the limit of open files as far as the system lets us: a low one is for shells.
pub(super) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(OPEN_FILES_WANTED).max(OPEN_FILES_WANTED);
    let possible = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    if limit.current.is_some_and(|current| current < possible) {
        let raised = Rlimit { current: Some(possible), maximum: limit.maximum };
        // Refused: the warning below names what is left.
        let _ = setrlimit(Resource::Nofile, raised);
    }
    if let Some(current) = getrlimit(Resource::Nofile).current.filter(|now| *now < OPEN_FILES_LOW) {
        tracing::warn!(
            "only {current} files may be open at once; raise it (ulimit -n {OPEN_FILES_WANTED}, \
             LimitNOFILE= in systemd) before there are many partitions or clients"
        );
    }
}

/// Looks at the file system of the data directory. `is_ephemeral`: nobody expects the data to stay.
pub(super) fn check_file_system(data: &Path, is_ephemeral: bool) {
    let Ok(found) = statfs(data) else { return };
    let name = data.display();
    // What Linux calls them in statfs(2); the numbers fit an u32 on every platform.
    match found.f_type as u64 & 0xffff_ffff {
        0x0102_1994 | 0x8584_58f6 if !is_ephemeral => tracing::warn!(
            "{name} is in memory (tmpfs): everything in it is gone when the machine restarts"
        ),
        0x6969 | 0xff53_4d42 | 0xfe53_4d42 | 0x517b => tracing::warn!(
            "{name} is on a network file system, which may lose what it has said is on disk: \
             use a local disk"
        ),
        _ => {}
    }
}
