//! What several tests need: a broker that is up, commands, and patience.

use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use towpath_process::{BrokerProcess, Finished, Start};

/// How long a command may take, in an unoptimised build on a busy machine.
pub(crate) const COMMAND_PATIENCE: Duration = Duration::from_secs(30);

/// How long a broker may take to stop when asked to. Two seconds are meant and printed; the bound
/// only tells a stop that waits for somebody from a busy machine.
pub(crate) const STOP_MAX: Duration = Duration::from_secs(20);

/// A `dev` broker with a data directory of its own.
pub(crate) fn dev() -> (BrokerProcess, TempDir) {
    let data = TempDir::with_prefix("towpath-process-").unwrap();
    let broker = Start::dev(&data.path().join("data")).ready().unwrap();
    (broker, data)
}

/// A `serve` broker with a data directory of its own and this configuration.
pub(crate) fn serve(config: &str) -> (BrokerProcess, TempDir) {
    let directory = TempDir::with_prefix("towpath-process-").unwrap();
    let file = write(directory.path(), "towpath.toml", config);
    let start = Start::serve(&directory.path().join("data")).arguments(["--config", &file]);
    (start.ready().unwrap(), directory)
}

/// Writes a file and gives back its path.
pub(crate) fn write(directory: &Path, name: &str, content: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, content).unwrap();
    path.to_string_lossy().into_owned()
}

/// Runs a command of the product against a broker.
pub(crate) fn command(broker: &BrokerProcess, command: &str, arguments: &[&str]) -> Finished {
    let server = broker.addresses.kafka.to_string();
    Start::command(command)
        .arguments(arguments)
        .arguments(["--server", &server])
        .run(COMMAND_PATIENCE)
        .unwrap()
}

/// Runs a command that must succeed; gives back what it printed.
pub(crate) fn output_of(broker: &BrokerProcess, name: &str, arguments: &[&str]) -> String {
    let finished = command(broker, name, arguments);
    assert!(finished.status.success(), "towpath {name} {arguments:?}: {finished:#?}");
    finished.stdout
}

/// Stops a broker with SIGTERM, which must succeed in time.
pub(crate) fn stop(broker: BrokerProcess) {
    let (status, took, log) = broker.terminate(2 * STOP_MAX).unwrap();
    assert!(status.success(), "{status}\n{log}");
    println!("it took {took:?} to stop");
    assert!(took < STOP_MAX, "it took {took:?} to stop\n{log}");
}

/// Repeats `look` until it finds something.
pub(crate) fn eventually<T>(patience: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "nothing after {patience:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
