//! Between whom the connections are.

use lab::error::{Error, Result};
use lab::topology::Topology;
use std::net::{Ipv4Addr, SocketAddrV4};

/// Port of the server at `outside`.
const PORT: u16 = 7_000;

/// The client of a lab's connections, and who answers them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ends {
    /// The node that they come from.
    pub client: String,
    /// What they are opened to.
    pub to: SocketAddrV4,
    /// The nodes that answer, and where each listens.
    pub servers: Vec<(String, SocketAddrV4)>,
    /// Whose address the switches give a flow: a server's (a load balancer's binding), or the
    /// client's (a NAT's).
    pub server_is_bound: bool,
}

impl Ends {
    /// As the topology has it; `far`: the address of `outside`.
    ///
    /// # Errors
    /// A server that is no node with a link.
    pub fn of(topology: &Topology, far: Ipv4Addr) -> Result<Ends> {
        let Some(service) = &topology.chaos_service else {
            let to = SocketAddrV4::new(far, PORT);
            let servers = vec![("outside".to_owned(), to)];
            return Ok(Ends { client: "inside".to_owned(), to, servers, server_is_bound: false });
        };
        let server = |node: &String| {
            let address = topology.ports(node).find_map(|(_, own, _, _)| own.ip().parse().ok());
            let address: Ipv4Addr = address.ok_or_else(|| {
                Error::Run(format!(
                    "topology {}: chaos_service: no node {node} with a link",
                    topology.name
                ))
            })?;
            Ok((node.clone(), SocketAddrV4::new(address, service.port)))
        };
        let servers = service.servers.iter().map(server).collect::<Result<Vec<_>>>()?;
        Ok(Ends {
            client: service.client.clone(),
            to: service.address,
            servers,
            server_is_bound: true,
        })
    }
}
