//! Limits of accounts, with runners that are killed between any two steps.

use banksman_sim::{QuotaMutation, quota_history};

#[test]
fn limited_accounts_start_no_run_and_all_tasks_end() {
    let (mut probes, mut killed) = (0, 0);
    for seed in 0..60 {
        let tally = quota_history(seed, None).unwrap_or_else(|what| panic!("{what}"));
        (probes, killed) = (probes + tally.probes, killed + tally.killed);
    }
    assert!(probes > 30 && killed > 50, "{probes} probes, {killed} killed");
}

#[test]
fn every_mutation_is_detected() {
    use QuotaMutation::*;
    for (mutation, said) in [(StartsAnyway, "is limited for"), (TriesTwice, "tries the limit of"), (ForgetsProbe, "")] {
        let found = (0..200).find_map(|seed| quota_history(seed, Some(mutation)).err());
        let found = found.unwrap_or_else(|| panic!("{mutation:?} is not found"));
        assert!(found.contains(said), "{mutation:?}: {found}");
    }
}
