//! Configurations of topics, brokers and groups: read with their sources, changed one by one.

use towpath_model::BrokerId;
use towpath_protocol::messages::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterConfigsResource as AlterConfigsResource,
    IncrementalAlterConfigsRequestAlterableConfig as AlterableConfig,
    IncrementalAlterConfigsResponse,
};

use super::{Admin, check, only};
use crate::cluster::Lane;
use crate::error::Result;
use crate::wire::Connection;

/// What a configuration belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// A topic.
    Topic(String),
    /// One broker.
    Broker(BrokerId),
    /// All brokers: the defaults of the cluster.
    Cluster,
    /// A consumer group.
    Group(String),
}

impl Resource {
    /// The number of its kind on the wire.
    fn kind(&self) -> i8 {
        match self {
            Resource::Topic(_) => 2,
            Resource::Broker(_) | Resource::Cluster => 4,
            Resource::Group(_) => 32,
        }
    }

    fn name(&self) -> String {
        match self {
            Resource::Topic(name) | Resource::Group(name) => name.clone(),
            Resource::Broker(id) => id.to_string(),
            Resource::Cluster => String::new(),
        }
    }

    /// In words, for errors.
    fn words(&self) -> String {
        match self {
            Resource::Topic(name) => format!("topic {name:?}"),
            Resource::Group(name) => format!("group {name:?}"),
            Resource::Broker(id) => format!("broker {id}"),
            Resource::Cluster => "the cluster".to_owned(),
        }
    }
}

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfigSource {
    /// Set on the topic itself.
    Topic,
    /// Set on the broker at run time.
    DynamicBroker,
    /// Set for all brokers at run time.
    DynamicDefault,
    /// From the broker's configuration file.
    Static,
    /// Nobody chose it.
    Default,
    /// Set on the group itself.
    Group,
    /// A source that we do not know.
    Other(i8),
}

impl ConfigSource {
    fn from_wire(source: i8) -> ConfigSource {
        match source {
            1 => ConfigSource::Topic,
            2 => ConfigSource::DynamicBroker,
            3 => ConfigSource::DynamicDefault,
            4 => ConfigSource::Static,
            5 => ConfigSource::Default,
            8 => ConfigSource::Group,
            other => ConfigSource::Other(other),
        }
    }

    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            ConfigSource::Topic => "topic",
            ConfigSource::DynamicBroker => "broker",
            ConfigSource::DynamicDefault => "cluster",
            ConfigSource::Static => "file",
            ConfigSource::Default => "default",
            ConfigSource::Group => "group",
            ConfigSource::Other(_) => "other",
        }
    }
}

/// One value of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigEntry {
    /// Its name.
    pub name: String,
    /// Its value; `None` when it is a secret, or unset.
    pub value: Option<String>,
    /// Where the value comes from.
    pub source: ConfigSource,
    /// Whether it cannot be changed at run time.
    pub is_read_only: bool,
    /// What it does, where the broker tells.
    pub documentation: Option<String>,
}

impl ConfigEntry {
    /// Whether somebody set it on the very thing it belongs to.
    #[must_use]
    pub fn is_override(&self) -> bool {
        matches!(
            self.source,
            ConfigSource::Topic | ConfigSource::DynamicBroker | ConfigSource::Group
        )
    }
}

/// One change of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigChange {
    /// Gives it this value.
    Set(String, String),
    /// Takes the own value away, so that the default shows again.
    Reset(String),
    /// Adds an item to a list.
    Append(String, String),
    /// Takes an item out of a list.
    Subtract(String, String),
}

impl ConfigChange {
    fn parts(&self) -> (&str, i8, Option<&str>) {
        match self {
            ConfigChange::Set(name, value) => (name, 0, Some(value)),
            ConfigChange::Reset(name) => (name, 1, None),
            ConfigChange::Append(name, value) => (name, 2, Some(value)),
            ConfigChange::Subtract(name, value) => (name, 3, Some(value)),
        }
    }
}

impl Admin {
    /// Every value of a configuration, defaults included, by name.
    pub async fn configs(
        &self,
        resource: &Resource,
        with_documentation: bool,
    ) -> Result<Vec<ConfigEntry>> {
        let name = resource.name();
        let request = DescribeConfigsRequest {
            resources: vec![DescribeConfigsResource {
                resource_type: resource.kind(),
                resource_name: &name,
                configuration_keys: None,
            }],
            include_synonyms: false,
            include_documentation: with_documentation,
        };
        let connection = self.connection_for(resource).await?;
        let version = connection.version_of::<DescribeConfigsRequest<'_>>()?;
        // Before version 3 there is no documentation.
        let request = DescribeConfigsRequest {
            include_documentation: with_documentation && 3 <= version,
            ..request
        };
        let answer = connection.call_version(version, &request).await?;
        let response: DescribeConfigsResponse<'_> = answer.read()?;
        let doing = || format!("reading the configuration of {}", resource.words());
        let result = only(response.results, doing)?;
        check(doing, result.error_code, result.error_message)?;
        let mut entries: Vec<ConfigEntry> = result
            .configs
            .iter()
            .map(|config| ConfigEntry {
                name: config.name.to_owned(),
                value: config.value.map(str::to_owned),
                source: ConfigSource::from_wire(config.config_source),
                is_read_only: config.read_only,
                documentation: config.documentation.map(str::to_owned),
            })
            .collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// Changes a configuration: all of `changes`, or none. `validate_only` asks whether that would
    /// work.
    pub async fn alter_configs(
        &self,
        resource: &Resource,
        changes: &[ConfigChange],
        validate_only: bool,
    ) -> Result<()> {
        let name = resource.name();
        let request = IncrementalAlterConfigsRequest {
            resources: vec![AlterConfigsResource {
                resource_type: resource.kind(),
                resource_name: &name,
                configs: changes
                    .iter()
                    .map(ConfigChange::parts)
                    .map(|(name, config_operation, value)| AlterableConfig {
                        name,
                        config_operation,
                        value,
                    })
                    .collect(),
            }],
            validate_only,
        };
        let doing = || format!("changing the configuration of {}", resource.words());
        let answer = self.connection_for(resource).await?.call(&request).await?;
        let response: IncrementalAlterConfigsResponse<'_> = answer.read()?;
        let result = only(response.responses, doing)?;
        check(doing, result.error_code, result.error_message)
    }

    /// A broker's own configuration is known to that broker alone.
    async fn connection_for(&self, resource: &Resource) -> Result<Connection> {
        match resource {
            Resource::Broker(id) => self.cluster.broker(*id, Lane::Ordinary).await,
            _ => self.cluster.any().await,
        }
    }
}
