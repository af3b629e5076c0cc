//! Inputs that are kept: a file of text per target, an input per line, in hexadecimal.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::shape::Shape;
use crate::target::Target;

/// Most inputs of a file: the shortest ones.
const SAVED_MAX: usize = 200;

/// The inputs of one target; for each shape the shortest that is known.
#[derive(Debug, Default)]
pub struct Corpus {
    inputs: Vec<Vec<u8>>,
    of_shape: BTreeMap<Shape, usize>,
}

impl Corpus {
    /// The inputs that the target makes itself and those in its file under `root`. They still have
    /// to be run: [`Corpus::offer`] them.
    pub fn known(target: &Target, root: &Path) -> Result<Vec<Vec<u8>>> {
        let mut inputs = (target.seeds)();
        let path = file_of(target, root);
        if path.is_file() {
            let text = fs::read_to_string(&path)?;
            for (number, line) in (1..).zip(text.lines()) {
                let input = from_hex(line);
                inputs.push(input.with_context(|| format!("{}:{number}", path.display()))?);
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
    pub fn save(&self, target: &Target, root: &Path, bytes_max: usize) -> Result<()> {
        let seeds = (target.seeds)();
        let mut kept: Vec<&Vec<u8>> = self
            .inputs
            .iter()
            .filter(|input| input.len() <= bytes_max && !seeds.contains(input))
            .collect();
        kept.sort_by_key(|input| (input.len(), *input));
        kept.truncate(SAVED_MAX);
        let text: String = kept.into_iter().map(|input| to_hex(input) + "\n").collect();
        fs::create_dir_all(root)?;
        Ok(fs::write(file_of(target, root), text)?)
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
    fn an_input_survives_its_line() {
        let input: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&input)).unwrap(), input);
        assert_eq!(from_hex("").unwrap(), Vec::<u8>::new());
        assert!(from_hex("abc").is_err() && from_hex("zz").is_err());
    }
}
