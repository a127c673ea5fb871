//! A lab of two to 32 switches that share one variable (`setups/shared_cells.p4`), whose cells
//! all change in each window: user space fills the deltas, as packets could not.

use crate::build::Places;
use crate::shared::network::copies;
use crate::shared::pinned::pin_links;
use anyhow::{Context, Result, anyhow, ensure};
use c_layout::CStruct;
use dataplane::{Dataplane, MappedWords};
use lab::instance::Running;
use lab::netns::Netns;
use lab::{Lab, Options, Topology};
use manifest::Manifest;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};
use swish_protocol::layouts::{BlockValue, CELLS, CPUS, CpuValue, HEADER_BYTES, NodeValue, phase};
use swish_sim::Program;
use swish_switch::group::{Group, STATS};

/// Labs of this process.
static NUMBER: AtomicU32 = AtomicU32::new(0);

const BLOCKS: &str = "sp_shared_blocks";
const CPU_MAP: &str = "sp_shared_cpus";
/// Counters: SP_SHARED_STAT_WINDOWS, SP_SHARED_STAT_SENT, SP_SHARED_STAT_RECEIVED.
const WINDOWS: u32 = 0;
const SENT: u32 = 1;
const RECEIVED: u32 = 2;

/// Bytes of a frame without cells, with Ethernet's, IPv4's and UDP's headers; and of one with
/// cells.
pub const BARE_BYTES: u32 = 42 + HEADER_BYTES;
/// See [`BARE_BYTES`].
pub const FULL_BYTES: u32 = BARE_BYTES + 4 * CELLS;

/// Longer than any frame is in a program, and than the generator makes frames that stop at the
/// seal.
const STANDSTILL: Duration = Duration::from_millis(50);

/// The variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// How many cells it has.
    pub cells: u32,
    /// Sets of bits; otherwise counters.
    pub bits: bool,
    /// Of 360 cells in a block, so many change in each window. 0: none but what packets change.
    pub changed: u32,
}

/// What a switch adds to a cell in each rotation of this parity.
fn delta(switch: usize, side: usize, block: u32, cell: u32) -> u32 {
    let mixed = (block * CELLS + cell).wrapping_mul(0x9e37_79b1).rotate_left(7);
    mixed ^ (switch as u32 * 2 + side as u32).wrapping_mul(0x85eb_ca6b)
}

impl Variable {
    fn blocks(&self) -> u32 {
        self.cells.div_ceil(CELLS)
    }

    /// Messages that a switch sends each member in a window, if none is lost.
    pub fn messages(&self) -> u32 {
        match self.changed {
            0..=6 => self.blocks().div_ceil(32),
            7..=14 => self.blocks().div_ceil(16),
            15..=29 => self.blocks().div_ceil(8),
            30..=59 => self.blocks().div_ceil(4),
            _ => self.blocks(),
        }
    }

    /// The program's macros.
    fn defines(&self) -> [String; 2] {
        let kind = if self.bits { "BITS" } else { "COUNTERS" };
        [format!("CELLS={}", self.cells), format!("KIND={kind}")]
    }

    /// The lab's command that compiles it.
    fn compiles(&self, source: &Path) -> String {
        let [cells, kind] = self.defines();
        let source = source.display();
        format!(
            r#""${{stateplane}}", "compile", "{source}", "-D", "{cells}", "-D", "{kind}", "-o", "${{lab_dir}}/cells.o""#
        )
    }

    /// Compiles it without the ready phase, which no option of the program can do.
    fn without_ready(&self, source: &Path) -> Result<Program> {
        let text = std::fs::read_to_string(source).with_context(|| source.display().to_string())?;
        Program::compile_without_ready("shared_cells.p4", &text, self.defines().to_vec())
            .map_err(|why| anyhow!("{} without the ready phase: {why}", source.display()))
    }

    /// Changed cells are spread evenly over the block's lines.
    fn changes(&self, cell: u32) -> bool {
        cell * self.changed / CELLS != (cell + 1) * self.changed / CELLS
    }
}

/// A switch's data plane, in this process's memory.
struct Switch {
    dataplane: Dataplane,
    group: Group,
    node: MappedWords,
    /// The first rotation that sends what was filled in.
    first: u64,
}

impl Switch {
    fn word(&self) -> u64 {
        self.node.get(NodeValue::LAYOUT.word("word"))
    }

    /// Of all its frames.
    fn sent_bytes(&self) -> Result<u64> {
        let mut bytes = 0;
        for cpu in 0..CPUS {
            bytes += CpuValue::from_bytes(&self.dataplane.read_array(CPU_MAP, cpu)?).sent_bytes;
        }
        Ok(bytes)
    }

    fn seal(&self, sealed: bool) {
        self.node.set(NodeValue::LAYOUT.word("sealed"), u64::from(sealed));
    }

    fn set_pair(&self, member: &str, pair: [u32; 2]) {
        let pair = u64::from(pair[0]) | u64::from(pair[1]) << 32;
        self.node.set(NodeValue::LAYOUT.word(member), pair);
    }

    /// Fills both deltas and both lists. The switch is sealed.
    fn fill(&mut self, number: usize, variable: &Variable) -> Result<()> {
        let lists = self.dataplane.map_words_writable("sp_shared_dirty_blocks")?;
        let blocks = variable.blocks();
        for block in 0..blocks {
            let mut value = BlockValue::from_bytes(&self.dataplane.read_array(BLOCKS, block)?);
            for side in 0..2 {
                for cell in (0..CELLS).filter(|cell| variable.changes(*cell)) {
                    value.delta[side][cell as usize] = delta(number, side, block, cell);
                    value.line[side][(cell / 15) as usize] |= 1 << (cell % 15);
                }
            }
            self.dataplane.write_array(BLOCKS, block, &value.to_bytes())?;
        }
        // (An element of the lists has half a word, and takes a whole one.)
        for block in 0..blocks {
            lists.set(block as usize, block.into());
            lists.set((blocks + block) as usize, block.into());
        }
        let (window, phase) = (self.word() >> 3, self.word() & 7);
        self.first = window + u64::from(phase >= phase::COUNTING);
        self.set_pair("most_cells", [variable.changed; 2]);
        self.set_pair("dirty_blocks", [blocks; 2]);
        self.set_pair("filled", [1, 0]);
        Ok(())
    }
}

/// Counters of the first switch so far, and its histogram of windows' times.
struct SoFar {
    windows: u64,
    /// From all members.
    messages: u64,
    /// To all members.
    sent: u64,
    /// Messages with cells, and bytes of all frames, that the second switch sent.
    second: [u64; 2],
    /// The same of all switches.
    group: [u64; 2],
    times: Vec<(u64, u64)>,
}

/// What was counted between two instants, for each window.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// Windows of the first switch.
    pub windows: u64,
    /// How long a window takes, in us, sorted: upper ends of the histogram's buckets.
    pub window_us: Vec<f64>,
    /// Frames that the second switch sent each other one, with cells or without. (The sender counts
    /// by CPU, so none is missed.)
    pub frames: f64,
    /// Of them, those with cells.
    pub messages: f64,
    /// Messages with cells that the first switch sent each member.
    pub sent: f64,
    /// Messages with cells that all switches sent.
    pub group_messages: f64,
    /// Bytes that all switches sent.
    pub group_bytes: f64,
}

/// The lab; it goes down with this.
pub struct Cells {
    running: Running,
    switches: Vec<Switch>,
    variable: Variable,
}

/// The program of the switches.
const SOURCE: &str = "tools/bench/setups/shared_cells.p4";

/// Beside the switches.
#[derive(Clone, Copy, Default)]
struct Extras {
    /// A host at each of them.
    hosts: bool,
    /// Children in an aggregation tree at the most; 0: there is none.
    fan_out: u32,
    /// Windows without the ready phase.
    without_ready: bool,
    /// Each switch has one CPU: the first one, the second one, the first one and so on.
    one_cpu: bool,
}

impl Extras {
    /// What a switch's agent is started with.
    fn starts(&self, switch: usize) -> String {
        if self.one_cpu { format!("taskset -c {}", cpu_of(switch)) } else { String::new() }
    }
}

/// A switch's CPU, if it has one of two.
fn cpu_of(switch: usize) -> usize {
    (switch - 1) % 2
}

/// `build`: a command that leaves the object in the lab's folder.
fn topology(switches: usize, build: &str, extras: Extras) -> String {
    let tree = match extras.fan_out {
        0 => String::new(),
        fan_out => format!("tree = {fan_out}"),
    };
    let members: Vec<String> = (1..=switches).map(|it| format!("\"10.9.0.{it}\"")).collect();
    let mut text = format!(
        r#"name = "cells"
description = "switches that share one variable"
modes = ["shared"]

[[build]]
command = [{build}]

[[build]]
command = ["${{stateplane}}", "keys", "generate", "${{lab_dir}}/fabric.secrets"]

[template.switch]
role = "switch"
state = ["/run/stateplane/${{lab}}-${{node}}"]

[[template.switch.daemon]]
name = "switch"
# (A queue that a link gets later has no XDP program.)
command = ["sh", "-c", "for link in ${{links}}; do ethtool -L $link rx 2 tx 2 || exit; done; exec ${{starts}} ${{stateplane}} switch --config ${{config}}"]
ready = ["${{stateplane}}", "switch", "status", "${{lab}}-${{node}}"]
config = '''
name = "${{lab}}-${{node}}"
object = "${{lab_dir}}/cells.o"
secrets = "${{lab_dir}}/fabric.secrets"

[shared.main]
members = [{members}]
own = "10.9.0.${{number}}"
period_us = 0
{tree}
${{ports}}
'''
"#,
        members = members.join(", "),
    );
    let others = |own: usize| (1..=switches).filter(move |other| *other != own);
    // The link of two switches: 10.A.B.1 and .2, the smaller number first.
    let end = |own: usize, other: usize| {
        format!("10.{}.{}.{}", own.min(other), own.max(other), if own < other { 1 } else { 2 })
    };
    for own in 1..=switches {
        let mut ports = String::new();
        for (port, other) in others(own).enumerate() {
            let _ =
                write!(ports, "[[port]]\ninterface = \"s{other}\"\nport = {port}\nfabric = true\n");
        }
        if extras.hosts {
            let _ = write!(ports, "[[port]]\ninterface = \"h{own}\"\nport = {}\n", switches - 1);
            let _ = write!(
                text,
                "\n[node.h{own}]\nrole = \"host\"\n\n[[link]]\n\
                 a = {{ node = \"h{own}\", address = \"10.200.{own}.10/24\" }}\n\
                 b = {{ node = \"s{own}\", address = \"10.200.{own}.1/24\" }}\n",
            );
        }
        let routes: Vec<String> = others(own)
            .map(|other| format!("\"10.9.0.{other} via {}\"", end(other, own)))
            .collect();
        let links: Vec<String> = others(own).map(|other| format!("s{other}")).collect();
        let _ = write!(
            text,
            "\n[node.s{own}]\ntemplate = \"switch\"\nloopback = \"10.9.0.{own}/32\"\n\
             routes = [{}]\n[node.s{own}.vars]\nnumber = \"{own}\"\nlinks = \"{}\"\n\
             starts = \"{}\"\nports = '''\n{ports}'''\n",
            routes.join(", "),
            links.join(" "),
            extras.starts(own)
        );
        for other in others(own).filter(|other| own < *other) {
            let _ = write!(
                text,
                "\n[[link]]\na = {{ node = \"s{own}\", address = \"{}/30\" }}\n\
                 b = {{ node = \"s{other}\", address = \"{}/30\" }}\n",
                end(own, other),
                end(other, own)
            );
        }
    }
    text
}

impl Cells {
    /// Brings the lab up, with the switches' packets on two CPUs, and fills the deltas.
    ///
    /// # Errors
    /// The lab does not come up.
    pub fn up(places: &Places, switches: usize, variable: Variable) -> Result<Cells> {
        Cells::with(places, switches, variable, Extras::default())
    }

    /// The same without the ready phase ([`swish_sim::seeded::WITHOUT_READY`]). The deltas are
    /// filled before windows count.
    ///
    /// # Errors
    /// The lab does not come up.
    pub fn without_ready(places: &Places, switches: usize, variable: Variable) -> Result<Cells> {
        let extras = Extras { without_ready: true, ..Extras::default() };
        Cells::with(places, switches, variable, extras)
    }

    /// The same with one CPU for each switch: what its agent makes and what comes to it is handled
    /// there, by threads of the kernel.
    ///
    /// # Errors
    /// The lab does not come up.
    pub fn one_cpu(places: &Places, switches: usize, variable: Variable) -> Result<Cells> {
        Cells::with(places, switches, variable, Extras { one_cpu: true, ..Extras::default() })
    }

    /// The same with a host at each switch.
    ///
    /// # Errors
    /// The lab does not come up.
    pub fn with_hosts(places: &Places, switches: usize, variable: Variable) -> Result<Cells> {
        Cells::with(places, switches, variable, Extras { hosts: true, ..Extras::default() })
    }

    /// As `up`, with an aggregation tree. (Its totals go into the deltas that user space fills: a
    /// variable of bits has the same unions in each window, and one of counters has not.)
    ///
    /// # Errors
    /// The lab does not come up.
    pub fn tree(
        places: &Places,
        switches: usize,
        variable: Variable,
        fan_out: u32,
    ) -> Result<Cells> {
        ensure!(variable.bits, "counters are filled for groups without a tree only");
        Cells::with(places, switches, variable, Extras { fan_out, ..Extras::default() })
    }

    fn with(places: &Places, switches: usize, variable: Variable, extras: Extras) -> Result<Cells> {
        let Places { root, stateplane, output: out } = places;
        let path = out.join("shared_cells.toml");
        let source = root.join(SOURCE);
        let compiled = extras.without_ready.then(|| variable.without_ready(&source)).transpose()?;
        let build = match &compiled {
            None => variable.compiles(&source),
            Some(program) => copies(program, "cells")?,
        };
        std::fs::write(&path, topology(switches, &build, extras))
            .with_context(|| path.display().to_string())?;
        let vars = [("stateplane", stateplane.display().to_string())];
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let options = Options {
            name: Some(format!("cells-{}-{number}", std::process::id())),
            mode: Some("shared".to_owned()),
            vars: BTreeMap::from(vars.map(|(name, value)| (name.to_owned(), value))),
            prefer: None,
            owned: true,
        };
        let lab = Lab::up(Topology::read(&path)?, out, options, &|_| {})
            .with_context(|| format!("lab {}", path.display()))?;
        let running = Running(lab);
        if extras.one_cpu {
            for own in 1..=switches {
                let netns = running.0.netns(&format!("s{own}"))?;
                let others = (1..=switches).filter(|other| *other != own);
                let links: Vec<_> = others.map(|other| format!("s{other}")).collect();
                pin_links(&netns, &links, cpu_of(own))?;
            }
        }
        let switches = (1..=switches).map(|number| open(running.0.name(), number));
        let switches = switches.collect::<Result<_>>()?;
        let mut cells = Cells { running, switches, variable };
        cells.begin()?;
        Ok(cells)
    }

    /// The namespace of a switch's host, whose interface is named after the switch.
    ///
    /// # Errors
    /// There is none.
    pub fn host(&self, switch: usize) -> Result<Netns> {
        Ok(self.running.0.netns(&format!("h{}", switch + 1))?)
    }

    /// Windows stand still, or go on.
    pub fn stop_windows(&self, still: bool) {
        self.switches.iter().for_each(|switch| switch.seal(still));
        sleep(STANDSTILL);
    }

    /// Fills all switches while nothing moves.
    fn begin(&mut self) -> Result<()> {
        self.wait_for_windows(20)?;
        if self.variable.changed == 0 {
            return Ok(());
        }
        self.stop_windows(true);
        for (number, switch) in self.switches.iter_mut().enumerate() {
            switch.fill(number, &self.variable)?;
        }
        self.switches.iter().for_each(|switch| switch.seal(false));
        self.wait_for_windows(20)
    }

    /// Waits until all switches have gone on by so many windows.
    ///
    /// # Errors
    /// They do not.
    pub fn wait_for_windows(&self, count: u64) -> Result<()> {
        let began: Vec<u64> = self.switches.iter().map(|switch| switch.word() >> 3).collect();
        let start = Instant::now();
        for (switch, began) in self.switches.iter().zip(began) {
            while switch.word() >> 3 < began + count {
                ensure!(start.elapsed() < Duration::from_secs(60), "the windows stand still");
                ensure!(!lab::interrupt::requested(), "interrupted");
                sleep(Duration::from_millis(1));
            }
        }
        Ok(())
    }

    fn so_far(&self) -> Result<SoFar> {
        let Switch { dataplane, group, .. } = &self.switches[0];
        let count = |at| dataplane.read_count(STATS, at);
        let mut sent = vec![];
        for switch in &self.switches {
            sent.push([switch.dataplane.read_count(STATS, SENT)?, switch.sent_bytes()?]);
        }
        Ok(SoFar {
            second: sent.get(1).copied().unwrap_or_default(),
            group: [0, 1].map(|which| sent.iter().map(|it| it[which]).sum()),
            windows: count(WINDOWS)?,
            messages: count(RECEIVED)?,
            sent: count(SENT)?,
            times: group.window_times(dataplane)?,
        })
    }

    /// Lets so many windows pass, and counts.
    ///
    /// # Errors
    /// The windows stand still.
    pub fn count(&self, windows: u64) -> Result<Counted> {
        let before = self.so_far()?;
        self.wait_for_windows(windows)?;
        let after = self.so_far()?;
        let passed = after.windows - before.windows;
        let old: BTreeMap<u64, u64> = before.times.into_iter().collect();
        let mut window_us = vec![];
        for (end_ns, count) in after.times {
            let count = count - old.get(&end_ns).copied().unwrap_or(0);
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            window_us.extend(std::iter::repeat_n(end_ns as f64 / 1e3, count));
        }
        let others = (self.switches.len() - 1) as f64;
        let [messages, bytes] =
            [0, 1].map(|which| (after.second[which] - before.second[which]) as f64);
        let bare = (bytes - messages * f64::from(FULL_BYTES)) / f64::from(BARE_BYTES);
        Ok(Counted {
            windows: passed,
            window_us,
            frames: (messages + bare) / passed as f64 / others,
            messages: (after.messages - before.messages) as f64 / passed as f64 / others,
            sent: (after.sent - before.sent) as f64 / passed as f64 / others,
            group_messages: (after.group[0] - before.group[0]) as f64 / passed as f64,
            group_bytes: (after.group[1] - before.group[1]) as f64 / passed as f64,
        })
    }

    /// Stops all switches, and compares each changed cell with what all of them must have read: how
    /// many cells were compared.
    ///
    /// # Errors
    /// A cell is wrong.
    pub fn verify(self) -> Result<u64> {
        self.stop_windows(true);
        let mut compared = 0;
        for (number, switch) in self.switches.iter().enumerate() {
            let window = switch.word() >> 3;
            let sent = self.sent(window);
            for block in 0..self.variable.blocks() {
                let value = BlockValue::from_bytes(&switch.dataplane.read_array(BLOCKS, block)?);
                let [first, second] = value.window;
                let side = usize::from(first >= window || second < window && second > first);
                for cell in (0..CELLS).filter(|cell| self.variable.changes(*cell)) {
                    let is = value.value[side][cell as usize];
                    let must = self.must_be(&sent, block, cell);
                    ensure!(
                        is == must,
                        "switch {number} reads {is} in block {block}, cell {cell}, window \
                         {window}; it must read {must}"
                    );
                    compared += 1;
                }
            }
        }
        Ok(compared)
    }

    /// How often each switch has sent its delta of each parity before this window.
    fn sent(&self, window: u64) -> Vec<[u32; 2]> {
        let each = |switch: &Switch| {
            let rotations = switch.first..window;
            let odd = rotations.clone().filter(|rotation| rotation & 1 == 1).count();
            [(rotations.count() - odd) as u32, odd as u32]
        };
        self.switches.iter().map(each).collect()
    }

    fn must_be(&self, sent: &[[u32; 2]], block: u32, cell: u32) -> u32 {
        let mut all = 0u32;
        for (switch, counts) in sent.iter().enumerate() {
            for (side, count) in counts.iter().enumerate() {
                let by = delta(switch, side, block, cell);
                all = match (self.variable.bits, count) {
                    (false, count) => all.wrapping_add(by.wrapping_mul(*count)),
                    (true, 0) => all,
                    (true, _) => all | by,
                };
            }
        }
        all
    }
}

fn open(lab: &str, number: usize) -> Result<Switch> {
    let folder = PathBuf::from(format!("/run/stateplane/{lab}-s{number}"));
    // (The agents are new: their first generation runs.)
    let manifest = Manifest::read(&folder.join("manifest-1.json"))?;
    let group = Group::all(&manifest)?.into_iter().next().context("no group")?;
    let dataplane = Dataplane::open_pinned(&folder.join("bpf/g1"), manifest)?;
    let node = dataplane.map_words_writable("sp_shared_nodes")?;
    Ok(Switch { dataplane, group, node, first: 0 })
}
