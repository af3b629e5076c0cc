//! The map is true: every path that `ARCHITECTURE.md` and the README name exists.

#[cfg(test)]
mod tests {
    use crate::root;

    /// Words in backticks that look like paths of this repository.
    fn paths(text: &str) -> Vec<&str> {
        let quoted = text.split('`').skip(1).step_by(2);
        quoted.filter(|word| word.contains('/') && !word.contains([' ', ':', '*', '<'])).collect()
    }

    #[test]
    fn every_path_in_the_documents_exists() {
        for document in ["ARCHITECTURE.md", "README.md"] {
            let text = std::fs::read_to_string(root().join(document)).unwrap();
            let named = paths(&text);
            for path in named {
                let exists = root().join(path).exists() || root().join("docs").join(path).exists();
                // `adr/` stands for docs/adr/ where the sentence says so.
                assert!(exists || path.starts_with('/'), "{document} names {path}");
            }
        }
    }

    #[test]
    fn the_map_names_every_crate() {
        let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
        for entry in std::fs::read_dir(root().join("crates")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(text.contains(&format!("`crates/{name}/`")), "ARCHITECTURE.md lacks {name}");
        }
    }
}
