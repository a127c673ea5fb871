// Names that mean something in C, in kernel headers or in the emitted program must not get in its
// way.
#include <core.p4>
#include <v1model.p4>

header iphdr { bit<8> char; bit<8> char_; bit<8> NULL; bit<8> f_NULL; bit<16> while; bit<16> sp_valid; bit<16> linux; bit<16> s6_addr; bit<16> data; }
header xdp_md { bit<8> __u8; bit<8> XDP_PASS; }
struct state { iphdr ethhdr; xdp_md xdp; }
struct flow { bit<32> data_end; bit<8> cursor; bit<8> sp_bytes; }

const bit<8> NULL = 3;
bit<8> main2(in bit<8> bpf_redirect) { return bpf_redirect + NULL; }

parser data(packet_in packet, out state unix, inout flow linux, inout standard_metadata_t xdp) {
    state start { packet.extract(unix.ethhdr); transition goto; }
    state goto { packet.extract(unix.xdp); transition accept; }
}

control data_end(inout state unix, inout flow linux) { apply { } }

control bpf(inout state unix, inout flow linux, inout standard_metadata_t xdp) {
    register<bit<8>>(4) map_lookup_elem;
    bit<8> __u32 = 4;
    bit<8> long = 3;
    bit<8> data = 5;
    bit<8> state = 1;
    bit<8> ingress_port = 2;
    bit<8> value = 0;
    action while(bit<8> char, bit<8> key) {
        linux.cursor = char;
        value = key;
    }
    table t { key = { unix.ethhdr.char : exact; } actions = { while; NoAction; } default_action = NoAction(); }
    table t_default { key = { unix.ethhdr.char : ternary; } actions = { while; NoAction; } default_action = while(6, 7); }
    @name("t*/ int evil(void) { return \"x\"; } /*")
    table evil { key = { unix.ethhdr.char : exact; } actions = { NoAction; } size = 4; }
    apply {
        t.apply();
        t_default.apply();
        evil.apply();
        map_lookup_elem.write(1, long);
        map_lookup_elem.read(ingress_port, 1);
        unix.ethhdr.char = __u32 + long + data + state;
        unix.ethhdr.char_ = main2(linux.cursor);
        unix.ethhdr.NULL = ingress_port;
        unix.ethhdr.f_NULL = value;
        unix.ethhdr.while = 0x1234;
        unix.xdp.XDP_PASS = unix.xdp.__u8;
        xdp.egress_spec = 2;
    }
}

control egress(inout state unix, inout flow linux, inout standard_metadata_t xdp) { apply { } }
control sp_drop(inout state unix, inout flow linux) { apply { } }
control NULL_(packet_out packet, in state unix) { apply { packet.emit(unix); } }
V1Switch(data(), data_end(), bpf(), egress(), sp_drop(), NULL_()) main;
