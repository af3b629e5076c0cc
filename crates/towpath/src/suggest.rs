//! "Did you mean": the known name that is closest to a mistyped one.

/// The closest of `names`, if it is close enough to be meant.
pub(crate) fn closest<'n>(
    typed: &str,
    names: impl IntoIterator<Item = &'n str>,
) -> Option<&'n str> {
    let limit = (typed.chars().count() / 3).clamp(1, 3);
    names
        .into_iter()
        .map(|name| (distance(&typed.to_lowercase(), &name.to_lowercase()), name))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, name)| name)
}

/// How many letters must be inserted, removed, replaced or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut two_back: Vec<usize> = Vec::new();
    let mut back: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = back[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(back[j] + 1).min(row[j - 1] + 1);
            if 1 < i && 1 < j && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(two_back[j - 2] + 1);
            }
            row.push(best);
        }
        two_back = std::mem::replace(&mut back, row);
    }
    back[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_other_words_are_not() {
        let names = ["orders", "payments", "hello"];
        assert_eq!(closest("ordrs", names), Some("orders"));
        assert_eq!(closest("Orders", names), Some("orders"));
        assert_eq!(closest("hlelo", names), Some("hello"));
        assert_eq!(closest("invoices", names), None);
        assert_eq!(closest("x", names), None);
    }
}
