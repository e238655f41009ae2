use proptest::prelude::*;

use super::*;
use crate::event::Kind;
use crate::resource::grant::Waiter;
use crate::test_world::{ask, holder, name};
use crate::time::Stamp;

/// Resources with their holders and waiters, and the next ticket.
#[derive(Clone, Default)]
struct Site {
    resources: Vec<Built>,
    tickets: i64,
}

#[derive(Debug, Clone)]
struct Built {
    resource: Resource,
    capacity: u64,
    holders: BTreeMap<HolderId, u64>,
    waiters: Waiters,
}

/// One line per resource, such as `lock L: a 1 | 4 b 1 under c`.
impl std::fmt::Debug for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for built in &self.resources {
            let holders: Vec<_> = built.holders.iter().map(|(who, weight)| format!("{who} {weight}")).collect();
            let wish = |waiter: &Waiter| {
                let family: Vec<_> = waiter.claim.ancestors.iter().map(|who| format!(" under {who}")).collect();
                format!("{} {} {}{}", waiter.ticket, waiter.claim.holder, waiter.claim.weight, family.concat())
            };
            let waiters: Vec<_> = built.waiters.iter().map(wish).collect();
            writeln!(f, "{} of {}: {} | {}", built.resource, built.capacity, holders.join(", "), waiters.join(", "))?;
        }
        Ok(())
    }
}

impl Site {
    fn lock(mut self, label: &str, by: &str) -> Site {
        let resource = Resource { kind: Kind::Lock, name: name(label) };
        let holders = BTreeMap::from([(holder(by), 1)]);
        self.resources.push(Built { resource, capacity: 1, holders, waiters: Waiters::default() });
        self
    }

    fn semaphore(mut self, label: &str, capacity: u64, by: &[(&str, u64)]) -> Site {
        let resource = Resource { kind: Kind::Semaphore, name: name(label) };
        let holders = by.iter().map(|(who, weight)| (holder(who), *weight)).collect();
        self.resources.push(Built { resource, capacity, holders, waiters: Waiters::default() });
        self
    }

    fn wait(&mut self, label: &str, ask: crate::resource::grant::Ask) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let pid = i32::try_from(self.tickets).unwrap();
        let standing = ask.clone().waits(pid).wait.unwrap();
        let built = self.resources.iter_mut().find(|built| built.resource.name.as_str() == label).unwrap();
        built.waiters.push(Waiter { ticket, claim: ask.claim, standing, since: Stamp::default(), seen: Stamp::default().lease });
        ticket
    }

    fn waits(&mut self, who: &str, label: &str) -> Ticket {
        self.wait(label, ask(who))
    }

    /// The cycle that a new wait closes.
    fn cycle_of(&mut self, label: &str, ask: crate::resource::grant::Ask) -> Option<Vec<String>> {
        let ticket = self.wait(label, ask);
        self.cycle(ticket)
    }

    /// The cycle in words, such as `a -> L`.
    fn cycle(&self, ticket: Ticket) -> Option<Vec<String>> {
        let links = self.find(ticket)?;
        Some(links.iter().map(|link| format!("{} -> {}", link.party, link.resource.name)).collect())
    }

    fn find(&self, ticket: Ticket) -> Option<Vec<Link>> {
        let view: Vec<Held<'_>> = self
            .resources
            .iter()
            .map(|built| Held {
                resource: built.resource.clone(),
                capacity: built.capacity,
                holders: built.holders.iter().map(|(holder, weight)| (holder, *weight)).collect(),
                waiters: &built.waiters,
                strangers: built.resource.kind == Kind::Lock,
            })
            .collect();
        find(&view, &[], ticket)
    }
}

#[test]
fn two_waits_for_each_other_are_a_cycle() {
    let mut site = Site::default().lock("L", "a").lock("M", "b");
    assert_eq!(site.cycle_of("M", ask("a")), None);
    assert_eq!(site.cycle_of("L", ask("b")), Some(vec!["b -> L".into(), "a -> M".into()]));
}

#[test]
fn three_waits_in_a_cycle_are_deadlocked_and_in_a_row_are_not() {
    let mut site = Site::default().lock("L", "a").lock("M", "b").lock("N", "c");
    site.waits("a", "M");
    assert_eq!(site.cycle_of("N", ask("b")), None);
    assert_eq!(site.cycle_of("L", ask("c")), Some(vec!["c -> L".into(), "a -> M".into(), "b -> N".into()]));
}

#[test]
fn a_wait_behind_a_cycle_gets_the_cycle_without_itself() {
    let mut site = Site::default().lock("L", "a").lock("M", "b");
    site.waits("a", "M");
    site.waits("b", "L");
    assert_eq!(site.cycle_of("L", ask("c")), Some(vec!["a -> M".into(), "b -> L".into()]));
}

#[test]
fn a_child_that_waits_for_its_ancestor_is_deadlocked() {
    let mut site = Site::default().lock("L", "grandparent");
    assert_eq!(site.cycle_of("L", ask("child").under(&["parent", "grandparent"])), Some(vec!["grandparent -> L".into()]));
}

#[test]
fn the_wait_of_a_child_blocks_its_ancestors() {
    let mut site = Site::default().lock("L", "parent").lock("M", "b");
    assert_eq!(site.cycle_of("M", ask("child").under(&["parent"])), None);
    assert_eq!(site.cycle_of("L", ask("b")), Some(vec!["b -> L".into(), "parent -> M".into()]));
}

#[test]
fn siblings_do_not_block_each_other() {
    let mut site = Site::default().lock("L", "brother");
    assert_eq!(site.cycle_of("L", ask("sister").under(&["parent"])), None);
}

#[test]
fn a_name_is_a_stranger_to_a_lock_that_it_holds() {
    let mut site = Site::default().lock("L", "a").lock("M", "b");
    assert_eq!(site.cycle_of("L", ask("a")), None);
    assert_eq!(site.cycle_of("L", ask("b")), None);
}

#[test]
fn a_name_is_a_stranger_to_an_earlier_waiter_of_that_name() {
    let mut site = Site::default().lock("L", "x");
    site.waits("a", "L");
    assert_eq!(site.cycle_of("L", ask("a")), None);
    assert_eq!(site.cycle_of("L", ask("a")), None);
}

#[test]
fn a_stranger_behind_a_deadlocked_holder_is_deadlocked() {
    let mut site = Site::default().lock("L", "a").lock("M", "b");
    site.waits("a", "M");
    site.waits("b", "L");
    assert_eq!(site.cycle_of("L", ask("a")), Some(vec!["a -> M".into(), "b -> L".into()]));
}

#[test]
fn two_increases_that_block_each_other_are_deadlocked() {
    let mut site = Site::default().semaphore("S", 4, &[("a", 2), ("b", 1)]);
    assert_eq!(site.cycle_of("S", ask("a").weight(4)), None, "b waits for nothing and will finish");
    let second = site.wait("S", ask("b").weight(2));
    // One slot is free, but the order is strict and a needs two.
    assert_eq!(site.cycle(second), Some(vec!["b -> S".into(), "a -> S".into()]));
}

#[test]
fn an_increase_needs_only_the_added_slots() {
    let mut site = Site::default().semaphore("S", 3, &[("a", 1), ("b", 1), ("c", 1)]);
    site.wait("S", ask("a").weight(2));
    assert_eq!(site.cycle_of("S", ask("b").weight(2)), None, "c finishes, then a has what it wants, then b");
}

#[test]
fn an_earlier_waiter_that_will_be_stuck_is_part_of_the_cycle() {
    let mut site = Site::default().lock("L", "x").lock("M", "z");
    site.waits("y", "M");
    site.waits("y", "L");
    assert_eq!(site.cycle_of("L", ask("z")), Some(vec!["z -> L".into(), "y -> M".into()]));
}

/// A waiter for the brute force below.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Wish {
    ticket: Ticket,
    who: String,
    family: Vec<String>,
    weight: u64,
}

/// One moment of the brute force: holders and waiters of each resource.
type Moment = Vec<(BTreeMap<String, u64>, Vec<Wish>)>;

/// The first moment. A stranger of the same name gets a name of its own, which is the definition of a stranger.
fn moment(site: &Site) -> Moment {
    let resource = |built: &Built| {
        let holders: BTreeMap<String, u64> = built.holders.iter().map(|(who, weight)| (who.to_string(), *weight)).collect();
        let mut seen: BTreeSet<String> = holders.keys().cloned().collect();
        let wish = |waiter: &Waiter| {
            let mut who = waiter.claim.holder.to_string();
            if built.resource.kind == Kind::Lock && !seen.insert(who.clone()) {
                who = format!("{who} of {}", waiter.ticket);
            }
            let ancestors = waiter.claim.ancestors.iter().map(HolderId::to_string);
            let family = std::iter::once(who.clone()).chain(ancestors).collect();
            Wish { ticket: waiter.ticket, who, family, weight: u64::from(waiter.claim.weight) }
        };
        let waiters = built.waiters.iter().map(wish).collect();
        (holders, waiters)
    };
    site.resources.iter().map(resource).collect()
}

/// Every moment that can come next: one party finishes, or one first waiter is served.
fn successors(site: &Site, moment: &Moment) -> Vec<Moment> {
    let mut next = Vec::new();
    let waiting = |who: &String| moment.iter().any(|(_, waiters)| waiters.iter().any(|wish| wish.family.contains(who)));
    let parties: BTreeSet<&String> = moment.iter().flat_map(|(holders, _)| holders.keys()).collect();
    for party in parties.into_iter().filter(|party| !waiting(party)) {
        let mut after = moment.clone();
        after.iter_mut().for_each(|(holders, _)| holders.retain(|who, _| who != party));
        next.push(after);
    }
    for (index, (holders, waiters)) in moment.iter().enumerate() {
        let Some(front) = waiters.first() else { continue };
        let mut after = moment.clone();
        let had = holders.get(&front.who).copied().unwrap_or(0);
        after[index].0.insert(front.who.clone(), front.weight.max(had));
        after[index].1.remove(0);
        if front.weight <= had || after[index].0.values().sum::<u64>() <= site.resources[index].capacity {
            next.push(after);
        }
    }
    next
}

/// The remaining waits for every order of events.
fn leftovers(site: &Site) -> BTreeSet<BTreeSet<Ticket>> {
    let (mut seen, mut todo, mut ends) = (BTreeSet::new(), vec![moment(site)], BTreeSet::new());
    while let Some(moment) = todo.pop() {
        if !seen.insert(moment.clone()) {
            continue;
        }
        let next = successors(site, &moment);
        if next.is_empty() {
            ends.insert(moment.iter().flat_map(|(_, waiters)| waiters.iter().map(|wish| wish.ticket)).collect());
        }
        todo.extend(next);
    }
    ends
}

/// Asserts that each party of a cycle blocks the one before: it, or a holder on whose behalf it waits, holds the
/// resource of that wait, or is an earlier waiter for it.
fn assert_cycle_is_true(site: &Site, links: &[Link]) {
    let find = |ticket: Ticket| {
        let built = site.resources.iter().find(|built| built.waiters.position(ticket).is_some()).unwrap();
        (built, built.waiters.get(built.waiters.position(ticket).unwrap()).unwrap())
    };
    for (link, next) in links.iter().zip(links.iter().cycle().skip(1)) {
        let (built, waiter) = find(link.ticket);
        assert_eq!((&link.resource, &link.process), (&built.resource, &waiter.standing.process));
        let (_, next_waiter) = find(next.ticket);
        let family = std::iter::once(&next_waiter.claim.holder).chain(&next_waiter.claim.ancestors);
        let before = |who: &HolderId| built.waiters.iter().any(|w| w.ticket < link.ticket && w.claim.holder == *who);
        // The slots that it holds itself do not block its own increase.
        let increase = |who: &HolderId| built.resource.kind == Kind::Semaphore && *who == waiter.claim.holder;
        let in_the_way = |who: &HolderId| before(who) || built.holders.contains_key(who) && !increase(who);
        assert!(family.into_iter().any(in_the_way), "{next:?} does not block {link:?}\n{links:#?}\n{site:#?}");
    }
}

const PARTIES: [&str; 4] = ["a", "b", "c", "d"];

prop_compose! {
    /// Two locks and a semaphore, perhaps with more slots given out than it has now, and up to six waiters.
    fn any_site()(
        locks in prop::array::uniform2(0..4_usize),
        capacity in 1..4_u64,
        slots in prop::array::uniform4(0..3_u64),
        waits in prop::collection::vec((0..3_usize, 0..4_usize, 1..4_u32, prop::option::weighted(0.3, 0..4_usize)), 1..7),
    ) -> Site {
        let by: Vec<_> = PARTIES.into_iter().zip(slots).filter(|(_, weight)| *weight > 0).collect();
        let mut site = Site::default().lock("0", PARTIES[locks[0]]).lock("1", PARTIES[locks[1]]).semaphore("2", capacity, &by);
        for (resource, who, weight, parent) in waits {
            let weight = if resource == 2 { weight.min(u32::try_from(capacity).unwrap()) } else { 1 };
            let parents: Vec<_> = parent.map(|parent| PARTIES[parent]).into_iter().collect();
            site.wait(&resource.to_string(), ask(PARTIES[who]).weight(weight).under(&parents));
        }
        site
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    #[test]
    fn deadlocked_waits_remain_in_every_order_of_events(site in any_site()) {
        let ends = leftovers(&site);
        prop_assert_eq!(ends.len(), 1, "the order of events must not matter");
        let stuck = ends.first().unwrap();
        for ticket in (1..=site.tickets).map(Ticket) {
            let cycle = site.find(ticket);
            prop_assert_eq!(cycle.is_some(), stuck.contains(&ticket), "ticket {}", ticket);
            cycle.iter().for_each(|links| assert_cycle_is_true(&site, links));
        }
    }
}
