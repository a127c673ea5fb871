//! What extern functions and objects do to a packet's way through the program.

/// What follows a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The next statement.
    GoesOn,
    /// The next statement, or the packet waits elsewhere.
    MayWait,
    /// Nothing: the packet goes up to the kernel, as it came in.
    ToHost,
    /// Nothing: another packet takes its place.
    Replaced,
}

/// An extern function of the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// As the program calls it.
    pub name: &'static str,
    /// What follows.
    pub then: Then,
    /// It may call functions of the kernel, which is not possible while a lock is held.
    pub calls_kernel: bool,
    /// The packet is dropped, unless the program says otherwise later.
    pub marks_to_drop: bool,
}

const fn plain(name: &'static str) -> Function {
    Function { name, then: Then::GoesOn, calls_kernel: false, marks_to_drop: false }
}

const fn kernel(name: &'static str) -> Function {
    Function { calls_kernel: true, ..plain(name) }
}

/// Those that may stand in parsers, ingress, egress and deparser. What is not listed is not known
/// to go on. A new extern function gets its line here.
const FUNCTIONS: [Function; 17] = [
    Function { marks_to_drop: true, ..plain("mark_to_drop") },
    plain("assert"),
    plain("assume"),
    plain("log_msg"),
    plain("truncate"),
    kernel("random"),
    kernel("hash"),
    kernel("wall_clock_ns"),
    kernel("switch_id"),
    kernel("fib_lookup_ipv4"),
    kernel("fib_lookup_ipv6"),
    kernel("fib_mtu"),
    kernel("gateway_check"),
    kernel("clamp_tcp_mss"),
    Function { then: Then::MayWait, ..kernel("fragment_ports") },
    Function { then: Then::ToHost, ..plain("to_host") },
    Function { then: Then::Replaced, ..kernel("reply_icmp_error") },
];

/// What is known of an extern function.
pub fn function(name: &str) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

/// Does the call end the packet's way by handing it to the kernel?
pub fn is_to_host(name: &str) -> bool {
    function(name).is_some_and(|function| function.then == Then::ToHost)
}

/// Does the call mark the packet to be dropped?
pub fn marks_to_drop(name: &str) -> bool {
    function(name).is_some_and(|function| function.marks_to_drop)
}

/// Is it an extern type of v1model whose methods read and write this switch's maps, and go on?
pub fn is_plain_object(extern_type: &str) -> bool {
    matches!(extern_type, "register" | "counter" | "direct_counter")
}
