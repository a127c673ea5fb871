//! A controller whose database is gone, and `stateplane controller rebuild`.

use crate::chain::Chain;
use crate::switch::Switch;
use crate::{PATIENCE, assert_nothing_lost, update_until};
use controller::config::Config;
use controller::shell::{RebuildError, rebuild};
use state_protocol::MessageType;

/// The controller is killed and its database deleted. A new one decides nothing; with the database
/// made anew it goes on above all that there was, repairs the chain, and the store has lost
/// nothing.
pub fn a_lost_database_is_made_anew() {
    let mut chain = Chain::start(4);
    let mut switch = Switch::new(&chain, 1);
    let epoch = switch.ask(&switch.request(MessageType::LeaseRequest, 1, b"flow")).message().epoch;
    update_until(&chain, &mut switch, epoch, 1, 100);
    let before = chain.control();
    let config = Config::load(&chain.controller_config("first", chain.controller_address)).unwrap();
    let again = |without: &[_]| rebuild(&config, without, PATIENCE);
    assert!(
        matches!(again(&[]), Err(RebuildError::Run(_))),
        "the controller runs, and has the database"
    );

    let database = chain.directory.path().join("controller.redb");
    chain.kill_controller();
    assert!(matches!(again(&[]), Err(RebuildError::NotLost { .. })), "it is not lost");
    std::fs::remove_file(&database).unwrap();
    // Without its database a controller decides nothing, as long as anybody has views of the
    // cluster.
    chain.start_controller();
    let empty = chain.await_control(|status| status.peers.len() == 4);
    assert_eq!((empty.version, empty.settled), (0, false));
    let told = chain.await_control(|status| status.cannot_decide.is_some()).cannot_decide.unwrap();
    assert!(told.contains("database") && told.contains("stateplane controller rebuild"), "{told}");
    chain.kill_controller();

    // A member of the chain is dead, too: whether it had been left alone with the shard only its
    // operator knows.
    let victim = chain.place_by(&before, 1);
    chain.kill(victim);
    let dead = chain.addresses[victim];
    let error = rebuild(&config, &[], std::time::Duration::from_secs(2)).unwrap_err().to_string();
    assert!(error.contains(&dead.to_string()) && error.contains("--without"), "{error}");
    let views = again(&[dead]).unwrap();
    assert!(views.version > before.version, "{} after {}", views.version, before.version);

    chain.start_controller();
    update_until(&chain, &mut switch, epoch, 101, 200);
    let after = chain.settle();
    assert!(after.version > views.version && !after.shards[0].chain.contains(&dead), "{after:?}");
    assert_nothing_lost(&chain, &mut switch, epoch, 200);
}
