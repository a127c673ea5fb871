// core.p4: what every P4-16 architecture has (P4-16 specification 1.2.5, appendix "P4 core
// library").
#ifndef _CORE_P4_
#define _CORE_P4_

/// Errors that the language itself can raise.
error {
    NoError,            // nothing went wrong
    PacketTooShort,     // extract or advance beyond the packet's end
    NoMatch,            // no case of a select matched
    StackOutOfBounds,   // next beyond the end of a header stack, or last of an empty one
    HeaderTooShort,     // extract of a varbit field that is longer than its type
    ParserTimeout,      // the parser took too long
    ParserInvalidArgument // an argument of a parser operation was out of range
}

/// The packet as the parser reads it.
extern packet_in {
    /// Reads a header of fixed size, makes it valid and moves on.
    /// May raise PacketTooShort and StackOutOfBounds.
    void extract<T>(out T hdr);
    /// Reads a header with one varbit field of the given number of bits.
    /// May raise PacketTooShort, StackOutOfBounds, HeaderTooShort and ParserInvalidArgument.
    void extract<T>(out T variableSizeHeader, in bit<32> variableFieldSizeInBits);
    /// Reads bits without moving on. May raise PacketTooShort.
    T lookahead<T>();
    /// Moves on by a number of bits. May raise PacketTooShort and ParserInvalidArgument.
    void advance(in bit<32> sizeInBits);
    /// The whole packet's size in bytes; not every target knows it.
    bit<32> length();
}

/// The packet as the deparser writes it.
extern packet_out {
    /// Appends a header if it is valid; of a stack, struct or union all that is valid in it, in
    /// order.
    void emit<T>(in T hdr);
}

/// Goes to the parser state reject with the error toSignal if check is false.
extern void verify(in bool check, in error toSignal);

/// Does nothing: the default action of a table that names none.
@noWarn("unused")
action NoAction() {}

/// How a table matches a key field.
match_kind {
    /// All bits equal.
    exact,
    /// Equal where the mask is 1.
    ternary,
    /// The longest prefix wins.
    lpm
}

/// Aborts compilation or checking if false: for facts that hold at compile time.
extern bool static_assert(bool check, string message);
extern bool static_assert(bool check);

#endif
