//! Where SQS is served, to whom, and under which address clients know it.

use std::net::SocketAddr;

use towpath_http::{AccessKeys, SqsSettings};

use super::cluster::{SecretSource, read_secret};
use super::{ConfigError, Given, HostPort, Origin, address};

/// Where ElasticMQ is, and so where clients look that are told nothing else.
const SQS_PORT: u16 = 9324;

/// What was written of it; nothing is checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SqsWritten {
    pub(crate) listen: Option<Given<String>>,
    pub(crate) advertise: Option<Given<String>>,
    pub(crate) keys: Option<Given<SecretSource>>,
}

/// How SQS is served, checked.
#[derive(Debug, Clone)]
pub(crate) struct SqsServed {
    /// Its own listener; it is served on the port of HTTP in any case.
    pub(crate) listen: Option<SqsAddress>,
    pub(crate) settings: SqsSettings,
}

/// Where the listener is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SqsAddress {
    pub(crate) address: SocketAddr,
    /// Somebody has named it. Otherwise nobody misses it if the port is taken.
    pub(crate) is_named: bool,
}

impl SqsWritten {
    /// The settings, as the file names them.
    pub(crate) const SETTINGS: [&str; 3] = ["sqs", "advertise_sqs", "sqs_keys_file"];

    /// Takes a value by the name that it has in the file.
    pub(crate) fn take(&mut self, name: &str, given: Given<String>) {
        match name {
            "sqs" => self.listen = Some(given),
            "advertise_sqs" => self.advertise = Some(given),
            "sqs_keys_file" => {
                let Given { value, origin } = given;
                self.keys = Some(Given { value: SecretSource::File(value.into()), origin });
            }
            _ => {}
        }
    }

    /// Takes an environment variable, if it is one of these.
    pub(super) fn take_variable(&mut self, variable: &str, value: &str) -> bool {
        let origin = Origin::Environment(variable.to_owned());
        let given = Given { value: value.to_owned(), origin: origin.clone() };
        match variable {
            "TOWPATH_SQS" => self.take("sqs", given),
            "TOWPATH_ADVERTISE_SQS" => self.take("advertise_sqs", given),
            // The keys themselves count more than where they stand, in whatever order they come.
            "TOWPATH_SQS_KEYS_FILE" if self.keys.is_none() => self.take("sqs_keys_file", given),
            "TOWPATH_SQS_KEYS_FILE" => {}
            "TOWPATH_SQS_KEYS" => {
                let value = SecretSource::Text(value.to_owned());
                self.keys = Some(Given { value, origin });
            }
            _ => return false,
        }
        true
    }

    /// This layer on top of another one.
    pub(super) fn over(self, below: SqsWritten) -> SqsWritten {
        SqsWritten {
            listen: self.listen.or(below.listen),
            advertise: self.advertise.or(below.advertise),
            keys: self.keys.or(below.keys),
        }
    }

    /// Checks it. `is_usual`: there is a listener even if nobody names one, and on loopback it lets
    /// everybody in who reaches it.
    pub(super) fn check(
        &self,
        is_usual: bool,
        any_port: bool,
        errors: &mut Vec<ConfigError>,
    ) -> SqsServed {
        let mut note = |origin: Option<&Origin>, message: String| {
            errors.push(ConfigError { origin: origin.cloned(), message });
        };
        let keys = self.keys().unwrap_or_else(|message| {
            note(self.keys.as_ref().map(|given| &given.origin), message);
            AccessKeys::default()
        });
        let advertised = self.advertised().unwrap_or_else(|message| {
            note(self.advertise.as_ref().map(|given| &given.origin), message);
            None
        });
        let listen = self.listen(is_usual, any_port, !keys.is_empty()).unwrap_or_else(|error| {
            errors.push(error);
            None
        });
        let settings = SqsSettings { keys, lets_anybody_in_on_loopback: is_usual, advertised };
        SqsServed { listen, settings }
    }

    fn keys(&self) -> Result<AccessKeys, String> {
        let Some(given) = &self.keys else { return Ok(AccessKeys::default()) };
        let (text, name) = match &given.value {
            SecretSource::Text(text) => (text.clone(), "the access keys".to_owned()),
            SecretSource::File(path) => {
                let bytes = read_secret(path)?;
                let name = path.display().to_string();
                let text = String::from_utf8(bytes).map_err(|_| format!("{name} is no text"))?;
                (text, name)
            }
        };
        AccessKeys::parse(&text).map_err(|invalid| {
            format!("{name}: {invalid}; write a key per line: its id, a space, and its secret")
        })
    }

    fn advertised(&self) -> Result<Option<String>, String> {
        let Some(Given { value, .. }) = &self.advertise else { return Ok(None) };
        let host = value.strip_prefix("http://").or_else(|| value.strip_prefix("https://"));
        let host = host.map(|host| host.trim_end_matches('/'));
        let is_possible = |host: &str| {
            let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
            !host.is_empty() && host.bytes().all(is_host)
        };
        match host.filter(|host| is_possible(host)) {
            Some(_) => Ok(Some(value.trim_end_matches('/').to_owned())),
            None => Err(format!(
                "{value:?} is no address of SQS; write http://host:port or https://host"
            )),
        }
    }

    fn listen(
        &self,
        is_usual: bool,
        any_port: bool,
        has_keys: bool,
    ) -> Result<Option<SqsAddress>, ConfigError> {
        let Some(named) = address::read(self.listen.as_ref())? else {
            let port = if any_port { 0 } else { SQS_PORT };
            let address = SocketAddr::from(([127, 0, 0, 1], port));
            return Ok(is_usual.then_some(SqsAddress { address, is_named: false }));
        };
        let refused = |message| ConfigError {
            origin: self.listen.as_ref().map(|given| given.origin.clone()),
            message,
        };
        let address = HostPort::resolve(&named).map_err(refused)?;
        if address.ip().is_loopback() || has_keys {
            return Ok(Some(SqsAddress { address, is_named: true }));
        }
        Err(refused(format!(
            "{address} can be reached from other machines, and there are no access keys by which \
             clients prove who they are; name a file with --sqs-keys-file FILE"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pairs: &[(&str, &str)], is_usual: bool) -> (SqsServed, Vec<String>) {
        let mut written = SqsWritten::default();
        for (name, value) in pairs {
            assert!(written.take_variable(name, value), "{name}");
        }
        let mut errors = Vec::new();
        let served = written.check(is_usual, false, &mut errors);
        (served, errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn dev_has_a_listener_where_elasticmq_has_it_and_serve_has_none_by_itself() {
        let (dev, errors) = check(&[], true);
        assert!(errors.is_empty());
        let listen = dev.listen.unwrap();
        assert_eq!(
            (listen.address.to_string().as_str(), listen.is_named),
            ("127.0.0.1:9324", false)
        );
        assert!(dev.settings.lets_anybody_in_on_loopback);
        let (serve, _) = check(&[], false);
        assert!(serve.listen.is_none() && !serve.settings.lets_anybody_in_on_loopback);
    }

    #[test]
    fn beyond_loopback_clients_prove_who_they_are() {
        let open = ("TOWPATH_SQS", "0.0.0.0:9324");
        let (served, errors) = check(&[open], true);
        assert!(
            served.listen.is_none() && errors[0].contains("--sqs-keys-file FILE"),
            "{errors:?}"
        );
        let keys = ("TOWPATH_SQS_KEYS", "KEY 0123456789abcdef");
        let (served, errors) = check(&[open, keys], false);
        assert!(served.listen.is_some() && errors.is_empty(), "{errors:?}");
        assert!(!format!("{served:?}").contains("0123456789abcdef"));
    }

    #[test]
    fn keys_come_from_a_file_or_the_environment_and_errors_do_not_repeat_them() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys");
        std::fs::write(&path, "KEY 0123456789abcdef\n").unwrap();
        let file = ("TOWPATH_SQS_KEYS_FILE", path.to_str().unwrap());
        assert!(!check(&[file], false).0.settings.keys.is_empty());
        let wrong = ("TOWPATH_SQS_KEYS", "KEY 0123456789abcdef more");
        let (_, errors) = check(&[wrong, file], false);
        assert!(errors[0].contains("line 1") && !errors[0].contains("0123"), "{errors:?}");
        let (_, errors) = check(&[("TOWPATH_SQS_KEYS_FILE", "/nowhere")], false);
        assert!(errors[0].contains("/nowhere"), "{errors:?}");
    }

    #[test]
    fn an_advertised_address_is_a_url() {
        let advertised = |value| check(&[("TOWPATH_ADVERTISE_SQS", value)], false);
        let (served, _) = advertised("https://sqs.example.org/");
        assert_eq!(served.settings.advertised.as_deref(), Some("https://sqs.example.org"));
        for wrong in ["sqs.example.org", "http://", "http://a/b", "ftp://a"] {
            assert!(!advertised(wrong).1.is_empty(), "{wrong}");
        }
    }
}
