//! The way of a packet through v1model's blocks (simple_switch.md).

use num_bigint::BigInt;
use num_traits::ToPrimitive;
use p4_check::ty::Ty;
use std::rc::Rc;

use super::data::{Data, Object, initial};
use super::externs::External;
use super::instance::Instance;
use super::{Halt, Packet, Run, Tree, broken, undefined};
use crate::object::no_merge;
use crate::{DROP_PORT, QUEUED, Stop, Verdict};

/// What all blocks work on.
struct Shared {
    headers: Data,
    metadata: Data,
    standard: Data,
    standard_type: Ty,
}

impl<'h> Tree<'h> {
    /// One packet, at `now_us` microseconds of the switch's clock.
    pub fn run(&mut self, frame: &[u8], ingress_port: u32, now_us: u64) -> Result<Verdict, Stop> {
        self.packet = Packet { bytes: frame.to_vec(), ..Packet::default() };
        self.frames.clear();
        (self.steps, self.depth) = (0, 0);
        self.gateway.begin_packet(ingress_port, now_us);
        self.begin_packet(frame, now_us)?;
        match self.way(ingress_port, now_us) {
            Ok(verdict) => Ok(verdict),
            Err(Halt::ToHost) => Ok(Verdict::ToHost),
            Err(Halt::Ended(verdict)) => Ok(verdict),
            Err(Halt::Abandoned) => {
                self.abandon_packet();
                Ok(Verdict::Drop)
            }
            Err(Halt::Stop(stop)) => Err(stop),
            Err(other) => Err(Stop::Broken(format!("{other:?} outside of what it ends"))),
        }
    }

    fn begin_packet(&mut self, frame: &[u8], now_us: u64) -> Result<(), Stop> {
        // (A merge runs in this switch, which has no externals meanwhile: functions reach none.)
        let mut externals = std::mem::take(&mut self.externals);
        let begun = externals.iter_mut().try_for_each(|external| {
            let External::State { object, merge, .. } = external else { return Ok(()) };
            match *merge {
                Some(id) => {
                    object.begin_packet_merging(frame, now_us, &mut |a, b| self.merged(id, a, b))
                }
                None => object.begin_packet_merging(frame, now_us, &mut no_merge),
            }
        });
        self.externals = externals;
        begun
    }

    fn abandon_packet(&mut self) {
        for external in &mut self.externals {
            if let External::State { object, .. } = external {
                object.abandon_packet();
            }
        }
    }

    /// False: a state object keeps the packet from leaving.
    fn finish_packet(&mut self, frame: &mut Vec<u8>) -> bool {
        self.externals.iter_mut().all(|external| match external {
            External::State { object, .. } => object.finish_packet(frame),
            _ => true,
        })
    }

    fn way(&mut self, ingress_port: u32, now_us: u64) -> Run<Verdict> {
        let Some(pipeline) = self.pipeline.clone() else {
            return broken("a switch without a program");
        };
        let mut shared = self.shared(&pipeline.parser)?;
        let now = BigInt::from(now_us & 0xffff_ffff_ffff);
        self.set(&mut shared, "ingress_port", BigInt::from(ingress_port))?;
        let length = BigInt::from(self.packet.bytes.len());
        self.set(&mut shared, "packet_length", length.clone())?;
        self.set(&mut shared, "ingress_global_timestamp", now.clone())?;
        // A packet that the parser rejects goes on, with the error.
        let error = self.parse(&pipeline.parser, &mut shared)?;
        self.set(&mut shared, "parser_error", BigInt::from(error))?;
        self.control(&pipeline.verify, &mut shared)?;
        let wrong = u8::from(self.packet.checksum_error);
        self.set(&mut shared, "checksum_error", BigInt::from(wrong))?;
        self.control(&pipeline.ingress, &mut shared)?;
        // After ingress: 511 drops, else the packet goes to egress with its port.
        let port = self.get(&shared, "egress_spec")?;
        if port == DROP_PORT {
            return Ok(Verdict::Drop);
        }
        self.set(&mut shared, "egress_port", BigInt::from(port))?;
        self.set(&mut shared, "egress_spec", BigInt::ZERO)?;
        self.set(&mut shared, "packet_length", length)?;
        for name in QUEUED {
            self.set(&mut shared, name, BigInt::ZERO)?;
        }
        self.set(&mut shared, "egress_global_timestamp", now)?;
        self.control(&pipeline.egress, &mut shared)?;
        if self.get(&shared, "egress_spec")? == DROP_PORT {
            return Ok(Verdict::Drop);
        }
        self.control(&pipeline.compute, &mut shared)?;
        self.control(&pipeline.deparser, &mut shared)?;
        let mut frame = self.leaving();
        if !self.finish_packet(&mut frame) {
            return Ok(Verdict::Drop);
        }
        Ok(Verdict::Forward { port, frame })
    }

    /// Headers invalid, their fields and all metadata 0.
    fn shared(&self, parser: &Instance) -> Run<Shared> {
        let params = &self.hir.blocks[parser.block.index()].params;
        let [_, headers, metadata, standard] = &**params else {
            return broken("a parser without four parameters");
        };
        let zero = |ty: &Ty| initial(self.hir, ty, true);
        Ok(Shared {
            headers: zero(&headers.ty),
            metadata: zero(&metadata.ty),
            standard: zero(&standard.ty),
            standard_type: standard.ty.clone(),
        })
    }

    fn set(&self, shared: &mut Shared, name: &str, value: BigInt) -> Run<()> {
        let ty = shared.standard_type.clone();
        self.set_field(&mut shared.standard, &ty, name, value)
    }

    fn get(&self, shared: &Shared, name: &str) -> Run<u32> {
        let Ty::Record(id, _) = &shared.standard_type else {
            return broken("standard metadata is not a struct");
        };
        let field =
            self.hir.records[id.index()].fields.iter().position(|field| &*field.name == name);
        match (&shared.standard, field) {
            (Data::Struct(fields), Some(index)) => match &fields[index] {
                Data::Number(value) => Ok(value.to_u32().unwrap_or(u32::MAX)),
                _ => undefined(format!("standard_metadata.{name} that was never written")),
            },
            _ => broken(format!("no standard_metadata.{name}")),
        }
    }

    /// The error that the parser ends with, as an index.
    fn parse(&mut self, parser: &Rc<Instance>, shared: &mut Shared) -> Run<usize> {
        let packet = Data::Object(Object::PacketIn);
        let arguments =
            vec![packet, shared.headers.clone(), shared.metadata.clone(), shared.standard.clone()];
        let (values, result) = self.apply_block(parser, arguments);
        if let Ok([_, headers, metadata, standard]) = <[Data; 4]>::try_from(values) {
            (shared.headers, shared.metadata, shared.standard) = (headers, metadata, standard);
        }
        match result {
            Ok(_) => Ok(0),
            Err(Halt::Reject(error)) => Ok(error),
            Err(other) => Err(other),
        }
    }

    /// A control with the parameters of its kind. `exit` ends this control alone.
    fn control(&mut self, control: &Rc<Instance>, shared: &mut Shared) -> Run<()> {
        let params = &self.hir.blocks[control.block.index()].params;
        let deparser = matches!(params.first().map(|param| &param.ty), Some(Ty::Extern(..)));
        let (headers, metadata, standard) =
            (shared.headers.clone(), shared.metadata.clone(), shared.standard.clone());
        let mut arguments = match deparser {
            true => vec![Data::Object(Object::PacketOut), headers],
            false => vec![headers, metadata, standard],
        };
        arguments.truncate(params.len());
        let (values, result) = self.apply_block(control, arguments);
        if !deparser {
            let mut values = values.into_iter();
            for part in [&mut shared.headers, &mut shared.metadata, &mut shared.standard] {
                if let Some(value) = values.next() {
                    *part = value;
                }
            }
        }
        match result {
            Ok(_) | Err(Halt::Exit) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// What was emitted, and what the parser has left.
    fn leaving(&mut self) -> Vec<u8> {
        let mut frame = std::mem::take(&mut self.packet.emitted).into_bytes();
        frame
            .extend_from_slice(self.packet.bytes.get(self.packet.cursor / 8..).unwrap_or_default());
        if let Some(length) = &self.packet.truncate {
            frame.truncate(length.to_usize().unwrap_or(usize::MAX));
        }
        self.gateway.finish_packet(&mut frame);
        frame
    }
}
