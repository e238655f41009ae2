//! Semaphores. Their holders are in `slots`.

use banksman_core::Name;
use banksman_core::resource::semaphore::{Config, Semaphore};

use crate::columns::{Int, Text, columns};
use crate::table::table;

columns! {
    /// The defined properties.
    OfConfig of Config {
        capacity: Int,
        ttl("default_ttl"): Int,
    }
}

table! {
    Semaphores "semaphores" of &'a Name => Semaphore, |_name, semaphore|
    by ["name"] = [Text &semaphore.name]; upserts
    fixed { name: Text }
    changing { config: OfConfig }
    read Semaphore = Semaphore::new(name, config);
    statements {
        ByName => "SELECT {semaphores} FROM semaphores WHERE project = $1 AND name = $2",
        All => "SELECT {semaphores} FROM semaphores WHERE project = $1 ORDER BY name",
        Waited => "SELECT {semaphores} FROM semaphores WHERE project = $1 AND name IN ({waited semaphore}) ORDER BY name",
        Manual => "{family} SELECT {semaphores s} FROM claims c CROSS JOIN semaphores s WHERE {claimed semaphore} \
            AND s.project = $1 AND s.name = c.resource",
        Expired => "SELECT {semaphores} FROM semaphores WHERE project = $1 \
            AND name IN (SELECT semaphore FROM slots WHERE project = $1 AND {timed}) ORDER BY name LIMIT $3",
        Claimed => "SELECT {semaphores s} FROM claims c CROSS JOIN semaphores s WHERE {claims_of} AND c.kind = 'semaphore' \
            AND s.project = $1 AND s.name = c.resource",
        OfPipeline => "SELECT {semaphores s} FROM {pipeline_holders} CROSS JOIN slots h CROSS JOIN semaphores s WHERE h.project = $1 \
            AND {of_pipeline h} AND s.project = $1 AND s.name = h.semaphore",
        OfFamilyPipelines => "{family} SELECT {semaphores s} FROM slots h CROSS JOIN semaphores s WHERE h.project = $1 AND {of_family_pipelines h} \
            AND s.project = $1 AND s.name = h.semaphore",
        Awaited => "{awaited semaphore} SELECT {semaphores} FROM semaphores WHERE project = $1 \
            AND name IN (SELECT name FROM awaited) ORDER BY name",
    }
}
