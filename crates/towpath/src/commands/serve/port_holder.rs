//! Which process listens on a port, as Linux tells it in `/proc`.
//!
//! `/proc/net/tcp` has the inode of every socket; among the open files of the processes that we may
//! look into, one is that inode. Best effort: of other users' processes we learn nothing.

use std::fs;

/// A listening socket, in the fourth column.
const LISTENING: &str = "0A";
/// Most processes that are looked into.
const PROCESSES_MAX: usize = 20_000;

/// The process that listens on `port`: its command and its id.
pub(super) fn holder_of(port: u16) -> Option<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    let inodes: Vec<String> =
        tables.iter().flatten().flat_map(|table| listeners(table, port)).collect();
    if inodes.is_empty() {
        return None;
    }
    let wanted: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let processes = fs::read_dir("/proc").ok()?.flatten().take(PROCESSES_MAX);
    processes.into_iter().find_map(|process| {
        let id: u32 = process.file_name().to_str()?.parse().ok()?;
        let files = fs::read_dir(process.path().join("fd")).ok()?;
        let holds = files.flatten().any(|file| {
            fs::read_link(file.path()).is_ok_and(|target| {
                wanted.iter().any(|wanted| target.as_os_str() == wanted.as_str())
            })
        });
        holds.then(|| {
            let command = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            format!("{} (process {id})", command.trim())
        })
    })
}

/// Inodes of the sockets that listen on `port`.
fn listeners(table: &str, port: u16) -> Vec<String> {
    let suffix = format!(":{port:04X}");
    let inode = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let is_it = columns.get(1)?.ends_with(&suffix) && *columns.get(3)? == LISTENING;
        is_it.then(|| columns.get(9).map(|inode| (*inode).to_owned()))?
    };
    table.lines().skip(1).filter_map(inode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_find_ourselves() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let holder = holder_of(port).unwrap();
        assert!(holder.contains(&format!("(process {})", std::process::id())), "{holder}");
        drop(listener);
        assert_eq!(holder_of(port), None);
    }

    #[test]
    fn only_listening_sockets_of_the_port_count() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:2384 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1\n\
            1: 0100007F:2384 0100007F:D431 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1\n\
            2: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4713 1\n";
        assert_eq!(listeners(table, 9092), ["4711"]);
        assert_eq!(listeners(table, 1), Vec::<String>::new());
        assert_eq!(listeners("", 9092), Vec::<String>::new());
    }
}
