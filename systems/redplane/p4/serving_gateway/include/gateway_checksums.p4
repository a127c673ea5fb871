// gateway_checksums.p4: the checksums of what comes in, and of what the gateway makes or changes.
// Included by serving_gateway.p4.

control GatewayVerifyChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        // A user's header with a wrong checksum would be found wrong by a receiver, but only there.
        verify_checksum(meta.kind == Kind.UPLINK && hdr.ipv4.ihl == 5,
                        { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_length,
                          hdr.ipv4.identification,
                          hdr.ipv4.reserved, hdr.ipv4.dont_fragment, hdr.ipv4.more_fragments,
                          hdr.ipv4.fragment_offset,
                          hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination },
                        hdr.ipv4.checksum, HashAlgorithm.csum16);
        verify_checksum(meta.kind == Kind.UPLINK && hdr.options.isValid(),
                        { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.total_length,
                          hdr.ipv4.identification,
                          hdr.ipv4.reserved, hdr.ipv4.dont_fragment, hdr.ipv4.more_fragments,
                          hdr.ipv4.fragment_offset,
                          hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.source, hdr.ipv4.destination,
                          hdr.options.options },
                        hdr.ipv4.checksum, HashAlgorithm.csum16);
        // The answer gets fresh checksums: a request with a wrong one must not be made to look
        // right.
        verify_checksum(hdr.signalling.isValid(),
                        { hdr.outer_ipv4.version, hdr.outer_ipv4.ihl, hdr.outer_ipv4.tos,
                          hdr.outer_ipv4.total_length,
                          hdr.outer_ipv4.identification, hdr.outer_ipv4.reserved,
                          hdr.outer_ipv4.dont_fragment, hdr.outer_ipv4.more_fragments,
                          hdr.outer_ipv4.fragment_offset, hdr.outer_ipv4.ttl,
                          hdr.outer_ipv4.protocol, hdr.outer_ipv4.source,
                          hdr.outer_ipv4.destination },
                        hdr.outer_ipv4.checksum, HashAlgorithm.csum16);
        // With the checksum itself among the data the sum is 0 if it is right, also where it is
        // 0xffff, which UDP sends for 0 (RFC 768).
        verify_checksum(hdr.signalling.isValid() && hdr.udp.checksum != 0,
                        { hdr.outer_ipv4.source, hdr.outer_ipv4.destination, 8w0,
                          hdr.outer_ipv4.protocol, hdr.udp.length, hdr.udp.source_port,
                          hdr.udp.destination_port, hdr.udp.length, hdr.signalling.flags,
                          hdr.signalling.type, hdr.signalling.length, hdr.signalling.teid,
                          hdr.signalling.sequence, hdr.signalling.spare, hdr.signalling.user,
                          hdr.signalling.uplink_teid, hdr.signalling.downlink_teid,
                          hdr.signalling.station, hdr.signalling.cause, hdr.signalling.spare2,
                          hdr.udp.checksum },
                        16w0, HashAlgorithm.csum16);
    }
}

control GatewayComputeChecksum(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.tunnel_ipv4.isValid(),
                        { hdr.tunnel_ipv4.version, hdr.tunnel_ipv4.ihl, hdr.tunnel_ipv4.tos,
                          hdr.tunnel_ipv4.total_length,
                          hdr.tunnel_ipv4.identification, hdr.tunnel_ipv4.reserved,
                          hdr.tunnel_ipv4.dont_fragment, hdr.tunnel_ipv4.more_fragments,
                          hdr.tunnel_ipv4.fragment_offset, hdr.tunnel_ipv4.ttl,
                          hdr.tunnel_ipv4.protocol, hdr.tunnel_ipv4.source,
                          hdr.tunnel_ipv4.destination },
                        hdr.tunnel_ipv4.checksum, HashAlgorithm.csum16);
        update_checksum(meta.outer_changed,
                        { hdr.outer_ipv4.version, hdr.outer_ipv4.ihl, hdr.outer_ipv4.tos,
                          hdr.outer_ipv4.total_length,
                          hdr.outer_ipv4.identification, hdr.outer_ipv4.reserved,
                          hdr.outer_ipv4.dont_fragment, hdr.outer_ipv4.more_fragments,
                          hdr.outer_ipv4.fragment_offset, hdr.outer_ipv4.ttl,
                          hdr.outer_ipv4.protocol, hdr.outer_ipv4.source,
                          hdr.outer_ipv4.destination },
                        hdr.outer_ipv4.checksum, HashAlgorithm.csum16);
        update_checksum(meta.signalling_changed,
                        { hdr.outer_ipv4.source, hdr.outer_ipv4.destination, 8w0,
                          hdr.outer_ipv4.protocol, hdr.udp.length, hdr.udp.source_port,
                          hdr.udp.destination_port, hdr.udp.length, hdr.signalling.flags,
                          hdr.signalling.type, hdr.signalling.length, hdr.signalling.teid,
                          hdr.signalling.sequence, hdr.signalling.spare, hdr.signalling.user,
                          hdr.signalling.uplink_teid, hdr.signalling.downlink_teid,
                          hdr.signalling.station, hdr.signalling.cause, hdr.signalling.spare2 },
                        hdr.udp.checksum, HashAlgorithm.csum16);
    }
}
