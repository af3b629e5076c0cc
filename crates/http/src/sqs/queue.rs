//! A queue as SQS sees it, and what is remembered of queues so that their attributes are not read from
//! texts with every request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use towpath_metadata::{Image, Topic};
use towpath_model::TopicId;
use towpath_model::properties::QueueConfig;
use towpath_sqs::{QueueAttributes, QueueName};

use crate::app::{App, TopicView, partition_count};

use super::attributes::{self, Kept};

/// Queues of which is remembered what their texts say; beyond, all are forgotten and read anew.
const KNOWN_MAX: usize = 10_000;

/// A queue at the moment of a request.
#[derive(Clone)]
pub(super) struct SqsQueue {
    pub(super) topic: Arc<TopicView>,
    pub(super) kept: Arc<Kept>,
    /// From which text of [`attributes::ATTRIBUTES`] that was read.
    pub(super) text: Arc<str>,
}

impl SqsQueue {
    pub(super) fn attributes(&self) -> &QueueAttributes {
        &self.kept.attributes
    }

    pub(super) fn is_fifo(&self) -> bool {
        self.topic.config.queue.fifo
    }

    pub(super) fn name(&self) -> &str {
        self.topic.name.as_str()
    }
}

/// What texts of queues say, as long as they say the same.
#[derive(Debug, Default)]
pub(crate) struct KnownQueues(Mutex<BTreeMap<TopicId, Known>>);

#[derive(Debug)]
struct Known {
    text: Arc<str>,
    config: QueueConfig,
    kept: Arc<Kept>,
}

impl KnownQueues {
    fn kept(&self, id: TopicId, text: &str, config: &QueueConfig) -> (Arc<Kept>, Arc<str>) {
        let mut known = self.0.lock().expect("nothing panics while it is held");
        if let Some(found) = known.get(&id)
            && *found.text == *text
            && found.config == *config
        {
            return (Arc::clone(&found.kept), Arc::clone(&found.text));
        }
        if KNOWN_MAX <= known.len() {
            known.clear();
        }
        let kept = Arc::new(attributes::read(text, config));
        let (text, config) = (Arc::<str>::from(text), config.clone());
        let answer = (Arc::clone(&kept), Arc::clone(&text));
        known.insert(id, Known { text, config, kept });
        answer
    }
}

/// The queue of this name, as this broker knows it.
pub(super) fn find(app: &App, name: &QueueName) -> Option<SqsQueue> {
    let image = app.node.driver().image();
    view(app, &image, image.topic(name.as_str())?)
}

/// A topic as a queue; `None`: it is not worked as one.
fn view(app: &App, image: &Image, topic: &Topic) -> Option<SqsQueue> {
    let config = image.effective_config(topic);
    if !config.queue_enable {
        return None;
    }
    let text = topic.overrides.get(attributes::ATTRIBUTES).map_or("", String::as_str);
    let (kept, text) = app.known_queues.kept(topic.id, text, &config.queue);
    let topic = TopicView {
        name: topic.name.clone(),
        id: topic.id,
        partitions: partition_count(topic),
        config,
    };
    Some(SqsQueue { topic: Arc::new(topic), kept, text })
}

/// The names of queues that SQS can name, in order, from the one after `after` on, which `take` takes; up
/// to `max`, and whether there are more.
pub(super) fn names(
    app: &App,
    prefix: &str,
    after: &str,
    max: usize,
    takes: impl Fn(&QueueConfig) -> bool,
) -> (Vec<String>, bool) {
    let image = app.node.driver().image();
    let first = if after < prefix { prefix } else { after };
    let listed = image
        .topics_from(first)
        .take_while(|topic| topic.name.as_str().starts_with(prefix))
        .filter(|topic| topic.name.as_str() != after && topic.is_queue())
        .filter(|topic| QueueName::new(topic.name.as_str()).is_some())
        .filter(|topic| takes(&image.effective_config(topic).queue));
    let mut names: Vec<String> =
        listed.take(max + 1).map(|topic| topic.name.as_str().to_owned()).collect();
    let is_more = max < names.len();
    names.truncate(max);
    (names, is_more)
}
