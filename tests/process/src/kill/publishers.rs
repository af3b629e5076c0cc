//! Publishers: HTTP callers that repeat a message until they are answered, and sometimes once more.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};

use crate::history::{Fate, Stamp};
use crate::http;
use crate::load::{Load, POSTS};

/// One publisher, until writing ends. The last message is still repeated until it is answered.
pub(super) fn run(load: &Load, http: SocketAddr, seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let writer = load.writers().new_writer();
    let mut earlier: Option<(Value, Stamp)> = None;
    while load.is_writing() {
        let stamp = load.writers().sending(POSTS, writer, None);
        let value = String::from_utf8_lossy(&stamp.to_value(rng.usize(..200))).into_owned();
        // The sequence only has to rise; gaps are legal.
        let body = json!({
            "value": value,
            "producer_id": format!("publisher-{writer}"),
            "sequence": 3 * stamp.sequence,
        });
        publish(load, http, &body, stamp);
        match earlier.take() {
            Some((body, stamp)) if rng.u8(..8) == 0 => publish(load, http, &body, stamp),
            _ => earlier = Some((body, stamp)),
        }
        thread::sleep(Duration::from_millis(rng.u64(..10)));
    }
}

/// Publishes until there is an answer. A repeat must be answered as the first time, which
/// [`crate::history::WriterHistory::told`] checks.
fn publish(load: &Load, http: SocketAddr, body: &Value, stamp: Stamp) {
    let path = format!("/topics/{POSTS}/messages");
    for attempt in 0.. {
        let answer = match http::post(http, &path, body) {
            Ok(answer) if answer.status < 500 => answer,
            // Down, or about to be.
            Ok(_) | Err(_) if attempt < 5_000 => {
                thread::sleep(Duration::from_millis(10));
                continue;
            }
            Ok(answer) => return load.fail(format!("{stamp} is never taken: {answer:?}")),
            Err(error) => return load.fail(format!("{stamp} is never taken: {error:#}")),
        };
        let place = answer.success().and_then(|json| {
            let number = |name: &str| json.get(name).and_then(Value::as_i64);
            number("partition").zip(number("offset")).ok_or_else(|| anyhow::anyhow!("{json}"))
        });
        return match place {
            Ok((partition, offset)) => {
                let partition = i32::try_from(partition).unwrap_or(-1);
                load.writers().told(POSTS, stamp, Fate::Acked { partition, offset });
            }
            Err(error) => load.fail(format!("{stamp} on attempt {attempt}: {error:#}")),
        };
    }
}
