//! How a failing run becomes short.

/// The shortest list found that still fails: items are left out, in halves, quarters and so on down
/// to single ones (Zeller's and Hildebrandt's delta debugging). `stays`: an item that is not left
/// out.
///
/// # Errors
/// What `fails` reports.
pub fn shorten<T: Clone, E>(
    items: &[T],
    stays: impl Fn(&T) -> bool,
    mut fails: impl FnMut(&[T]) -> Result<bool, E>,
) -> Result<Vec<T>, E> {
    let mut best = items.to_vec();
    let mut chunk = best.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        while at < best.len() {
            let left_out = at..at + chunk;
            let kept = |(at, item): (usize, &T)| {
                (stays(item) || !left_out.contains(&at)).then(|| item.clone())
            };
            let candidate: Vec<T> = best.iter().enumerate().filter_map(kept).collect();
            if candidate.len() < best.len() && fails(&candidate)? {
                best = candidate;
            } else {
                at += chunk;
            }
        }
        if chunk == 1 {
            return Ok(best);
        }
        chunk = chunk.div_ceil(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_is_left_and_what_stays() {
        let items: Vec<u32> = (0..100).collect();
        let fails = |items: &[u32]| Ok::<bool, ()>(items.contains(&17) && items.contains(&71));
        assert_eq!(shorten(&items, |item| *item == 50, fails), Ok(vec![17, 50, 71]));
        assert_eq!(shorten(&[17u32, 71], |_| false, fails), Ok(vec![17, 71]));
        assert_eq!(shorten(&items, |_| false, |_| Err("stop")), Err("stop"));
    }
}
