//! What is measured of a manager that has a number of agents to look after.

use crate::cluster::{Cluster, OPERATED};
use crate::manager::Manager;
use crate::observe::complete;
use crate::{Arguments, idle, memory, repair, restart, table};

pub(crate) async fn measure(cluster: &Cluster, arguments: &Arguments) -> anyhow::Result<()> {
    let (mut resident, mut repairs, mut restarts) = (Vec::new(), Vec::new(), Vec::new());
    for &size in &arguments.sizes {
        cluster.clear().await?;
        let manager = Manager::ready().await?;
        manager.settle().await?;
        if resident.is_empty() {
            resident.push((0, manager.resident()?));
        }
        tokio::try_join!(cluster.create_agents(OPERATED, size), complete(cluster, OPERATED, size), cluster.make_available(size))?;
        manager.settle().await?;
        table::part("Requests to the API server at rest");
        idle::measure(&manager, size, arguments.rest).await?;
        resident.push((size, manager.resident()?));
        table::part("Repair of a manual change, from sending it; the floor is a watch that is told of it");
        repairs.push((size, repair::measure(cluster, size, arguments.edits).await?));
        drop(manager);
        table::part("Start beside agents that are all as they should be; the floor is a client that lists the same objects");
        restarts.push((size, restart::measure(cluster, size).await?));
    }
    table::growth("growth of the start", &restarts);
    table::growth("growth of a repair's p50", &repairs);
    memory::report(&resident);
    Ok(())
}
