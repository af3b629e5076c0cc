//! What the clients are run against, told to them in environment variables.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpStream;

use anyhow::{Context, Result};

use crate::oracle::root;
use crate::product::Product;

/// `HOST:PORT` for Kafka clients.
pub(super) const KAFKA: &str = "BOOTSTRAP";
/// `HOST:PORT` for HTTP. Other brokers than ours have no queues behind their topics.
pub(super) const HTTP: &str = "HTTP";

/// The endpoint of SQS, which takes any credentials.
pub(super) const SQS: &str = "SQS";
/// Another endpoint, which knows one access key.
const SQS_SIGNED: &str = "SQS_SIGNED";
const KEY: [(&str, &str); 2] =
    [("SQS_KEY_ID", "AKIDTOWPATH"), ("SQS_SECRET", "kept-by-nobody-but-this-test")];

/// The environment of every client.
pub(crate) struct Servers {
    variables: BTreeMap<&'static str, String>,
    /// They run as long as this lives.
    _products: Vec<Product>,
}

impl Servers {
    /// Builds and starts our own.
    pub(crate) fn start() -> Result<Servers> {
        let [(_, id), (_, secret)] = KEY;
        let keys = root()?.join("target/clients/sqs-keys.txt");
        fs::create_dir_all(keys.parent().expect("the path above has a parent"))?;
        fs::write(&keys, format!("{id} {secret}\n"))?;
        let open = Product::start()?;
        let signed = Product::start_with(&["--sqs-keys-file".as_ref(), keys.as_ref()])?;
        let endpoint = |product: &Product| {
            let address = product.sqs.as_ref().context("the broker does not serve SQS")?;
            anyhow::Ok(format!("http://{address}"))
        };
        let mut variables = BTreeMap::from([
            (KAFKA, open.kafka.clone()),
            (HTTP, open.http.clone()),
            (SQS, endpoint(&open)?),
            (SQS_SIGNED, endpoint(&signed)?),
        ]);
        variables.extend(KEY.map(|(name, value)| (name, value.to_owned())));
        Ok(Servers { variables, _products: vec![open, signed] })
    }

    /// Others: a broker at `HOST:PORT`, an endpoint of SQS.
    pub(super) fn others(kafka: Option<&str>, sqs: Option<&str>) -> Servers {
        let given = [(KAFKA, kafka), (SQS, sqs)].into_iter();
        let variables = given.filter_map(|(name, value)| Some((name, value?.to_owned())));
        Servers { variables: variables.collect(), _products: Vec::new() }
    }

    /// Whether there is what the variable names.
    pub(super) fn have(&self, variable: &str) -> bool {
        self.variables.contains_key(variable)
    }

    pub(super) fn variables(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.variables.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// Ten clients that each wait for a broker that is not there would take twenty minutes to say so.
    pub(super) fn check(&self) -> Result<()> {
        if let Some(kafka) = self.variables.get(KAFKA) {
            TcpStream::connect(kafka).with_context(|| format!("no broker at {kafka}"))?;
        }
        Ok(())
    }
}
