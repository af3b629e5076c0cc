//! Which value of a property is in force, and where it comes from.
//!
//!   topic ▸ this broker, altered ▸ all brokers, altered ▸ this broker's operator ▸ default
//!
//! The broker's levels are looked up under each of the property's synonyms before the next level's
//! turn comes to the next synonym: `log.retention.ms` anywhere beats `log.retention.hours`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use towpath_model::BrokerId;
use towpath_model::properties::{self, Change, Kind, Property, TopicConfig, Unit};

use crate::image::Image;
use crate::queue::counts_for_queues;
use crate::refusal::Refusal;
use crate::request::{Resource, ResourceKind};
use crate::topic::Topic;

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConfigSource {
    /// Set for the topic.
    Topic,
    /// Altered for this broker.
    Broker,
    /// Altered for all brokers.
    AllBrokers,
    /// Written by this broker's operator before it started.
    Static,
    /// Nobody set it.
    Default,
    /// Set for the group.
    Group,
}

impl ConfigSource {
    /// Its number in DescribeConfigs' `ConfigSource`.
    #[must_use]
    pub fn wire_id(self) -> i8 {
        match self {
            ConfigSource::Topic => 1,
            ConfigSource::Broker => 2,
            ConfigSource::AllBrokers => 3,
            ConfigSource::Static => 4,
            ConfigSource::Default => 5,
            ConfigSource::Group => 8,
        }
    }
}

/// A value that would count if those before it were gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigSynonym {
    /// The property, by the name under which it is set there.
    pub name: &'static str,
    /// Its value there, in that property's unit.
    pub value: String,
    /// Where that is.
    pub source: ConfigSource,
}

/// A property of a resource as DescribeConfigs shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigEntry {
    /// The property; its name, kind and documentation are there.
    pub property: &'static Property,
    /// The value in force, or `None` where there is none.
    pub value: Option<String>,
    /// Where it comes from.
    pub source: ConfigSource,
    /// Whether it cannot be altered through the protocol.
    pub read_only: bool,
    /// All levels at which a value is set, the one in force first.
    pub synonyms: Vec<ConfigSynonym>,
}

/// A property's value has no NaN and no two spellings here, so equality is total.
impl Eq for ConfigEntry {}

impl ConfigEntry {
    /// The property's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.property.name
    }

    /// The property's type.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.property.kind
    }

    /// What the property does, for people.
    #[must_use]
    pub fn documentation(&self) -> Cow<'static, str> {
        self.property.described()
    }

    /// Whether nobody set it.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.source == ConfigSource::Default
    }

    /// Whether its value is a secret. No property is one yet.
    #[must_use]
    pub fn is_sensitive(&self) -> bool {
        false
    }
}

impl Image {
    /// The configuration in force for a topic on this broker. Costs a look-up.
    #[must_use]
    pub fn effective_config(&self, topic: &Topic) -> TopicConfig {
        if topic.overrides.is_empty() {
            let [one, more] = &self.inherited_configs;
            return if topic.replication_factor() < 2 { one.clone() } else { more.clone() };
        }
        self.own_configs.get(&topic.id).cloned().unwrap_or_else(|| self.resolve_config(topic))
    }

    pub(crate) fn resolve_config(&self, topic: &Topic) -> TopicConfig {
        let mut config = TopicConfig::resolve(|property| self.topic_value(topic, property));
        config.queue.given_up = self.is_given_up(topic.id);
        config
    }

    /// The configuration of a topic with so many replicas that nobody configured.
    pub(crate) fn inherited_config(&self, replicas: usize) -> TopicConfig {
        TopicConfig::resolve(|property| self.inherited_value(property, replicas, false))
    }

    /// The configuration of a resource, by property name.
    pub fn describe(&self, resource: &Resource) -> Result<Vec<ConfigEntry>, Refusal> {
        match resource.kind {
            ResourceKind::Topic => {
                let topic =
                    self.topic(&resource.name).ok_or_else(
                        || match towpath_model::TopicName::new(&resource.name) {
                            Ok(_) => Refusal::UnknownTopic,
                            Err(why) => Refusal::InvalidTopicName(why),
                        },
                    )?;
                Ok(self.describe_topic(topic))
            }
            ResourceKind::Broker if resource.name.is_empty() => Ok(self.describe_all_brokers()),
            ResourceKind::Broker => {
                self.check_broker_id(&resource.name, "Broker", " or empty string")?;
                Ok(self.describe_broker())
            }
            ResourceKind::Group if resource.name.is_empty() => Err(Refusal::NoDefaultGroup),
            ResourceKind::Group => Ok(properties::groups().iter().map(unset_group_entry).collect()),
            ResourceKind::Other(kind) => Err(Refusal::UnknownResourceType(kind)),
        }
    }

    pub(crate) fn describe_topic(&self, topic: &Topic) -> Vec<ConfigEntry> {
        let entry = |property: &'static Property| {
            let mut synonyms = self.broker_synonyms(property);
            let counts = counts_for(topic.replication_factor(), topic.is_queue());
            synonyms.retain(|synonym| counts(property, synonym.source));
            if let Some(value) = topic.overrides.get(property.name) {
                let own = ConfigSynonym {
                    name: property.name,
                    value: value.clone(),
                    source: ConfigSource::Topic,
                };
                synonyms.insert(0, own);
            }
            let source = synonyms.first().map_or(ConfigSource::Default, |first| first.source);
            let value = self.topic_value(topic, property).map(Cow::into_owned);
            let value = value.or(property.default.map(str::to_owned));
            ConfigEntry { property, value, source, read_only: false, synonyms }
        };
        properties::topics().iter().map(entry).collect()
    }

    fn describe_broker(&self) -> Vec<ConfigEntry> {
        let entry = |property: &'static Property| {
            let synonyms = match property.synonyms {
                [] => self.synonyms_of(property, std::slice::from_ref(&property.name)),
                names => self.synonyms_of(property, names),
            };
            let first = synonyms.first();
            let source = first.map_or(ConfigSource::Default, |first| first.source);
            let value = first
                .map(|first| convert(&first.value, first.name, property).into_owned())
                .or_else(|| self.broker_default(property));
            let read_only = property.change == Change::Restart;
            ConfigEntry { property, value, source, read_only, synonyms }
        };
        properties::brokers().iter().map(entry).collect()
    }

    /// What is altered for all brokers, and nothing else.
    fn describe_all_brokers(&self) -> Vec<ConfigEntry> {
        let altered = self.broker_overrides.get(&None).into_iter().flatten();
        let entry = |(name, value): (&String, &String)| {
            let property = properties::broker(name)?;
            let synonym = ConfigSynonym {
                name: property.name,
                value: value.clone(),
                source: ConfigSource::AllBrokers,
            };
            Some(ConfigEntry {
                property,
                value: Some(value.clone()),
                source: ConfigSource::AllBrokers,
                read_only: false,
                synonyms: vec![synonym],
            })
        };
        altered.filter_map(entry).collect()
    }

    /// The value that counts for a topic, unless it is the registered default.
    fn topic_value<'i>(
        &'i self,
        topic: &'i Topic,
        property: &'static Property,
    ) -> Option<Cow<'i, str>> {
        if let Some(value) = topic.overrides.get(property.name) {
            return Some(Cow::Borrowed(value));
        }
        self.inherited_value(property, topic.replication_factor(), topic.is_queue())
    }

    fn inherited_value(
        &self,
        property: &'static Property,
        replicas: usize,
        is_queue: bool,
    ) -> Option<Cow<'_, str>> {
        let counts = counts_for(replicas, is_queue);
        let set = property.synonyms.iter().find_map(|name| {
            let mut levels = self.broker_levels(name);
            let (value, _) = levels.find(|(_, source)| counts(property, *source))?;
            Some(convert(value, name, property))
        });
        set.or_else(|| {
            let is_spread = property.name == "min.insync.replicas" && 2 <= replicas;
            is_spread.then_some(Cow::Borrowed("2"))
        })
    }

    /// The value of a broker's property that is set, under this very name.
    pub(crate) fn broker_value<'i>(&'i self, name: &str) -> Option<(&'i str, ConfigSource)> {
        self.broker_levels(name).next()
    }

    fn broker_levels<'i>(&'i self, name: &str) -> impl Iterator<Item = (&'i str, ConfigSource)> {
        let altered = |broker: Option<BrokerId>| self.broker_overrides.get(&broker);
        [
            (altered(Some(self.me)), ConfigSource::Broker),
            (altered(None), ConfigSource::AllBrokers),
            (Some(&self.statics), ConfigSource::Static),
        ]
        .into_iter()
        .filter_map(move |(level, source)| Some((level?.get(name)?.as_str(), source)))
    }

    fn broker_synonyms(&self, property: &'static Property) -> Vec<ConfigSynonym> {
        self.synonyms_of(property, property.synonyms)
    }

    /// Every level at which a value is set under one of `names`, and the default of each name that
    /// has one. The defaults of the lesser names count for nothing as long as no value is set, so
    /// they stand only below one; Kafka's tools expect it so.
    fn synonyms_of(
        &self,
        property: &'static Property,
        names: &'static [&'static str],
    ) -> Vec<ConfigSynonym> {
        let mut synonyms = Vec::new();
        for name in names.iter().copied() {
            let set = self.broker_levels(name).map(|(value, source)| ConfigSynonym {
                name,
                value: value.to_owned(),
                source,
            });
            synonyms.extend(set);
            let is_first = name == names[0];
            if !is_first && synonyms.is_empty() {
                continue;
            }
            let computed = property.name == "min.insync.replicas";
            let default = properties::broker(name).and_then(|property| property.default);
            if let Some(default) = default.filter(|_| !computed) {
                let value = default.to_owned();
                synonyms.push(ConfigSynonym { name, value, source: ConfigSource::Default });
            }
        }
        synonyms
    }

    /// The value of a broker's property that nobody set.
    fn broker_default(&self, property: &'static Property) -> Option<String> {
        match property.name {
            "default.replication.factor" => {
                Some(self.default_replication_factor(&self.broker_config()).to_string())
            }
            "min.insync.replicas" => {
                let spread = 2.min(self.default_replication_factor(&self.broker_config()));
                Some(spread.to_string())
            }
            _ => property.default.map(str::to_owned),
        }
    }

    pub(crate) fn check_broker_id(
        &self,
        name: &str,
        what: &'static str,
        or_else: &str,
    ) -> Result<BrokerId, Refusal> {
        let id: i32 = name
            .parse()
            .map_err(|_| Refusal::NotABrokerId { what: what.to_owned(), name: name.to_owned() })?;
        if id != self.me.0 {
            let expected = format!("{}{or_else}", self.me);
            return Err(Refusal::OtherBroker { expected, got: id });
        }
        Ok(BrokerId(id))
    }
}

/// Whether a value counts for a topic with so many replicas, a queue or not.
fn counts_for(replicas: usize, is_queue: bool) -> impl Fn(&Property, ConfigSource) -> bool {
    move |property, source| {
        (replicas < 2 || counts_for_replicas(property, source))
            && (!is_queue || counts_for_queues(property.name, source))
    }
}

/// Whether a value counts for topics with several replicas. Leaders, followers and the controller
/// must agree on what decides whether a record can be lost, so what one broker alone was told does
/// not count there.
fn counts_for_replicas(property: &Property, source: ConfigSource) -> bool {
    let is_shared = ["durability", "min.insync.replicas", "unclean.leader.election.enable"];
    let is_own = matches!(source, ConfigSource::Broker | ConfigSource::Static);
    !is_own || !is_shared.contains(&property.name)
}

/// Groups take nothing but defaults so far.
fn unset_group_entry(property: &'static Property) -> ConfigEntry {
    ConfigEntry {
        property,
        value: property.default.map(str::to_owned),
        source: ConfigSource::Default,
        read_only: false,
        synonyms: Vec::new(),
    }
}

/// A value set under a broker property's name in the unit of the property that inherits it.
/// Negative numbers mean "without limit" in both.
fn convert<'v>(value: &'v str, name: &str, property: &Property) -> Cow<'v, str> {
    let unit = properties::broker(name).map_or(Unit::None, |synonym| synonym.unit);
    let factor = match (unit, property.unit) {
        (Unit::Hours, Unit::Milliseconds) => 3_600_000,
        (Unit::Minutes, Unit::Milliseconds) => 60_000,
        (Unit::Hours, Unit::Minutes) => 60,
        _ => return Cow::Borrowed(value),
    };
    match value.trim().parse::<i64>() {
        Ok(number) if 0 <= number => Cow::Owned(number.saturating_mul(factor).to_string()),
        _ => Cow::Borrowed(value),
    }
}
