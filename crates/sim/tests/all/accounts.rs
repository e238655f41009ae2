//! Limits of accounts, with runners that are killed between any two steps.

use banksman_sim::{QuotaMutation, quota_history};

#[test]
fn nobody_starts_while_an_account_is_limited_and_everything_is_done_in_the_end() {
    let (mut probes, mut killed) = (0, 0);
    for seed in 0..60 {
        let tally = quota_history(seed, None).unwrap_or_else(|what| panic!("{what}"));
        (probes, killed) = (probes + tally.probes, killed + tally.killed);
    }
    assert!(probes > 30 && killed > 50, "{probes} probes, {killed} killed");
}

#[test]
fn every_mistake_is_found() {
    use QuotaMutation::*;
    for (mutation, said) in [(StartsAnyway, "is limited for"), (TriesTwice, "tries the limit of"), (ForgetsProbe, "")] {
        let found = (0..200).find_map(|seed| quota_history(seed, Some(mutation)).err());
        let found = found.unwrap_or_else(|| panic!("{mutation:?} is not found"));
        assert!(found.contains(said), "{mutation:?}: {found}");
    }
}
