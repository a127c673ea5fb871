//! Controllers die: with etcd another one decides; without their database they decide nothing.

use crate::cluster::{Cluster, address};
use crate::common::{must, wait_for};
use crate::load::Load;
use std::time::Duration;

/// The deciding controller of two dies under load, twice; then a switch, and the new one decides.
pub fn the_deciding_one_dies(cluster: &Cluster) {
    let load = Load::start(cluster, 0, |_| None);
    for _ in 0..2 {
        let (decides, other) = cluster.elected();
        cluster.lab.kill_daemon("controller", decides);
        let (now, _) = cluster.elected();
        assert_eq!(now, other, "the other one decides");
        cluster.lab.restart_daemon("controller", decides);
        cluster.settle("the new one knows all");
    }
    let ended = load.end();
    println!("the deciding controller dies twice: {}", ended.summary());
    assert_eq!(ended.failed(), 0, "{}", ended.summary());
    ended.check(cluster);
    let load = Load::start(cluster, 1, |_| None);
    let (decides, _) = cluster.elected();
    // Both at once: who decides next must find out that the switch is dead.
    cluster.lab.kill_daemon("controller", decides);
    cluster.cut("s3");
    cluster.elected();
    let dead = cluster.until_dead(address("s3"), Duration::from_secs(20));
    assert!(dead.is_some(), "the other controller takes it out of its chains");
    cluster.lab.fail("s3");
    cluster.lab.restart_daemon("controller", decides);
    cluster.lab.restore("s3");
    cluster.settle("the switch is back");
    let ended = load.end();
    println!("a controller and a switch die: {}", ended.summary());
    ended.check(cluster);
}

/// A controller whose database is lost decides nothing, also for a switch that has lost its slots,
/// and no request needs it. With the database it goes on.
pub fn the_database_is_lost(cluster: &Cluster) {
    let load = Load::start(cluster, 0, |_| None);
    let before = cluster.decisions();
    let (database, kept) = (cluster.database(), cluster.database().with_extension("kept"));
    cluster.lab.kill_daemon("controller", "controller");
    std::fs::rename(&database, &kept).expect("moved");
    cluster.lab.restart_daemon("controller", "controller");
    let cannot = || cluster.status().and_then(|status| status.cannot_decide);
    wait_for("it says that it cannot decide", || {
        cannot().is_some_and(|why| why.contains("lost, or an old copy"))
    });
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(cluster.decisions(), before, "switches keep what they have");
    let ended = load.end();
    println!("the database is lost: {}", ended.summary());
    assert_eq!(ended.failed(), 0, "{}", ended.summary());
    ended.check(cluster);
    // A switch without slots takes anything; there must be nothing.
    cluster.lab.kill_daemon("s2", "switch");
    must(&["switch", "detach", &format!("{}-s2", cluster.lab.name)]);
    cluster.lab.restart_daemon("s2", "switch");
    std::thread::sleep(Duration::from_secs(2));
    let now = cluster.decisions();
    assert_eq!((now[1], now[0]), (0, before[0]), "no switch gets a lower view");
    cluster.lab.kill_daemon("controller", "controller");
    std::fs::rename(&kept, &database).expect("moved back");
    cluster.lab.restart_daemon("controller", "controller");
    cluster.settle("the controller has its database again");
    assert!(cluster.decisions().iter().all(|version| *version > before[0]));
    let load = Load::start(cluster, 1, |_| None);
    std::thread::sleep(Duration::from_millis(500));
    let ended = load.end();
    assert_eq!(ended.failed(), 0, "{}", ended.summary());
    ended.check(cluster);
}
