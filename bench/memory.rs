//! Memory of the manager by number of agents, and the straight line through it.

use crate::numbers::exponent;
use crate::table;

const MANY: u32 = 10_000;
const GOAL: &str = "<= 110 MiB";

/// From resident KiB by number of agents, the first without any.
pub(crate) fn report(points: &[(u32, f64)]) {
    table::part("Memory of the manager (resident)");
    for (agents, kib) in points {
        table::alone(&format!("{agents} agents"), &table::mebibytes(*kib), if *agents == MANY { GOAL } else { "" });
    }
    let (Some((_, empty)), Some((most, full))) = (points.first(), points.last()) else { return };
    let slope = (full - empty) / f64::from(*most);
    table::alone("each agent more", &format!("{slope:.1} KiB"), "");
    if *most < MANY {
        let estimate = empty + slope * f64::from(MANY);
        table::alone(&format!("{MANY} agents, estimated"), &table::mebibytes(estimate), GOAL);
        table::remark("an estimate: a straight line from none to the largest size, not a measurement");
    }
    let above: Vec<(u32, f64)> = points.iter().skip(1).map(|(agents, kib)| (*agents, kib - empty)).collect();
    if exponent(&above).is_some() {
        table::growth("growth of what is above none", &above);
    }
}
