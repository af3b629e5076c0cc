//! Altering configuration, whole (AlterConfigs) or step by step (IncrementalAlterConfigs). Each
//! resource is changed completely or not at all.

use std::collections::{BTreeMap, BTreeSet};

use towpath_model::mutant::{self, Mutant};
use towpath_model::properties::{self, Change, Kind, Property, elements};
use towpath_model::{BrokerId, TopicName};

use crate::image::Image;
use crate::metadata::Decided;
use crate::queue;
use crate::record::{ConfiguredResource, Overrides, Record};
use crate::refusal::Refusal;
use crate::request::{ConfigChange, ConfigOperation, ConfigValues, Reply, Resource, ResourceKind};
use crate::settle::configured_min;
use crate::topic::PartitionState;

impl Image {
    pub(crate) fn replace_configs(
        &self,
        resources: Vec<(Resource, ConfigValues)>,
        validate_only: bool,
    ) -> Decided {
        let replace = |current: &Overrides, values: ConfigValues| {
            let set = values.into_iter().map(|(name, value)| ConfigChange {
                name,
                operation: ConfigOperation::Set,
                value,
            });
            let set: Vec<_> = set.collect();
            let gone = current.keys().filter(|name| set.iter().all(|set| set.name != **name));
            let delete = gone.map(|name| ConfigChange {
                name: name.clone(),
                operation: ConfigOperation::Delete,
                value: None,
            });
            delete.chain(set.iter().cloned()).collect()
        };
        self.change_configs(resources, validate_only, replace)
    }

    pub(crate) fn alter_configs(
        &self,
        resources: Vec<(Resource, Vec<ConfigChange>)>,
        validate_only: bool,
    ) -> Decided {
        self.change_configs(resources, validate_only, |_, changes| changes)
    }

    fn change_configs<Asked>(
        &self,
        resources: Vec<(Resource, Asked)>,
        validate_only: bool,
        changes: impl Fn(&Overrides, Asked) -> Vec<ConfigChange>,
    ) -> Decided {
        let mut times = BTreeMap::<Resource, usize>::new();
        for (resource, _) in &resources {
            *times.entry(resource.clone()).or_default() += 1;
        }
        let mut records = Vec::new();
        let mut results = Vec::with_capacity(resources.len());
        for (resource, asked) in resources {
            let changes = changes(self.overrides_of(&resource), asked);
            let result = if 1 < times[&resource] {
                Err(Refusal::DuplicateResource)
            } else {
                self.change_resource(&resource, changes)
            };
            let result = result.map(|record| records.extend(record));
            results.push((resource, result));
        }
        records.extend(self.not_eligible_any_more(&records));
        if validate_only {
            records.clear();
        }
        (records, Reply::AlteredConfigs(results))
    }

    /// Where a lower `min.insync.replicas` lets the high watermark move again, those who are not in
    /// sync will lack what is committed then: they are not eligible from the same moment on.
    fn not_eligible_any_more(&self, changes: &[Record]) -> Vec<Record> {
        let changed = |resource: &ConfiguredResource| {
            changes.iter().find_map(|record| match record {
                Record::Config { resource: about, overrides } if about == resource => {
                    Some(overrides)
                }
                _ => None,
            })
        };
        if changes.is_empty() {
            return Vec::new();
        }
        let everywhere = changed(&ConfiguredResource::Broker(None));
        let all_brokers = everywhere.or_else(|| self.broker_overrides.get(&None));
        let topics = self.topics().filter_map(|topic| {
            let own = changed(&ConfiguredResource::Topic(topic.id));
            (own.is_some() || everywhere.is_some()).then_some((topic, own))
        });
        let cleared = topics.flat_map(|(topic, own)| {
            let min = configured_min(own.unwrap_or(&topic.overrides), all_brokers);
            let moves = topic.numbered().filter(move |(_, state)| {
                !state.eligible.is_empty()
                    && state.min_in_sync(min) <= state.in_sync.len()
                    && !mutant::is_on(Mutant::EligibleKept)
            });
            moves.map(|(partition, state)| Record::Partition {
                partition,
                state: PartitionState {
                    eligible: Vec::new(),
                    partition_epoch: state.partition_epoch + 1,
                    ..state.clone()
                },
            })
        });
        cleared.collect()
    }

    /// What is set for a resource; nothing, if it is not there or not a resource at all.
    fn overrides_of(&self, resource: &Resource) -> &Overrides {
        static NONE: Overrides = Overrides::new();
        let overrides = match resource.kind {
            ResourceKind::Topic => self.topic(&resource.name).map(|topic| &topic.overrides),
            ResourceKind::Broker if resource.name.is_empty() => self.broker_overrides.get(&None),
            ResourceKind::Broker => resource
                .name
                .parse()
                .ok()
                .and_then(|id| self.broker_overrides.get(&Some(BrokerId(id)))),
            ResourceKind::Group | ResourceKind::Other(_) => None,
        };
        overrides.unwrap_or(&NONE)
    }

    fn change_resource(
        &self,
        resource: &Resource,
        changes: Vec<ConfigChange>,
    ) -> Result<Option<Record>, Refusal> {
        let mut names = BTreeSet::new();
        let mut changing = changes.iter().filter(|it| it.operation != ConfigOperation::Expect);
        let repeats = changing.any(|change| !names.insert(change.name.as_str()));
        match resource.kind {
            _ if repeats => Err(Refusal::DuplicateConfigName),
            ResourceKind::Topic => self.change_topic(&resource.name, &changes),
            ResourceKind::Broker => self.change_broker(&resource.name, &changes),
            ResourceKind::Group => change_group(&resource.name, &changes).map(|()| None),
            ResourceKind::Other(kind) => Err(Refusal::UnknownResourceType(kind)),
        }
    }

    fn change_topic(
        &self,
        name: &str,
        changes: &[ConfigChange],
    ) -> Result<Option<Record>, Refusal> {
        if name.is_empty() {
            return Err(Refusal::NoDefaultTopic);
        }
        TopicName::new(name).map_err(Refusal::InvalidTopicName)?;
        let topic = self.topic(name);
        let before = topic.map(|topic| topic.overrides.clone()).unwrap_or_default();
        let effective = |property: &'static Property| {
            let entries = topic.map(|topic| self.describe_topic(topic)).unwrap_or_default();
            let entry = entries.into_iter().find(|entry| entry.property == property);
            entry.and_then(|entry| entry.value)
        };
        let after = changed(&before, changes, properties::topic, effective)?;
        for (name, value) in set_by(changes, &after) {
            let property = properties::topic(name)
                .ok_or_else(|| Refusal::UnknownTopicConfig(name.to_owned()))?;
            property.check(value).map_err(Refusal::InvalidValue)?;
        }
        let topic = topic.ok_or_else(|| Refusal::UnknownTopicToConfigure(name.to_owned()))?;
        queue::check_change(topic, self.effective_config(topic).cleanup_policy.compact, &after)?;
        let resource = ConfiguredResource::Topic(topic.id);
        Ok((before != after).then_some(Record::Config { resource, overrides: after }))
    }

    /// Any registered broker can be configured, whoever decides on it.
    fn check_configurable(&self, name: &str) -> Result<BrokerId, Refusal> {
        let registered = name.parse().ok().map(BrokerId).filter(|id| self.broker(*id).is_some());
        registered.map_or_else(|| self.check_broker_id(name, "Node", ""), Ok)
    }

    fn change_broker(
        &self,
        name: &str,
        changes: &[ConfigChange],
    ) -> Result<Option<Record>, Refusal> {
        let broker = match name {
            "" => None,
            id => Some(self.check_configurable(id)?),
        };
        let before = self.broker_overrides.get(&broker).cloned().unwrap_or_default();
        let effective = |property: &'static Property| {
            // What another broker's operator wrote is not known here.
            let set = || self.broker_overrides.get(&None)?.get(property.name).map(String::as_str);
            let value = match broker {
                Some(id) if id != self.me => set(),
                _ => self.broker_value(property.name).map(|(value, _)| value),
            };
            value.or(property.default).map(str::to_owned)
        };
        let after = changed(&before, changes, properties::broker, effective)?;
        let mut fixed = Vec::new();
        for (name, _) in set_by(changes, &after) {
            match properties::broker(name) {
                Some(property) if property.change == Change::Restart => fixed.push(name),
                Some(_) => {}
                None => return Err(Refusal::UnknownBrokerConfig(name.to_owned())),
            }
        }
        if !fixed.is_empty() {
            return Err(Refusal::NotDynamic(fixed.join(",")));
        }
        for (name, value) in set_by(changes, &after) {
            if let Some(property) = properties::broker(name) {
                property.check(value).map_err(Refusal::InvalidBrokerValue)?;
            }
        }
        let resource = ConfiguredResource::Broker(broker);
        Ok((before != after).then_some(Record::Config { resource, overrides: after }))
    }
}

/// Groups take nothing but defaults so far, so there is nothing to remember.
fn change_group(name: &str, changes: &[ConfigChange]) -> Result<(), Refusal> {
    if name.is_empty() {
        return Err(Refusal::NoDefaultGroup);
    }
    let after = changed(&Overrides::new(), changes, properties::group, |property| {
        property.default.map(str::to_owned)
    })?;
    for (name, value) in &after {
        let property =
            properties::group(name).ok_or_else(|| Refusal::UnknownGroupConfig(name.clone()))?;
        property.check(value).map_err(Refusal::InvalidValue)?;
    }
    Ok(())
}

/// The values that `changes` leave behind. Names and values are still unchecked, except that only
/// lists are appended to.
fn changed(
    before: &Overrides,
    changes: &[ConfigChange],
    find: impl Fn(&str) -> Option<&'static Property>,
    effective: impl Fn(&'static Property) -> Option<String>,
) -> Result<Overrides, Refusal> {
    let mut after = before.clone();
    for ConfigChange { name, operation, value } in changes {
        let expected = value.as_deref().unwrap_or_default();
        let value = || {
            let value = value.as_deref().map(str::trim);
            value.ok_or_else(|| Refusal::NullValue(name.clone()))
        };
        let list = |operation: &str| {
            let property = find(name).filter(|property| property.kind == Kind::List);
            let property = property.ok_or_else(|| Refusal::NotAList {
                operation: operation.to_owned(),
                name: name.clone(),
            })?;
            Ok(before.get(name).cloned().or_else(|| effective(property)).unwrap_or_default())
        };
        match operation {
            ConfigOperation::Set => {
                after.insert(name.clone(), value()?.to_owned());
            }
            ConfigOperation::Delete => {
                after.remove(name);
            }
            ConfigOperation::Expect => {
                let current = before.get(name).map_or("", String::as_str);
                if current != expected {
                    return Err(Refusal::ConfigChanged(name.clone()));
                }
            }
            ConfigOperation::Append => {
                let (value, current) = (value()?, list("APPEND")?);
                if let Some(longer) = appended(&current, value) {
                    after.insert(name.clone(), longer);
                }
            }
            ConfigOperation::Subtract => {
                let (value, current) = (value()?, list("SUBTRACT")?);
                if let Some(shorter) = subtracted(&current, value) {
                    after.insert(name.clone(), shorter);
                }
            }
        }
    }
    Ok(after)
}

/// The list with those elements of `value` that it lacks, if it lacks any.
fn appended(current: &str, value: &str) -> Option<String> {
    let mut list: Vec<&str> = elements(current).collect();
    let before = list.len();
    for element in elements(value) {
        if !list.contains(&element) {
            list.push(element);
        }
    }
    (before < list.len()).then(|| list.join(","))
}

/// The list without the elements of `value`, if it has any.
fn subtracted(current: &str, value: &str) -> Option<String> {
    let gone: Vec<&str> = elements(value).collect();
    let list: Vec<&str> = elements(current).collect();
    let kept: Vec<&str> = list.iter().copied().filter(|element| !gone.contains(element)).collect();
    (kept.len() < list.len()).then(|| kept.join(","))
}

/// The names that a change gives a value, with that value. What was there before has been checked.
fn set_by<'c>(
    changes: &'c [ConfigChange],
    after: &'c Overrides,
) -> impl Iterator<Item = (&'c str, &'c str)> {
    changes
        .iter()
        .filter(|change| {
            !matches!(change.operation, ConfigOperation::Delete | ConfigOperation::Expect)
        })
        .filter_map(|change| Some((change.name.as_str(), after.get(&change.name)?.as_str())))
}
