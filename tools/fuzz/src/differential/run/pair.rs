//! A program in the kernel beside what it means: entries, packets, and their comparison.

use super::*;

/// The sides, and what was done to them.
pub(in crate::differential) struct Pair<'a> {
    pub(in crate::differential) loaded: &'a Loaded<'a>,
    /// The program as it is written; None: it has something that is not interpreted.
    pub(in crate::differential) written: Option<Tree<'a>>,
    /// The program as it was elaborated: says which of front end and back end is wrong.
    pub(in crate::differential) reference: Interpreter<'a>,
    /// What was done, for the report.
    pub(in crate::differential) history: Vec<String>,
    /// Programs with packets that came to something undefined: these were taken back.
    pub(in crate::differential) undefined: Vec<bool>,
}

impl Pair<'_> {
    /// Gives a table that can be changed some entries; how many.
    pub(super) fn fill(
        &mut self,
        id: TableId,
        seen: &[Vec<BigInt>],
        random: &mut StdRng,
    ) -> Result<u64, Finding> {
        let program = self.loaded.program;
        let table = &program.tables[id.index()];
        let actions: Vec<usize> =
            (0..table.actions.len()).filter(|index| !table.actions[*index].default_only).collect();
        if table.const_entries || table.keys.is_empty() || actions.is_empty() || seen.is_empty() {
            return Ok(0);
        }
        let mut added = 0;
        let handle = self.loaded.dataplane.table(&table.name).map_err(|error| internal(&error))?;
        let ternary = table.keys.iter().any(|key| key.match_kind == "ternary");
        let mut keys = &seen[random.random_range(0..seen.len())];
        for rank in 0..random.random_range(0..6) {
            keys = next_keys(keys, seen, random);
            let action = actions[random.random_range(0..actions.len())];
            let mut arguments = Vec::new();
            for parameter in &program.actions[table.actions[action].action.index()].parameters {
                let width = scalar_width(program, &program.variables[parameter.index()].ty);
                arguments.push(crate::differential::types::number(width, random));
            }
            let mut theirs = Vec::new();
            let mut ours = Vec::new();
            for (value, key) in keys.iter().zip(&table.keys) {
                let width = scalar_width(program, &key.expr.ty);
                let (value, mask) =
                    (value.to_u128().unwrap_or(0), entry_mask(&key.match_kind, width, random));
                theirs.push(dataplane::Match::from_mask(value & mask, mask, width));
                ours.push(KeyMatch { value: BigInt::from(value & mask), mask: BigInt::from(mask) });
            }
            let priority = if ternary { entry_priority(rank, random) } else { 0 };
            let call = dataplane::ActionCall { action, arguments: arguments.clone() };
            let entry = dataplane::Entry { matches: theirs, priority, action: call };
            if handle.write(&entry, Write::Add).is_err() {
                // It is there already.
                continue;
            }
            self.history.push(format!("add {} {entry:?}", table.name));
            let call = p4_ir::ActionCall {
                action: action as u32,
                arguments: arguments.into_iter().map(BigInt::from).collect(),
            };
            let entry = RuntimeEntry::new(ours, priority, call);
            if let Some(Err(stop)) =
                self.written.as_mut().map(|tree| tree.add_entry(&table.name, &entry))
            {
                return wrong("as written", format!("{stop}\n{}", self.told()));
            }
            self.reference.add_entry(id, entry);
            added += 1;
        }
        Ok(added)
    }

    pub(super) fn step(
        &mut self,
        port: u32,
        frame: &[u8],
        summary: &mut Summary,
    ) -> Result<(), Finding> {
        self.history.push(format!("packet {port} {}", hex(frame)));
        let Some((written, expected)) = self.expected(port, frame)? else {
            self.history.pop();
            self.undefined[port as usize] = true;
            summary.undefined_packets += 1;
            return Ok(());
        };
        if let Some(written) = &written
            && *written != expected
        {
            let (written, expected) = (shown(written), shown(&expected));
            let told =
                format!("as written    {written}\nas elaborated {expected}\n{}", self.told());
            return wrong("front end", told);
        }
        summary.written += u64::from(written.is_some());
        let outcome = match self.loaded.dataplane.run(frame, port, NOW_US * 1000) {
            Ok(outcome) => outcome,
            Err(error) => return wrong("run", error.to_string()),
        };
        let found = match outcome.verdict {
            dataplane::Verdict::Drop => Verdict::Drop,
            dataplane::Verdict::ToHost => Verdict::ToHost,
            dataplane::Verdict::Forward { port } => Verdict::Forward { port, frame: outcome.frame },
        };
        summary.packets += 1;
        if let Verdict::Forward { frame: out, .. } = &found {
            summary.forwarded += 1;
            summary.changed += u64::from(out != frame);
        }
        if found == expected {
            return Ok(());
        }
        wrong(
            "packet",
            format!("expected {}\nfound    {}\n{}", shown(&expected), shown(&found), self.told()),
        )
    }

    /// What the program does, as it is written (None: that is not interpreted) and as it was
    /// elaborated. None if the specification leaves it open: then the packet is taken back.
    fn expected(
        &mut self,
        port: u32,
        frame: &[u8],
    ) -> Result<Option<(Option<Verdict>, Verdict)>, Finding> {
        let before = (self.written.clone(), self.reference.clone());
        let written = self.written.as_mut().map(|tree| tree.run(frame, port, NOW_US));
        let written = match written.transpose() {
            Ok(written) => written,
            Err(Stop::Undefined(_)) => {
                self.written = before.0;
                return Ok(None);
            }
            Err(stop) => return wrong("as written", format!("{stop}\n{}", self.told())),
        };
        match (self.reference.run(frame, port, NOW_US), written) {
            (Ok(found), written) => Ok(Some((written, found))),
            (Err(stop), Some(written)) => {
                let told = format!(
                    "as written    {}\nas elaborated {stop}\n{}",
                    shown(&written),
                    self.told()
                );
                wrong("front end", told)
            }
            (Err(Stop::Undefined(_)), None) => {
                self.reference = before.1;
                Ok(None)
            }
            (Err(stop), None) => wrong("interpreter", stop.to_string()),
        }
    }

    pub(in crate::differential) fn told(&self) -> String {
        let from = self.history.len().saturating_sub(60);
        self.history[from..].join("\n")
    }
}

/// The keys that some of the packets look the tables up with: entries made of them are hit.
pub(super) fn keys_seen(
    program: &Program,
    frames: &[(u32, Vec<u8>)],
) -> Result<Vec<Vec<Vec<BigInt>>>, Finding> {
    let mut scout =
        Interpreter::new(program, systems::interpreter()).map_err(|stop| internal(&stop))?;
    for (port, frame) in frames.iter().step_by(2) {
        match scout.run(frame, *port, NOW_US) {
            Ok(_) | Err(Stop::Undefined(_)) => {}
            Err(stop) => return wrong("interpreter", stop.to_string()),
        }
    }
    Ok((0..program.tables.len())
        .map(|index| scout.keys_seen(TableId(index as u32)).to_vec())
        .collect())
}

pub(super) fn shown(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Drop => "drop".into(),
        Verdict::ToHost => "to the host".into(),
        Verdict::Forward { port, frame } => format!("port {port} {}", hex(frame)),
    }
}
