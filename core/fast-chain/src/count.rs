//! What the program counts: each batch that came in has one outcome.

/// An outcome of a batch, or a number of its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Count {
    /// The tail answered the switch.
    Answered,
    /// Went on to the next member.
    Forwarded,
    /// Records of those batches.
    Records,
    /// To user space: the shard is not here, or is off, or the batch is of another view.
    Off,
    /// To user space: it was at work on the shard.
    Busy,
    /// To user space: not a batch as it must be.
    Malformed,
    /// To user space: not genuine.
    Forged,
    /// To user space: a record is not here.
    Absent,
    /// To user space: at the head, a record is not the sender's under that grant and session.
    NotHeld,
    /// To user space: at the head, all of it was here: what became of it behind is not known.
    Known,
    /// To user space: at another member, a record's grant is not here yet.
    Early,
    /// To user space: no route, or no room for the answer.
    NoRoute,
    /// To user space: records count only together.
    Group,
}

impl Count {
    /// All, in the order of their numbers.
    pub const ALL: [Count; 13] = [
        Count::Answered,
        Count::Forwarded,
        Count::Records,
        Count::Off,
        Count::Busy,
        Count::Malformed,
        Count::Forged,
        Count::Absent,
        Count::NotHeld,
        Count::Known,
        Count::Early,
        Count::NoRoute,
        Count::Group,
    ];

    /// In metrics.
    pub fn name(self) -> &'static str {
        match self {
            Count::Answered => "answered",
            Count::Forwarded => "forwarded",
            Count::Records => "records",
            Count::Off => "off",
            Count::Busy => "busy",
            Count::Malformed => "malformed",
            Count::Forged => "forged",
            Count::Absent => "absent",
            Count::NotHeld => "not_held",
            Count::Group => "group",
            Count::Known => "known",
            Count::Early => "early",
            Count::NoRoute => "no_route",
        }
    }

    /// In C.
    pub(crate) fn c_name(self) -> String {
        format!("SP_FAST_{}", self.name().to_uppercase())
    }

    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Count::Answered => "batches that the tail answered",
            Count::Forwarded => "batches that went on to the next member",
            Count::Records => "records of those batches",
            Count::Off => "to user space: the shard is off, or the view another",
            Count::Busy => "to user space: it was at work on the shard",
            Count::Malformed => "to user space: not a batch as it must be",
            Count::Forged => "to user space: not genuine",
            Count::Absent => "to user space: a record is not here",
            Count::NotHeld => "to user space: not the sender's under that grant and session",
            Count::Known => "to user space: all of it was here, and may be nowhere else",
            Count::Early => "to user space: the grant of a record is not here yet",
            Count::NoRoute => "to user space: no route, or no room for the answer",
            Count::Group => "to user space: records count only together",
        }
    }
}
