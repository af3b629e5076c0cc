//! ListQueues and ListDeadLetterSourceQueues: names in order, page by page.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use towpath_model::TopicName;
use towpath_model::properties::QueueConfig;
use towpath_sqs::actions::{ListDeadLetterSourceQueues, ListQueues, Page};
use towpath_sqs::refusals::invalid_next_token;
use towpath_sqs::{Answer, Error};

use super::call::Call;

/// In one answer to who does not say how many.
const LISTED_MAX: usize = 1_000;

impl Call<'_> {
    pub(super) async fn list_queues(&self, wanted: ListQueues) -> Result<Answer, Error> {
        self.check_started()?;
        let after = last_of(wanted.next_token.as_deref())?;
        let page = self.page(&wanted.name_prefix, &after, wanted.queues_max, |_| true);
        Ok(Answer::ListQueues(page))
    }

    pub(super) async fn list_source_queues(
        &self,
        wanted: ListDeadLetterSourceQueues,
    ) -> Result<Answer, Error> {
        let queue = self.queue(&wanted.queue).await?;
        let after = last_of(wanted.next_token.as_deref())?;
        let is_source = |config: &QueueConfig| is_source_of(config, &queue.topic.name);
        let page = self.page("", &after, wanted.queues_max, is_source);
        Ok(Answer::ListDeadLetterSourceQueues(page))
    }

    /// Only who says how many there may be is told that there are more.
    fn page(
        &self,
        prefix: &str,
        after: &str,
        max: Option<u32>,
        takes: impl Fn(&QueueConfig) -> bool,
    ) -> Page {
        let limit = max.map_or(LISTED_MAX, |max| usize::try_from(max).unwrap_or(LISTED_MAX));
        let (names, is_more) = self.names(prefix, after, limit, takes);
        let next_token = names
            .last()
            .filter(|_| is_more && max.is_some())
            .map(|last| URL_SAFE_NO_PAD.encode(last));
        Page { queue_urls: names.iter().map(|name| self.url(name)).collect(), next_token }
    }
}

/// Whether a queue sends its dead letters to another one.
pub(super) fn is_source_of(config: &QueueConfig, dead_letter_queue: &TopicName) -> bool {
    config.dead_letter_queue.as_ref() == Some(dead_letter_queue)
        && config.dead_letter_receives.is_some()
}

/// The name of the last queue on the page before; empty: there was none.
fn last_of(token: Option<&str>) -> Result<String, Error> {
    let Some(token) = token else { return Ok(String::new()) };
    let bytes = URL_SAFE_NO_PAD.decode(token).ok();
    let name = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    name.filter(|name| !name.is_empty()).ok_or_else(invalid_next_token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_was_not_given_out_is_refused() {
        assert_eq!(last_of(None).unwrap(), "");
        assert_eq!(last_of(Some(&URL_SAFE_NO_PAD.encode("jobs"))).unwrap(), "jobs");
        for wrong in ["", "%", "//8", "_w"] {
            assert!(last_of(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
