//! Inputs that are kept: a file of text per target, an input per line, in hexadecimal.
//!
//! ```text
//!   corpus/TARGET.hex             committed: short, one per shape, made anew by `--keep`
//!   regressions/TARGET/NAME.bin   committed: each has once broken something; never removed
//!   target/fuzz-corpus/…          what campaigns have found so far, so that the next one goes on
//! ```

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::shape::Shape;
use crate::target::Target;

/// Most inputs of a committed file, the shortest ones; the file stays below 100 KB.
const KEPT_MAX: usize = 200;
const KEPT_FILE_BYTES_MAX: usize = 100_000;
/// Most inputs, and the longest, of a file that campaigns go on from.
const WORK_MAX: usize = 20_000;
const WORK_INPUT_BYTES_MAX: usize = 16 << 10;

/// The inputs of one target; for each shape the shortest that is known.
#[derive(Debug, Default)]
pub struct Corpus {
    inputs: Vec<Vec<u8>>,
    of_shape: BTreeMap<Shape, usize>,
}

impl Corpus {
    /// The inputs that the target makes itself, those in its file under each of `roots`, and those
    /// that once broke something. They still have to be run: [`Corpus::offer`] them.
    pub fn known(target: &Target, roots: &[&Path], regressions: &Path) -> Result<Vec<Vec<u8>>> {
        let mut inputs = (target.seeds)();
        for root in roots {
            let path = file_of(target, root);
            if path.is_file() {
                let text = fs::read_to_string(&path)?;
                for (number, line) in (1..).zip(text.lines()) {
                    let input = from_hex(line);
                    inputs.push(input.with_context(|| format!("{}:{number}", path.display()))?);
                }
            }
        }
        let directory = regressions.join(target.name);
        if directory.is_dir() {
            for entry in fs::read_dir(&directory)? {
                inputs.push(fs::read(entry?.path())?);
            }
        }
        Ok(inputs)
    }

    /// Keeps the input if its shape is new, or if it is shorter than the one known for it. Says
    /// whether it was kept.
    pub fn offer(&mut self, input: &[u8], shape: Shape) -> bool {
        match self.of_shape.get(&shape) {
            None => {
                self.of_shape.insert(shape, self.inputs.len());
                self.inputs.push(input.to_vec());
                true
            }
            Some(index) if input.len() < self.inputs[*index].len() => {
                self.inputs[*index] = input.to_vec();
                true
            }
            Some(_) => false,
        }
    }

    /// All of them; never changes order.
    pub fn inputs(&self) -> &[Vec<u8>] {
        &self.inputs
    }

    /// Writes the shortest inputs to the target's file under `root`, and none that is longer than
    /// `bytes_max` or that the target makes itself.
    pub fn keep(&self, target: &Target, root: &Path, bytes_max: usize) -> Result<()> {
        self.write(target, root, bytes_max, KEPT_MAX, KEPT_FILE_BYTES_MAX)
    }

    /// Writes nearly everything to the target's file under `root`, for a later campaign.
    pub fn save(&self, target: &Target, root: &Path) -> Result<()> {
        self.write(target, root, WORK_INPUT_BYTES_MAX, WORK_MAX, usize::MAX)
    }

    fn write(
        &self,
        target: &Target,
        root: &Path,
        bytes_max: usize,
        count_max: usize,
        file_bytes_max: usize,
    ) -> Result<()> {
        let seeds = (target.seeds)();
        let mut kept: Vec<&Vec<u8>> = self
            .inputs
            .iter()
            .filter(|input| input.len() <= bytes_max && !seeds.contains(input))
            .collect();
        kept.sort_by_key(|input| (input.len(), *input));
        kept.truncate(count_max);
        let mut text = String::new();
        for line in kept.into_iter().map(|input| to_hex(input) + "\n") {
            if file_bytes_max < text.len() + line.len() {
                break;
            }
            text.push_str(&line);
        }
        fs::create_dir_all(root)?;
        // Whoever stops us in between finds the old file or the new one.
        let (path, fresh) = (file_of(target, root), root.join(format!("{}.fresh", target.name)));
        fs::write(&fresh, text)?;
        Ok(fs::rename(fresh, path)?)
    }
}

fn file_of(target: &Target, root: &Path) -> PathBuf {
    root.join(format!("{}.hex", target.name))
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn from_hex(text: &str) -> Result<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        bail!("not hexadecimal");
    }
    let byte = |at: usize| Ok(u8::from_str_radix(&text[at..at + 2], 16)?);
    (0..text.len()).step_by(2).map(byte).collect()
}

/// Writes an input under the name of its content, and gives back where.
pub(crate) fn write_input(directory: &Path, input: &[u8]) -> Result<PathBuf> {
    fs::create_dir_all(directory)?;
    let fnv = input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let path = directory.join(format!("{fnv:016x}.bin"));
    fs::write(&path, input).with_context(|| path.display().to_string())?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_campaign_knows_what_an_earlier_one_found_and_what_once_broke() {
        let target = crate::targets::ALL[0];
        let root = std::env::temp_dir().join(format!("fuzz-corpus-{}", std::process::id()));
        let (work, regressions) = (root.join("work"), root.join("regressions"));
        let mut corpus = Corpus::default();
        assert!(corpus.offer(b"found", Shape::default().word("new")));
        corpus.save(&target, &work).unwrap();
        write_input(&regressions.join(target.name), b"broke").unwrap();
        let known = Corpus::known(&target, &[&root, &work], &regressions).unwrap();
        fs::remove_dir_all(&root).unwrap();
        let seeds = (target.seeds)().len();
        assert_eq!(known[seeds..], [b"found".to_vec(), b"broke".to_vec()]);
    }

    #[test]
    fn an_input_survives_its_line() {
        let input: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&input)).unwrap(), input);
        assert_eq!(from_hex("").unwrap(), Vec::<u8>::new());
        assert!(from_hex("abc").is_err() && from_hex("zz").is_err());
    }
}
