//! The names on a disk: directories, what lies in them now, and what is certain to lie in them
//! after a power loss.
//!
//! A created, renamed or removed name is a pending change until its directory is synced (a rename
//! until the directory of the *new* name is). A rename is one change: never both names, never none.
//! Changes of one name or of one file keep their order; others may survive in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path};

use super::fate::Fate;
use crate::events::Events;
use crate::rng::Rng;

/// Identity of a file or directory, whatever its name.
pub(super) type Inode = u64;

/// The directory above all others; it exists from the start and is always durable.
pub(super) const ROOT: Inode = 0;

#[derive(Debug, Clone)]
pub(super) struct Names {
    /// Directories that are or were reachable, with the names in them now.
    now: BTreeMap<Inode, BTreeMap<String, Entry>>,
    /// The same as a power loss would leave it at worst.
    durable: BTreeMap<Inode, BTreeMap<String, Entry>>,
    pending: Vec<NameChange>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) inode: Inode,
    pub(super) is_dir: bool,
}

#[derive(Debug, Clone)]
struct NameChange {
    kind: Kind,
    inode: Inode,
    /// The name that is no more, or is another file's now.
    removed: Option<(Inode, String)>,
    /// The name that is there now.
    added: Option<(Inode, String, Entry)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Create,
    Rename,
    Remove,
}

impl NameChange {
    /// The directory whose sync makes the change certain.
    fn home(&self) -> Inode {
        match (&self.added, &self.removed) {
            (Some((directory, ..)), _) | (None, Some((directory, _))) => *directory,
            (None, None) => ROOT,
        }
    }

    fn names(&self) -> impl Iterator<Item = (Inode, &str)> {
        let removed = self.removed.as_ref().map(|(directory, name)| (*directory, name.as_str()));
        let added = self.added.as_ref().map(|(directory, name, _)| (*directory, name.as_str()));
        removed.into_iter().chain(added)
    }

    fn rests_on(&self, earlier: &NameChange) -> bool {
        self.inode == earlier.inode
            || self.names().any(|name| earlier.names().any(|other| other == name))
    }

    fn apply(&self, tree: &mut BTreeMap<Inode, BTreeMap<String, Entry>>) {
        if let Some((directory, name)) = &self.removed {
            tree.entry(*directory).or_default().remove(name);
        }
        if let Some((directory, name, entry)) = &self.added {
            tree.entry(*directory).or_default().insert(name.clone(), *entry);
            if entry.is_dir {
                tree.entry(entry.inode).or_default();
            }
        }
    }
}

impl Names {
    pub(super) fn new() -> Names {
        let root = BTreeMap::from([(ROOT, BTreeMap::new())]);
        Names { now: root.clone(), durable: root, pending: Vec::new() }
    }

    /// What has this name now.
    pub(super) fn find(&self, path: &Path) -> io::Result<Entry> {
        resolve(&self.now, path)
    }

    /// What is certain to have this name after a power loss.
    pub(super) fn find_durable(&self, path: &Path) -> io::Result<Entry> {
        resolve(&self.durable, path)
    }

    /// Names in a directory.
    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let directory = self.directory(path)?;
        Ok(self.now[&directory].keys().cloned().collect())
    }

    pub(super) fn directory(&self, path: &Path) -> io::Result<Inode> {
        let entry = self.find(path)?;
        if entry.is_dir { Ok(entry.inode) } else { Err(io::ErrorKind::NotADirectory.into()) }
    }

    /// Checks that a name can be created, and where.
    pub(super) fn vacancy(&self, path: &Path) -> io::Result<(Inode, String)> {
        let (parent, name) = self.place(path)?;
        if self.now[&parent].contains_key(&name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Ok((parent, name))
    }

    pub(super) fn create(&mut self, parent: Inode, name: String, entry: Entry) {
        self.change(NameChange {
            kind: Kind::Create,
            inode: entry.inode,
            removed: None,
            added: Some((parent, name, entry)),
        });
    }

    /// Checks a rename without doing it.
    pub(super) fn check_rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let moved = self.find(from)?;
        let (parent, name) = self.place(to)?;
        match self.now[&parent].get(&name) {
            Some(replaced) if replaced.is_dir && !moved.is_dir => {
                Err(io::ErrorKind::IsADirectory.into())
            }
            Some(replaced) if replaced.is_dir && !self.now[&replaced.inode].is_empty() => {
                Err(io::ErrorKind::DirectoryNotEmpty.into())
            }
            Some(replaced) if !replaced.is_dir && moved.is_dir => {
                Err(io::ErrorKind::NotADirectory.into())
            }
            _ => Ok(()),
        }
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        self.check_rename(from, to)?;
        let moved = self.find(from)?;
        let (from_parent, from_name) = self.place(from)?;
        let (to_parent, to_name) = self.place(to)?;
        self.change(NameChange {
            kind: Kind::Rename,
            inode: moved.inode,
            removed: Some((from_parent, from_name)),
            added: Some((to_parent, to_name, moved)),
        });
        Ok(())
    }

    /// Checks a removal without doing it.
    pub(super) fn check_remove(&self, path: &Path, wants_dir: bool) -> io::Result<Entry> {
        let entry = self.find(path)?;
        match (entry.is_dir, wants_dir) {
            (true, false) => Err(io::ErrorKind::IsADirectory.into()),
            (false, true) => Err(io::ErrorKind::NotADirectory.into()),
            (true, true) if !self.now[&entry.inode].is_empty() => {
                Err(io::ErrorKind::DirectoryNotEmpty.into())
            }
            _ => Ok(entry),
        }
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        let entry = self.find(path)?;
        let place = self.place(path)?;
        self.change(NameChange {
            kind: Kind::Remove,
            inode: entry.inode,
            removed: Some(place),
            added: None,
        });
        Ok(())
    }

    fn change(&mut self, change: NameChange) {
        change.apply(&mut self.now);
        self.pending.push(change);
    }

    /// Makes the names in a directory certain, and what they rest on.
    pub(super) fn sync(&mut self, directory: Inode) {
        let mut certain: Vec<bool> =
            self.pending.iter().map(|change| change.home() == directory).collect();
        for at in (0..self.pending.len()).rev().filter(|at| certain[*at]).collect::<Vec<_>>() {
            self.mark_what_it_rests_on(at, &mut certain);
        }
        self.settle(&certain);
    }

    /// Makes all names certain.
    pub(super) fn sync_all(&mut self) {
        self.settle(&vec![true; self.pending.len()]);
    }

    fn mark_what_it_rests_on(&self, at: usize, certain: &mut [bool]) {
        for earlier in (0..at).rev() {
            if !certain[earlier] && self.pending[at].rests_on(&self.pending[earlier]) {
                certain[earlier] = true;
                self.mark_what_it_rests_on(earlier, certain);
            }
        }
    }

    fn settle(&mut self, certain: &[bool]) {
        let mut rest = Vec::new();
        for (change, certain) in std::mem::take(&mut self.pending).into_iter().zip(certain) {
            if *certain {
                change.apply(&mut self.durable);
            } else {
                rest.push(change);
            }
        }
        self.pending = rest;
    }

    /// The power went: some pending changes survive.
    pub(super) fn lose_power(&mut self, rng: &mut Rng, events: &mut Events) {
        let mut kept = Fate::draw(rng).keeps(rng, self.pending.len());
        for at in 0..self.pending.len() {
            let rests_on_lost = (0..at)
                .any(|earlier| !kept[earlier] && self.pending[at].rests_on(&self.pending[earlier]));
            kept[at] &= !rests_on_lost;
            if !kept[at] {
                events.note(match self.pending[at].kind {
                    Kind::Create => "disk: create lost",
                    Kind::Rename => "disk: rename lost",
                    Kind::Remove => "disk: removal lost",
                });
            }
        }
        self.settle(&kept);
        self.pending.clear();
        self.now = self.durable.clone();
    }

    /// Every file and directory that has a name now or may get one back.
    pub(super) fn reachable(&self) -> BTreeSet<Inode> {
        let mut found = BTreeSet::from([ROOT]);
        let trees = [&self.now, &self.durable];
        for entry in trees.iter().flat_map(|tree| tree.values()).flat_map(BTreeMap::values) {
            found.insert(entry.inode);
        }
        found.extend(self.pending.iter().map(|change| change.inode));
        found
    }

    /// Every file that has a name now, with its path.
    pub(super) fn files(&self) -> Vec<(String, Inode)> {
        let mut out = Vec::new();
        self.collect(ROOT, "", &mut out);
        out
    }

    fn collect(&self, directory: Inode, prefix: &str, out: &mut Vec<(String, Inode)>) {
        for (name, entry) in &self.now[&directory] {
            let path = format!("{prefix}/{name}");
            if entry.is_dir {
                self.collect(entry.inode, &path, out);
            } else {
                out.push((path, entry.inode));
            }
        }
    }

    fn place(&self, path: &Path) -> io::Result<(Inode, String)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let name = name.to_str().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        let parent = self.directory(path.parent().unwrap_or(Path::new("")))?;
        Ok((parent, name))
    }
}

fn resolve(tree: &BTreeMap<Inode, BTreeMap<String, Entry>>, path: &Path) -> io::Result<Entry> {
    let mut at = Entry { inode: ROOT, is_dir: true };
    for component in path.components() {
        let name = match component {
            Component::RootDir | Component::CurDir => continue,
            Component::Normal(name) => name.to_str().ok_or(io::ErrorKind::InvalidInput)?,
            Component::ParentDir | Component::Prefix(_) => {
                return Err(io::ErrorKind::InvalidInput.into());
            }
        };
        if !at.is_dir {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        at = *tree[&at.inode].get(name).ok_or(io::ErrorKind::NotFound)?;
    }
    Ok(at)
}
