//! What a gateway needs beyond headers and tables: checks of what came in, routes' MTUs, packets
//! that the kernel sends on, ICMP errors, fragments, TCP's maximum segment size.
//!
//! The C is in `bpf/net/stateplane_gateway*.h`. An object has only the parts that its program uses.

use crate::externs::operand;
use crate::generator::Generator;
use crate::system::Leaving;
use crate::walk::{self, Visitor};
use num_bigint::BigInt;
use p4_ir::{Argument, Expr, ExprKind, Location, Program, Statement, StatementKind, Type};

/// `KERNEL_PORT` in stateplane.p4.
const KERNEL_PORT: u32 = 510;
/// Bits of a port.
const PORT_BITS: u32 = 9;

/// Which parts a program uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Uses {
    /// `gateway_check`.
    pub check: bool,
    /// `fib_mtu`, or what needs a route's MTU.
    pub mtu: bool,
    /// `reply_icmp_error`.
    pub icmp: bool,
    /// `fragment_ports`.
    pub fragments: bool,
    /// `clamp_tcp_mss`.
    pub clamp: bool,
    /// The program names `KERNEL_PORT`.
    pub kernel_port: bool,
}

impl Uses {
    /// Looks through a program.
    pub(crate) fn new(program: &Program) -> Uses {
        let mut uses = Uses::default();
        walk::program(program, &mut uses);
        for table in &program.tables {
            let entries = table.entries.iter().map(|entry| &entry.action);
            for call in entries.chain([&table.default_action]) {
                let Some(action) = table.actions.get(call.action as usize) else { continue };
                let parameters = &program.actions[action.action.index()].parameters;
                uses.kernel_port |=
                    parameters.iter().zip(&call.arguments).any(|(parameter, value)| {
                        is_kernel_port(value, &program.variables[parameter.index()].ty)
                    });
            }
        }
        uses
    }

    /// Macros that choose the parts of the runtime.
    pub(crate) fn defines(self) -> Vec<&'static str> {
        let parts = [
            (self.check, "SP_GATEWAY_CHECK"),
            (self.icmp, "SP_GATEWAY_ICMP"),
            (self.fragments, "SP_GATEWAY_FRAGMENTS"),
            (self.clamp, "SP_GATEWAY_CLAMP"),
            (self.kernel_port, "SP_GATEWAY_KERNEL_PORT"),
        ];
        parts.into_iter().filter_map(|(is_used, name)| is_used.then_some(name)).collect()
    }
}

fn is_kernel_port(value: &BigInt, ty: &Type) -> bool {
    *ty == Type::bits(PORT_BITS) && *value == BigInt::from(KERNEL_PORT)
}

impl Visitor for Uses {
    fn statement(&mut self, statement: &Statement) {
        let StatementKind::Extern { instance: None, name, .. } = &statement.kind else { return };
        match name.as_str() {
            "gateway_check" => self.check = true,
            "fib_mtu" => self.mtu = true,
            "reply_icmp_error" => self.icmp = true,
            "fragment_ports" => self.fragments = true,
            "clamp_tcp_mss" => (self.clamp, self.mtu) = (true, true),
            _ => {}
        }
    }

    fn read(&mut self, expr: &Expr) {
        if let ExprKind::Const(value) = &expr.kind {
            self.kernel_port |= is_kernel_port(value, &expr.ty);
        }
    }
}

/// The MTU of the route that the last fib_lookup found.
const ROUTE_MTU: &str = "sp_route_mtu";
/// What the maximum segment size is at most, with its headers; 0: it stays.
const CLAMP: &str = "sp_clamp_mtu";

impl Generator<'_> {
    /// Variables that the program's calls share. Before the pipeline.
    pub(crate) fn declare_gateway(&mut self) {
        for (is_used, name) in [(self.gateway.mtu, ROUTE_MTU), (self.gateway.clamp, CLAMP)] {
            if is_used {
                self.declare_local("__u32", name, "0");
            }
        }
    }

    /// Where fib_lookup leaves the route's MTU.
    pub(crate) fn route_mtu(&mut self) -> &'static str {
        if self.gateway.mtu {
            return ROUTE_MTU;
        }
        self.out.line("__u32 sp_mtu;");
        "sp_mtu"
    }

    /// A call of one of this module's functions; false if it is none.
    pub(crate) fn gateway_call(
        &mut self,
        name: &str,
        arguments: &[Argument],
        result: Option<&Expr>,
        location: Location,
    ) -> bool {
        match name {
            "gateway_check" => {
                // The drops are counted also where the program does not look.
                let call =
                    "sp_gateway_check(xdp, data, data_end, ingress_port, sp_bytes, sp_padding)";
                match result {
                    Some(target) => self.store(target, call),
                    None => self.out.line(format!("{call};")),
                }
            }
            "fib_mtu" => {
                if let Some(target) = result {
                    self.store(target, &format!("(__u16){ROUTE_MTU}"));
                }
            }
            "reply_icmp_error" => self.reply_icmp_error(arguments),
            "fragment_ports" => self.fragment_ports(arguments, result, location),
            "clamp_tcp_mss" => {
                self.out.line(format!("{CLAMP} = sp_gateway_clamp(ingress_port, {ROUTE_MTU});"));
            }
            _ => return false,
        }
        true
    }

    fn reply_icmp_error(&mut self, arguments: &[Argument]) {
        let (Some(kind), Some(code), Some(rest)) =
            (operand(arguments, 0), operand(arguments, 1), operand(arguments, 2))
        else {
            return;
        };
        let (kind, code, rest) = (self.expr(kind), self.expr(code), self.expr(rest));
        self.leave(Leaving::Replaced);
        self.out
            .line(format!("return sp_gateway_reply(xdp, ingress_port, {kind}, {code}, {rest});"));
    }

    fn fragment_ports(
        &mut self,
        arguments: &[Argument],
        result: Option<&Expr>,
        location: Location,
    ) {
        let mut inputs = Vec::new();
        for argument in arguments {
            match argument {
                Argument::In(value) | Argument::InOut(value) => inputs.push(self.expr(value)),
                _ => {}
            }
        }
        let [source, destination, identification, protocol, first, source_port, destination_port] =
            &inputs[..]
        else {
            self.internal(location, "fragment_ports with other arguments than declared");
            return;
        };
        self.open("");
        self.out.line(format!(
            "__u32 sp_source_port = {source_port}, sp_destination_port = {destination_port};"
        ));
        self.out.line(format!(
            "__u32 sp_found = sp_fragment_ports(xdp, ingress_port, {source}, {destination}, {identification}, \
             {protocol}, {first}, &sp_source_port, &sp_destination_port);"
        ));
        self.open("if (sp_found == SP_FRAGMENT_HELD)");
        self.leave(Leaving::Held);
        self.out.line("return sp_consumed();");
        self.out.line("}");
        for (index, value) in [(5, "sp_source_port"), (6, "sp_destination_port")] {
            if let Some(target) = operand(arguments, index) {
                self.store_truncated(target, value);
            }
        }
        if let Some(target) = result {
            self.store(target, "sp_found");
        }
        self.out.line("}");
    }

    /// Once the packet is finished: before it leaves by `port`.
    pub(crate) fn finish_gateway(&mut self) {
        if self.gateway.clamp {
            self.out.line(format!(
                "if ({CLAMP}) sp_gateway_clamp_mss(xdp, {CLAMP}, sp_padding, \
                 sp_ingress_ifindex(xdp, ingress_port, sp_again));"
            ));
        }
    }

    /// Sends the finished packet by the kernel if the program says so.
    pub(crate) fn send_by_kernel(&mut self, port: &str) {
        if self.gateway.kernel_port {
            self.out
                .line(format!("if ({port} == SP_KERNEL_PORT) return sp_send_by_kernel(xdp, ingress_port, sp_bytes);"));
        }
    }
}
