//! Batches that become a thousandfold when they are decompressed, of every codec that makes such,
//! from several connections at once and more than once: what one costs must not add up.

use std::net::SocketAddr;
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use towpath_records::Compression;

use crate::hostile::bomb;
use crate::kafka::{KafkaConnection, Refused};

const TOPIC: &str = "bombed";
/// Connections that send them at once.
const SENDERS: usize = 8;
/// Rounds of all bombs that each sends.
const ROUNDS: usize = 2;

/// Sends them. Returns how many were refused, which is all.
pub fn attack(address: SocketAddr) -> Result<usize> {
    let bombs = [
        bomb(Compression::Zstd, 400 << 20),
        bomb(Compression::Gzip, 100 << 20),
        bomb(Compression::Lz4, 100 << 20),
        // Snappy shrinks nothing to less than a twentieth.
        bomb(Compression::Snappy, 40 << 20),
    ];
    let mut kafka = KafkaConnection::open(address)?;
    kafka.create_topic(TOPIC, 1, &[("max.message.bytes", "4000000")])?;
    thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS)
            .map(|first| {
                let bombs = &bombs;
                scope.spawn(move || -> Result<()> {
                    let mut kafka = KafkaConnection::open(address)?;
                    for bomb in bombs.iter().cycle().skip(first).take(ROUNDS * bombs.len()) {
                        let refused = kafka.produce_batch(TOPIC, 0, bomb).err();
                        let refused =
                            refused.with_context(|| format!("{} bytes got in", bomb.len()))?;
                        // Anything else than an answer would be a hang-up.
                        refused.downcast::<Refused>()?;
                    }
                    Ok(())
                })
            })
            .collect();
        senders.into_iter().try_for_each(|sender| match sender.join() {
            Ok(ended) => ended,
            Err(_) => bail!("a sender panicked"),
        })
    })?;
    let (records, end) = kafka.read_all(TOPIC, 0, 0)?;
    ensure!(records.is_empty() && end == 0, "{} records came out of bombs", records.len());
    Ok(SENDERS * ROUNDS * bombs.len())
}
