//! The store's side of the rig: what the switch asks, what it is answered, what it sends again.

use super::*;

impl Rig {
    /// The local allocator's choice: read from the map, then held against what it promises.
    pub(super) fn learn(&mut self, key: Key) -> Result<Option<Binding>> {
        let map = self.dataplane.map(&self.map).context("no map of flows")?;
        let range = u32::from(self.pool.high - self.pool.low) + 1;
        let used = |rig: &Rig, address| {
            rig.used
                .get(&(key.destination, key.destination_port, key.protocol, address))
                .copied()
                .unwrap_or(0)
        };
        let Some(entry) = map.lookup(&padded(key), MapFlags::ANY)? else {
            // 32 draws: at half a pool, one in 2^32 finds nothing.
            let fullest = (0..self.pool.addresses)
                .map(|number| used(self, external(number)))
                .max()
                .unwrap_or(0);
            ensure!(
                2 * fullest >= range,
                "no binding for {key:?}, though only {fullest} of {range} ports are taken"
            );
            return Ok(None);
        };
        let binding = Binding::from_bytes(&entry[VALUE_AT..]);
        let (address, port) = (Ipv4Addr::from(binding.address), binding.port);
        ensure!(
            (0..self.pool.addresses).any(|number| external(number) == binding.address),
            "{address} is not in the pool"
        );
        ensure!((self.pool.low..=self.pool.high).contains(&port), "port {port} is not in the pool");
        let reverse = key.reverse(binding);
        ensure!(
            !self.bindings.contains_key(&reverse),
            "{address}:{port} is another conversation's towards this remote end"
        );
        let paired = *self.paired.entry(key.source).or_insert(binding.address);
        ensure!(
            paired == binding.address,
            "{address} for an inside address that had {} (RFC 4787, REQ-2)",
            Ipv4Addr::from(paired)
        );
        let kept = Binding { port: key.source_port, ..binding };
        let could_keep = (self.pool.low..=self.pool.high).contains(&key.source_port)
            && !self.bindings.contains_key(&key.reverse(kept));
        ensure!(
            !could_keep || port == key.source_port,
            "port {port}, though the packet's own was free"
        );
        let back = map
            .lookup(&padded(reverse), MapFlags::ANY)?
            .context("the reverse binding is not there")?;
        let inside = Binding { address: key.source, port: key.source_port };
        ensure!(
            Binding::from_bytes(&back[VALUE_AT..]) == inside,
            "the reverse binding leads to another host"
        );
        self.bind(key, binding);
        Ok(Some(binding))
    }

    pub(super) fn bind(&mut self, key: Key, binding: Binding) {
        self.counts.bindings += 1;
        self.bindings.insert(key, binding);
        self.bindings
            .insert(key.reverse(binding), Binding { address: key.source, port: key.source_port });
        self.conversations.push((key, binding));
        *self
            .used
            .entry((key.destination, key.destination_port, key.protocol, binding.address))
            .or_insert(0) += 1;
    }

    /// The packet must have left for the store, whole and unchanged; the model's store answers.
    pub(super) fn asked(
        &mut self,
        frame: &[u8],
        origin: Origin,
        key: Key,
        allocate: bool,
        now_ns: u64,
        got: Fate,
    ) -> Result<()> {
        if origin.attempts >= 64 {
            return expect(&Fate::Drop, &got);
        }
        let Fate::Forward(0xffff, message) = &got else {
            bail!("expected a request to the store about {key:?}, got {}", told(&got))
        };
        let request = self.decode(message)?;
        let wire = key.to_bytes();
        let shard = shard_of(&wire, entries::SHARDS);
        let expected = Message {
            session: self.entries.sessions[usize::from(shard)].number,
            shard,
            message_type: MessageType::LeaseRequest,
            object_id: entries::OBJECT,
            flags: if allocate { Flags::ALLOCATE.with(Flags::REVERSE) } else { Flags::NONE },
            sender: SELF,
            request_ns: now_ns,
            epoch: 0,
            seq: 0,
            lease_us: 0,
            port: (origin.attempts + 1) << 9 | origin.port,
            key: &wire,
            value: &[],
            packet: frame,
        };
        ensure!(
            request == expected,
            "the request to the store:\ngot  {request:x?}\nwant {expected:x?}"
        );
        self.counts.parked += 1;
        if self.hostile {
            return Ok(()); // answered by whatever comes next
        }
        let binding = self.store_binding(key, allocate);
        let value = binding.map(Binding::to_bytes);
        let answer = Message {
            message_type: if binding.is_some() {
                MessageType::LeaseGrant
            } else {
                MessageType::Absent
            },
            flags: Flags::NONE,
            epoch: 1,
            session: 1,
            lease_us: LEASE_US,
            value: value.as_ref().map_or(&[], |value| &value[..]),
            ..request
        };
        let now_ns = now_ns + 20_000;
        self.step(&Step { frame: self.encode(&answer)?, port: FABRIC_PORT, now_ns })
    }

    /// The store's binding of a key. What it is depends on the key alone (and on what is taken), so
    /// that a shortened history repeats.
    pub(super) fn store_binding(&mut self, key: Key, allocate: bool) -> Option<Binding> {
        if let Some(binding) = self.bindings.get(&key) {
            return Some(*binding);
        }
        let wire = key.to_bytes();
        let seed = wire.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
        });
        let mut random = StdRng::seed_from_u64(seed);
        // Now and then the store's allocator has nothing.
        if !allocate || random.random_bool(0.03) {
            return None;
        }
        for _ in 0..64 {
            let address = external(random.random_range(0..self.pool.addresses));
            let binding =
                Binding { address, port: random.random_range(self.pool.low..=self.pool.high) };
            if !self.bindings.contains_key(&key.reverse(binding)) {
                self.bind(key, binding);
                return Some(binding);
            }
        }
        None
    }

    /// Lets the packet generator run: heartbeats to all shards, which the model's store answers,
    /// and the releases that are due.
    pub fn generate(&mut self, now_ns: u64) -> Result<()> {
        for shard in 0..u32::from(entries::SHARDS) {
            self.dataplane.push_heartbeat(shard)?;
            let Some(frame) = self.dataplane.run_generator(now_ns)? else {
                ensure!(
                    self.entries.sessions[shard as usize].number == 0,
                    "no heartbeat to shard {shard}"
                );
                continue;
            };
            let beat = self.decode(&frame)?;
            let right = beat.message_type == MessageType::Heartbeat
                && u32::from(beat.shard) == shard
                && beat.session == self.entries.sessions[shard as usize].number
                && beat.session != 0
                && (beat.request_ns, beat.sender, beat.object_id) == (now_ns, SELF, 0);
            ensure!(right, "a heartbeat to shard {shard}: {beat:x?}");
            self.counts.renewed += 1;
            let answer =
                Message { message_type: MessageType::HeartbeatAck, lease_us: LEASE_US, ..beat };
            if !self.hostile {
                let answer = self.encode(&answer)?;
                self.step(&Step { frame: answer, port: FABRIC_PORT, now_ns: now_ns + 20_000 })?;
            }
        }
        let mut due = self.entries.due(now_ns);
        for frame in self.drain(now_ns)? {
            let key = self.decode(&frame)?.key;
            let key = Key::from_bytes(key.try_into().context("a generated message's key")?);
            let at = due.iter().position(|due| *due == key).context("a release that is not due")?;
            due.swap_remove(at);
            let entry =
                self.entries.flows.get(&key).copied().context("a release of an unknown flow")?;
            self.released(&frame, key, entry.epoch, entry, now_ns)?;
            self.entries.sent_ns.insert(key, now_ns);
        }
        ensure!(due.is_empty(), "releases that were not sent: {due:x?}");
        Ok(())
    }

    pub(super) fn drain(&mut self, now_ns: u64) -> Result<Vec<Vec<u8>>> {
        let waiting = self.dataplane.generator_work()?;
        let mut messages = Vec::new();
        for _ in 0..waiting {
            messages.extend(self.dataplane.run_generator(now_ns)?);
        }
        Ok(messages)
    }

    /// A message that the switch sent, found genuine.
    pub(super) fn decode<'a>(&self, frame: &'a [u8]) -> Result<Message<'a>> {
        let payload = frame.get(42..).context("a message without headers")?;
        let address =
            |at: usize| Ipv4Addr::new(frame[at], frame[at + 1], frame[at + 2], frame[at + 3]);
        let sent = || format!("the switch sent {}", hex(frame));
        self.ring.verify(payload, address(26), address(30)).with_context(sent)?;
        Message::decode(payload).with_context(sent)
    }

    pub(super) fn encode(&self, message: &Message<'_>) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        message.append_to(&mut bytes)?;
        self.ring.sign(&mut bytes, SERVER, Ipv4Addr::from(PROTOCOL_ADDRESS));
        Ok(carrier(&bytes, PROTOCOL_ADDRESS))
    }
}
