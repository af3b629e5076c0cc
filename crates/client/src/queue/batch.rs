//! Requests about several things at once: cut into chunks, and each of them tried again alone while its
//! broker cannot just now.

use bytes::Bytes;
use hyper::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Duration, Instant, sleep};

use crate::error::{Error, Result};

use super::client::BATCH_MAX;
use super::http::{Call, HttpCluster, Refusal};

/// Bytes of a request, about; brokers take 16 MiB.
const CHUNK_BYTES: usize = 4 << 20;

/// Where it goes.
pub(super) struct Batch<'b> {
    pub(super) http: &'b HttpCluster,
    pub(super) path: String,
    pub(super) doing: String,
}

/// How things become a body.
pub(super) struct Chunk<'c, E> {
    /// About how many bytes one takes.
    pub(super) size: &'c (dyn Fn(&E) -> usize + Sync),
    pub(super) body: &'c (dyn Fn(&[&E]) -> Value + Sync),
}

#[derive(Deserialize)]
struct Told<T> {
    results: Vec<Entry<T>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Entry<T> {
    Failed { error: Refusal },
    Done(T),
}

impl Batch<'_> {
    /// The results, in the order of `entries`. `may_repeat`: carrying an entry out twice is the same as once.
    ///
    /// # Errors
    /// When nothing at all could be done.
    pub(super) async fn call<E, T: DeserializeOwned>(
        &self,
        entries: &[E],
        chunk: &Chunk<'_, E>,
        may_repeat: bool,
    ) -> Result<Vec<Result<T>>> {
        let mut results: Vec<Option<Result<T>>> = entries.iter().map(|_| None).collect();
        for range in ranges(entries, chunk.size) {
            let told = self.chunk(entries, range.collect(), chunk, may_repeat, &mut results).await;
            if let Err(error) = told {
                if results.iter().all(Option::is_none) {
                    return Err(error);
                }
                // Some are done: the caller has to hear which.
                results.iter_mut().for_each(|result| {
                    result.get_or_insert_with(|| Err(error.clone()));
                });
                break;
            }
        }
        let unanswered = || Err(self.unanswered());
        Ok(results.into_iter().map(|result| result.unwrap_or_else(unanswered)).collect())
    }

    async fn chunk<E, T: DeserializeOwned>(
        &self,
        entries: &[E],
        mut wanted: Vec<usize>,
        chunk: &Chunk<'_, E>,
        may_repeat: bool,
        results: &mut [Option<Result<T>>],
    ) -> Result<()> {
        let config = self.http.config();
        let deadline = Instant::now() + config.retry_timeout;
        for failures in 1.. {
            let some: Vec<&E> = wanted.iter().map(|at| &entries[*at]).collect();
            let call = Call {
                method: Method::POST,
                path: self.path.clone(),
                body: Bytes::from((chunk.body)(&some).to_string()),
                doing: self.doing.clone(),
                wait: Duration::ZERO,
                is_repeatable: may_repeat,
            };
            let told: Told<T> = self.http.values(&call).await?;
            if told.results.len() != wanted.len() {
                return Err(self.unanswered());
            }
            let mut again = Vec::new();
            for (at, entry) in wanted.into_iter().zip(told.results) {
                let result = match entry {
                    Entry::Done(done) => Ok(done),
                    Entry::Failed { error } => Err(error.into_error(&self.doing)),
                };
                if result.as_ref().is_err_and(|error| is_worth_another(error, may_repeat)) {
                    again.push(at);
                }
                results[at] = Some(result);
            }
            let wait = config.retry_backoff.wait(failures);
            if again.is_empty() || deadline <= Instant::now() + wait {
                break;
            }
            wanted = again;
            sleep(wait).await;
        }
        Ok(())
    }

    fn unanswered(&self) -> Error {
        let cause = format!("{}: not every entry was answered", self.doing);
        Error::Malformed { address: self.http.config().addresses.join(","), cause }
    }
}

fn is_worth_another(error: &Error, may_repeat: bool) -> bool {
    match error {
        Error::HttpRefused { status: 504, .. } => may_repeat,
        error => error.is_retriable(),
    }
}

/// As many entries as a request takes, one request after the other.
fn ranges<E>(entries: &[E], size: &dyn Fn(&E) -> usize) -> Vec<std::ops::Range<usize>> {
    let (mut ranges, mut first, mut bytes) = (Vec::new(), 0, 0);
    for (at, entry) in entries.iter().enumerate() {
        let more = size(entry);
        if first < at && (at - first == BATCH_MAX || CHUNK_BYTES < bytes + more) {
            ranges.push(first..at);
            (first, bytes) = (at, 0);
        }
        bytes += more;
    }
    if first < entries.len() {
        ranges.push(first..entries.len());
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_takes_so_many_and_so_much() {
        let sizes = |sizes: &[usize]| ranges(sizes, &|size| *size);
        assert_eq!(sizes(&[]), []);
        assert_eq!(sizes(&[1; 1_001]), [0..500, 500..1_000, 1_000..1_001]);
        assert_eq!(sizes(&[CHUNK_BYTES, 1, CHUNK_BYTES - 1, 2]), [0..1, 1..3, 3..4]);
    }

    #[test]
    fn what_may_have_been_done_is_repeated_only_where_that_is_the_same() {
        let refused = |code: &str| {
            let (code, message) = (code.to_owned(), String::new());
            Refusal { code, message, help: None }.into_error("x")
        };
        assert!(is_worth_another(&refused("UNAVAILABLE"), false));
        assert!(!is_worth_another(&refused("NOT_COMMITTED_IN_TIME"), false));
        assert!(is_worth_another(&refused("NOT_COMMITTED_IN_TIME"), true));
        assert!(!is_worth_another(&refused("RECEIPT_STALE"), true));
    }
}
