//! The secret under which connections are spread.

use super::*;

const SECRET: HashKey = HashKey([0x5eed, 0xca11]);

fn secret_services(key: HashKey) -> Arc<Services> {
    Arc::new(Services::new(&web(), &Services::default()).expect("they are valid").with_choice_key(key))
}

fn chosen(services: &Arc<Services>, tuple: &Tuple) -> SocketAddr {
    let service = services.find(tuple).expect("it is to a service");
    service.choose(tuple, None).expect("all backends are up").view().end
}

/// Tuples that a client chooses, by the key that everybody knows, to be spread to one backend.
fn aimed(count: usize) -> (SocketAddr, Vec<Tuple>) {
    let public = services(&web());
    let target = chosen(&public, &client(0));
    let tuples = (0..10_000).map(client).filter(|tuple| chosen(&public, tuple) == target);
    (target, tuples.take(count).collect())
}

#[test]
fn a_client_that_knows_the_public_key_cannot_aim_at_a_backend_of_a_cluster_with_a_secret() {
    let (target, tuples) = aimed(300);
    assert_eq!(tuples.len(), 300);
    for scheduler in [Scheduler::Maglev, Scheduler::LeastConnections] {
        let configs = with(|service| service.scheduler = scheduler);
        let secret = Arc::new(Services::new(&configs, &Services::default()).unwrap().with_choice_key(SECRET));
        let hit = tuples.iter().filter(|tuple| chosen(&secret, tuple) == target).count();
        assert!((60..=140).contains(&hit), "{scheduler:?}: {hit} of 300, where a third is chance");
    }
}

#[test]
fn nodes_with_one_secret_choose_alike_and_others_do_not() {
    let [here, there, elsewhere] = [SECRET, SECRET, HashKey([1, 2])].map(secret_services);
    let tuples: Vec<Tuple> = (0..300).map(client).collect();
    assert!(tuples.iter().all(|tuple| chosen(&here, tuple) == chosen(&there, tuple)));
    let alike = tuples.iter().filter(|tuple| chosen(&here, tuple) == chosen(&elsewhere, tuple)).count();
    assert!((60..=140).contains(&alike), "{alike} of 300, where a third is chance");
}
