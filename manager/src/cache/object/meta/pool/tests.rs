use super::*;

impl Pool {
    pub(in crate::cache::object::meta) fn sizes(&self) -> [usize; 4] {
        let kept = self.0.lock();
        [
            kept.texts.table.len(),
            kept.labels.table.len(),
            kept.owners.table.len(),
            kept.finalizers.table.len(),
        ]
    }
}

fn labels(pool: &Pool, labels: &[(&str, &str)]) -> Labels {
    let labels: Vec<_> = labels.iter().map(|(key, value)| (Cow::from(*key), Cow::from(*value))).collect();
    pool.labels(&labels)
}

#[test]
fn equal_lists_are_stored_once_and_different_ones_share_strings() {
    let pool = Pool::default();
    let (one, again) = (labels(&pool, &[("app", "web")]), labels(&pool, &[("app", "web")]));
    assert_eq!(one.0.as_ptr(), again.0.as_ptr());
    let other = labels(&pool, &[("app", "web"), ("tier", "web")]);
    assert!(
        one != other && Arc::ptr_eq(&one.0[0].0, &other.0[0].0) && Arc::ptr_eq(&one.0[0].1, &other.0[1].1)
    );
    assert_eq!(pool.sizes(), [3, 2, 0, 0]);
}

#[test]
fn a_sweep_removes_only_unused_entries() {
    let pool = Pool::default();
    let (kept, gone) = (labels(&pool, &[("app", "web")]), labels(&pool, &[("app", "api")]));
    drop(gone);
    pool.sweep();
    assert_eq!(pool.sizes(), [2, 1, 0, 0]);
    assert_eq!(kept.0.as_ptr(), labels(&pool, &[("app", "web")]).0.as_ptr(), "the same allocation");
    drop(kept);
    pool.sweep();
    assert_eq!(pool.sizes(), [0; 4]);
}

#[test]
fn unused_strings_do_not_accumulate() {
    let pool = Pool::default();
    let kept: Vec<_> = (0..500).map(|at| pool.text(&format!("kept {at}"))).collect();
    for at in 0..100_000 {
        pool.text(&format!("passing {at}"));
    }
    let [texts, ..] = pool.sizes();
    assert!(texts <= 2 * kept.len() + 1, "{texts} are kept for {} in use", kept.len());
}

#[test]
fn an_empty_list_adds_no_entry() {
    let pool = Pool::default();
    assert!(labels(&pool, &[]).is_empty() && pool.finalizers(&[]).is_empty());
    assert_eq!(pool.sizes(), [0; 4]);
}
