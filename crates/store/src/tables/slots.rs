//! Holders of semaphores, and the slots that they hold.

use banksman_core::Name;
use banksman_core::resource::grant::Grant;

use crate::columns::{OfGrant, Text};
use crate::table::table;

table! {
    Slots "slots" of &'a Name => Grant, |name, grant|
    by ["semaphore", "holder"] = [Text name, Text &grant.claim.holder]; upserts
    fixed { semaphore: Text = name }
    changing { grant: OfGrant = grant }
    read (Name, Grant) = (semaphore, grant);
    statements {
        OfSemaphore => "SELECT {slots} FROM slots WHERE project = $1 AND semaphore = $2 ORDER BY holder",
        OfHolder => "SELECT {slots} FROM slots WHERE project = $1 AND semaphore = $2 AND holder = $3",
        /// Grants that time or a death may end: the content of the partial index `slots_mortal`.
        Mortal => "SELECT {slots} FROM slots WHERE project = $1 AND semaphore = $2 \
            AND (ttl IS NOT NULL OR max_hold IS NOT NULL OR offer IS NOT NULL OR processes IS NOT NULL) ORDER BY holder",
        All => "SELECT {slots} FROM slots WHERE project = $1 ORDER BY semaphore, holder",
        Waited => "SELECT {slots} FROM slots WHERE project = $1 AND semaphore IN ({waited semaphore}) ORDER BY semaphore, holder",
        Manual => "{family} SELECT {slots s} FROM claims c CROSS JOIN slots s WHERE {claimed semaphore} \
            AND s.project = $1 AND s.semaphore = c.resource",
        Expired => "SELECT {slots} FROM slots WHERE project = $1 AND semaphore IN (SELECT name FROM semaphores WHERE project = $1 \
            AND name IN (SELECT semaphore FROM slots WHERE project = $1 AND {timed}) ORDER BY name LIMIT $3) \
            ORDER BY semaphore, holder",
        Claimed => "SELECT {slots s} FROM claims c CROSS JOIN slots s WHERE {claims_of} AND c.kind = 'semaphore' \
            AND s.project = $1 AND s.semaphore = c.resource",
        OfPipeline => "SELECT {slots s} FROM {pipeline_holders} CROSS JOIN slots h CROSS JOIN slots s WHERE h.project = $1 \
            AND {of_pipeline h} AND s.project = $1 AND s.semaphore = h.semaphore",
        OfFamilyPipelines => "{family} SELECT {slots s} FROM slots h CROSS JOIN slots s WHERE h.project = $1 AND {of_family_pipelines h} \
            AND s.project = $1 AND s.semaphore = h.semaphore",
        Awaited => "{awaited semaphore} SELECT {slots} FROM slots WHERE project = $1 \
            AND semaphore IN (SELECT name FROM awaited) ORDER BY semaphore, holder",
    }
}
