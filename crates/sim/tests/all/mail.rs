//! Messages to tasks, with senders that are killed between any two steps, and targets that die, hang, start and are
//! restarted.

use banksman_sim::{MailMutation, MailTally, mail_history};

fn sum(seeds: std::ops::Range<u64>) -> Result<MailTally, String> {
    let mut sum = MailTally::default();
    for seed in seeds {
        let tally = mail_history(seed, None)?;
        sum.read += tally.read;
        sum.undelivered += tally.undelivered;
        sum.unknown += tally.unknown;
        sum.redelivered += tally.redelivered;
        sum.killed += tally.killed;
        sum.asked += tally.asked;
    }
    Ok(sum)
}

#[test]
fn a_run_sees_a_message_once_and_none_is_lost() {
    let sum = sum(0..60).unwrap();
    assert!(
        sum.read > 500 && sum.undelivered > 20 && sum.unknown > 20 && sum.redelivered > 50 && sum.killed > 500 && sum.asked > 5,
        "{sum:?}"
    );
}

#[test]
fn every_mutation_is_detected() {
    use MailMutation::*;
    for (mutation, said) in [
        (SendsTwice, "twice"),
        (ForgetsPrompt, "is lost"),
        (ReportsTooSoon, "reported as delivered"),
        (LeavesLock, "nothing releases the lock"),
        (ClaimsFollowUps, "has not got it"),
        (ForgetsWritten, "counts as undelivered"),
    ] {
        let found = (0..60).find_map(|seed| mail_history(seed, Some(mutation)).err());
        let found = found.unwrap_or_else(|| panic!("{mutation:?} is not found"));
        assert!(found.contains(said), "{mutation:?}: {found}");
    }
}

#[test]
#[ignore = "takes long: make soak"]
fn many_more_histories_deliver() {
    sum(1_000..6_000).unwrap();
}
