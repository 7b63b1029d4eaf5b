"""A cluster under high availability, played with the code that decides in a real one.  Pure.

Nodes, their watchdogs and helpers, the links between them, etcd and jobs are models; what an agent,
a master candidate and the master decide comes from `keeper`, `mastership`, `proof`, `restarts`.
Time goes in steps of `STEP_S`.  Chance is given from outside, so that a run can be played again.

A node is up, off, or booting; the agent of one that is up may stand still.  Two nodes reach each
other if both are up and no link between them is cut.  `World.twice` names every instance that ever
ran on two nodes at the same time: there must be none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ganeti.availability.disk import Round, Slot, Verdict
from ganeti.availability.electorate import counts_alike, digest_of, obstacle
from ganeti.availability.keeper import Keeper, guard_for, is_dead, may_arm
from ganeti.availability.mastership import (
    Claim,
    Claimant,
    Lone,
    Outlook,
    answers_wanted,
    copies_wanted,
    judge_lone,
    mark_wanted,
)
from ganeti.availability.proof import Act, DiskView, Judge, NodeView, Order, Power, View
from ganeti.availability.records import (
    ACTING,
    ALONE_KEY,
    GUARDS,
    LOSSES,
    MASTER_KEY,
    NODES,
    Guard,
    Loss,
    Mastership,
    Presence,
    Proof,
)
from ganeti.availability.restarts import Guest, Limits, objection, plan_restarts
from ganeti.availability.simulator.etcd import EtcdModel
from ganeti.availability.simulator.nodes import Helper, Settings, SimGuest, SimJob, SimNode
from ganeti.availability.timing import Timing, longest, strictest
from ganeti.jobs.votes import votes_needed

STEP_S: Final = 0.5
BOOT_S: Final = 40.0
FAILOVER_S: Final = 4.0
CONFIGURE_S: Final = 0.5  # a job's way to the new configuration
START_S: Final = 2.0  # from there to the running guest
JOBS_END_S: Final = 2.0  # a master that steps down has ended its jobs
RESTART_S: Final = 2.0  # from the end of an agent to the first beat of the next one
LOST: Final = 0.9  # chance from which on a message is lost
HEARD: Final = 0.8  # chance up to which a node takes the list of nodes
DISK_S_MAX: Final = 1.5  # from the reading of all slots to the end of the writing


@dataclass(slots=True)
class World:
    """The whole cluster.

    Attributes:
        timing: as the settings say, which not all agents may have taken up yet.
        log: lines with the time.
        twice: what ran on two nodes at the same time.
        broken: where a rule did not hold, though nothing ran twice by that, perhaps.
        left: {instance: why it does not start}, as the master sees it.
        forgotten: acknowledged changes of the configuration that a new master does not know.
        witness: the node that only votes; "" for none.
        lease_disk: the disk that nodes share for leases; "" for none.
        disk: what is on it, by node.
    """

    timing: Timing
    nodes: dict[str, SimNode]
    guests: dict[str, SimGuest]
    candidates: Sequence[str]
    etcd: EtcdModel
    chance: Callable[[], float] = lambda: 0.0
    now_s: float = 0.0
    cut: set[tuple[str, str]] = field(default_factory=set)
    log: list[tuple[float, str]] = field(default_factory=list)
    twice: list[tuple[float, str]] = field(default_factory=list)
    forgotten: list[tuple[float, str]] = field(default_factory=list)
    broken: list[tuple[float, str]] = field(default_factory=list)
    left: Mapping[str, str] = field(default_factory=dict)
    pause: str = ""
    limits: Limits = field(default_factory=Limits)
    witness: str = ""
    lease_disk: str = ""
    disk: dict[str, Slot] = field(default_factory=dict)
    _acknowledged: int = 0
    _later: list[tuple[float, str, str, Callable[[], None]]] = field(default_factory=list)

    def say(self, text: str) -> None:
        """Note what happens."""
        self.log.append((self.now_s, text))

    # --- what happens to the cluster

    def switch_off(self, name: str) -> None:
        """A node loses its power."""
        node = self.nodes[name]
        node.is_up, node.boots_s, node.dies_s = False, None, None
        self._forget(node)

    def switch_on(self, name: str) -> None:
        """It gets power again."""
        node = self.nodes[name]
        if not node.is_up and node.boots_s is None and node.knows:
            node.boots_s = self.now_s + BOOT_S

    def reset(self, name: str) -> None:
        """It boots anew at once."""
        self.switch_off(name)
        self.switch_on(name)

    def stand(self, name: str) -> None:
        """Its agent stands still, perhaps just before it feeds the watchdog."""
        node = self.nodes[name]
        if not node.is_up:
            return
        node.agent_stands = True
        node.mid_feed = node.keeper.may_feed(self.now_s) and self.chance() > 0.5

    def go_on(self, name: str) -> None:
        """Its agent goes on, or dies if it is too late for the feeding that it was at."""
        node = self.nodes[name]
        if node.mid_feed and not node.keeper.may_feed(self.now_s):
            self.kill(name)
        elif node.mid_feed and node.dies_s is not None:
            node.dies_s = self.now_s + node.watchdog_s
        node.agent_stands = node.mid_feed = False

    def kill(self, name: str) -> None:
        """Its agent is killed and starts anew; the kernel feeds the watchdog, which runs on."""
        node = self.nodes[name]
        if node.is_armed and not node.has_let_go:
            node.dies_s = self.now_s + node.watchdog_s
        self._begin(node)
        node.is_appeared = node.agent_stands = node.mid_feed = node.is_at_disk = False
        node.is_armed, node.round = False, None
        node.verdicts.clear()
        node.answered_s.clear()
        self._later = [each for each in self._later if each[1] != name]

    def restart(self, name: str) -> None:
        """Its agent is stopped in order, if etcd can be told so, and starts anew."""
        node = self.nodes[name]
        if node.is_up and not node.agent_stands and self.etcd.answers(name, self.reaches):
            holder = self.etcd.get(MASTER_KEY)
            if isinstance(holder, Mastership) and holder.boot_id == node.boot_id:
                self.etcd.delete(MASTER_KEY)
            self.etcd.delete(NODES + name)
            self.etcd.put(GUARDS + name, Guard(boot_id=node.boot_id, has_left=True))
            node.dies_s = None
        self.kill(name)
        node.next_beat_s = self.now_s + RESTART_S

    def change_times(self, timing: Timing) -> None:
        """Somebody changes the settings; agents take that up when etcd answers them."""
        self.timing = timing
        for node in self.nodes.values():
            node.next_timing = timing

    def stop_etcd(self, name: str) -> None:
        """Its member of etcd stops."""
        self.etcd.stopped.add(name)

    def start_etcd(self, name: str) -> None:
        """Its member of etcd starts again."""
        self.etcd.stopped.discard(name)

    def lose_disk(self, name: str) -> None:
        """It does not reach the lease disk any more."""
        self.nodes[name].sees_disk = False

    def return_disk(self, name: str) -> None:
        """It reaches the lease disk again."""
        self.nodes[name].sees_disk = True

    def confirm_dead(self, name: str) -> None:
        """A person says that a node that is missed is dead."""
        loss = self.etcd.get(LOSSES + name)
        if isinstance(loss, Loss) and self.etcd.get(NODES + name) is None:
            self._prove(name, loss, Proof.CONFIRMED, "a person")

    def reaches(self, one: str, other: str) -> bool:
        """Tell whether two nodes reach each other."""
        if not (self.nodes[one].is_up and self.nodes[other].is_up):
            return False
        return (one, other) not in self.cut and (other, one) not in self.cut

    # --- time

    def run(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(round(seconds / STEP_S)):
            self.step()

    def step(self) -> None:
        """One step."""
        self.now_s += STEP_S
        self._power()
        self.etcd.tick(self.now_s, self.reaches)
        self._deliver()
        for node in self.nodes.values():
            if node.is_up and not node.agent_stands and self.now_s >= node.next_beat_s:
                node.next_beat_s = self.now_s + node.timing.beat_s
                self._beat(node)
            if node.is_up:
                self._feed(node)
                self._work(node)

    def _power(self) -> None:
        for node in self.nodes.values():
            if node.is_up and node.dies_s is not None and self.now_s >= node.dies_s:
                if node.watchdog_works:
                    self.say(f"the watchdog resets {node.name}")
                    self.reset(node.name)
                else:
                    node.dies_s = None
            if node.boots_s is not None and self.now_s >= node.boots_s:
                node.is_up, node.boots_s = True, None
                node.boot_no += 1
                self._begin(node)
                node.next_beat_s = self.now_s
                self.say(f"{node.name} has booted")

    def _forget(self, node: SimNode) -> None:
        """Everything that is in memory is gone."""
        node.guests.clear()
        node.jobs.clear()
        node.answered_s.clear()
        node.agent_stands = node.mid_feed = node.is_appeared = node.is_master = False
        node.is_at_disk, node.is_armed, node.round = False, False, None
        node.verdicts.clear()
        node.ends_s = node.failing_over_s = None

    def _begin(self, node: SimNode) -> None:
        """An agent begins, with what the settings say."""
        node.keeper = Keeper(self.timing, node.name, node.boot_id, self.now_s)
        node.judge, node.claimant = Judge(self.timing), Claimant(self.timing)
        node.next_timing = None

    def _after(self, node: SimNode, action: Callable[[], None]) -> None:
        """Let an answer arrive later, or never, if the node still runs then."""
        chance = self.chance()
        if chance < LOST:
            delay_s = 0.0 if chance < 0.6 else chance * 1.5
            self._later.append((self.now_s + delay_s, node.name, node.boot_id, action))

    def _deliver(self) -> None:
        due = [each for each in self._later if each[0] <= self.now_s] if self._later else ()
        for each in due:
            _, name, boot_id, action = each
            node = self.nodes[name]
            if node.is_up and node.agent_stands:
                continue  # it is taken up when the agent goes on
            self._later.remove(each)
            if node.is_up and node.boot_id == boot_id:
                action()

    # --- the agent of a node

    def _beat(self, node: SimNode) -> None:
        sent_s, keeper = self.now_s, node.keeper
        near = [
            other.name
            for other in self.nodes.values()
            if self.reaches(node.name, other.name) and not other.agent_stands
            if other.name in node.knows
        ]
        self._after(node, lambda: self._heard(node, near, sent_s))
        if self.lease_disk and node.sees_disk and not node.is_at_disk:
            self._use_disk(node)
        if self.etcd.answers(node.name, self.reaches):
            self._renew(node, sent_s)
        elif node.is_armed and keeper.needs_friends(sent_s):
            knows = node.knows
            friends = {
                name
                for name in near
                if counts_alike(digest_of(knows), digest_of(self.nodes[name].knows))
                if self.nodes[name].keeper.vouches_for(node.name, node.boot_id, self.now_s)
            }
            self._after(node, lambda: keeper.vouched(sent_s, friends, knows))
        if node.name in self.candidates:
            self._claim(node)
        if node.is_master:
            self._lead(node)

    def _heard(self, node: SimNode, others: Sequence[str], sent_s: float) -> None:
        for other in others:
            node.answered_s[other] = max(sent_s, node.answered_s.get(other, sent_s))

    def _renew(self, node: SimNode, sent_s: float) -> None:
        """Keep the node present in etcd, or make it so."""
        keeper, etcd, name = node.keeper, self.etcd, node.name
        for other, verdict in list(node.verdicts.items()):
            found = self._loss(other)
            if found is None or found.uuid != verdict.loss:
                del node.verdicts[other]
        if node.is_appeared and etcd.keep_alive(node.boot_id, sent_s):
            self._after(node, lambda: keeper.renewed(sent_s))
            keeper.reprieve(keeper.sentence, self._loss(name))
            if node.next_timing is not None:
                self._take_times(node, node.next_timing)
                return
            if node.has_watchdog and not node.is_armed:
                self._arm(node)
            self._guard(node, node.timing)
            self._mark(node)
            return
        loss, guard = self._loss(name), etcd.get(GUARDS + name)
        if is_dead(loss, node.boot_id):
            keeper.is_condemned = True
            return
        known = guard if isinstance(guard, Guard) else None
        may = may_arm(node.boot_id, node.timing, known, loss)
        if node.has_watchdog and not node.is_armed and may:
            self._arm(node)
            keeper.armed(sent_s)
        self._appear(node, node.timing.lease_s, node.timing, lambda: None)

    def _appear(
        self, node: SimNode, lease_s: float, guarding: Timing, then: Callable[[], None]
    ) -> None:
        """Make the node present in one transaction, which may be lost, or its answer."""
        sent_s, name, loss = self.now_s, node.name, self._loss(node.name)
        node.is_appeared = False
        if self.chance() >= LOST:
            return
        if loss is not None and loss.proof is None:
            self.etcd.delete(LOSSES + name)
        node.keeper.reprieve(node.keeper.sentence, self._loss(name))
        self._guard(node, guarding)
        self._mark(node)
        self.etcd.grant(node.boot_id, sent_s, lease_s)
        self.etcd.put(NODES + name, Presence(boot_id=node.boot_id), node.boot_id)

        def appeared() -> None:
            node.is_appeared = True
            node.keeper.renewed(sent_s)
            then()

        self._after(node, appeared)

    def _take_times(self, node: SimNode, new: Timing) -> None:
        """Take up other times, once etcd knows the longer ones."""
        old = node.timing

        def taken() -> None:
            self._use(node, new)
            node.judge = Judge(new)
            if node.is_armed:
                node.watchdog_s = new.watchdog_s
            if node.next_timing is new:
                node.next_timing = None

        self._use(node, strictest(old, new))
        self._appear(node, new.lease_s, longest(old, new), taken)

    def _use(self, node: SimNode, timing: Timing) -> None:
        node.keeper.timing = node.claimant.timing = timing

    def _arm(self, node: SimNode) -> None:
        node.is_armed, node.has_let_go, node.watchdog_s = True, False, node.timing.watchdog_s
        node.dies_s = self.now_s + node.watchdog_s

    def _guard(self, node: SimNode, timing: Timing) -> None:
        """Let etcd know what keeps the node alive; it counts only as long as etcd knows."""
        watchdog_s = node.watchdog_s if node.is_armed else None
        uses_disk = node.is_armed and node.keeper.holds_disk(self.now_s)
        disk = self.lease_disk if uses_disk else ""
        guard = guard_for(node.boot_id, timing, watchdog_s, disk, digest_of(node.knows))
        if self.etcd.get(GUARDS + node.name) != guard:
            self.etcd.put(GUARDS + node.name, guard)
        node.keeper.uses_disk = uses_disk

    def _mark(self, node: SimNode) -> None:
        """Let etcd know whether jobs of a master may run there."""
        key, holder = ACTING + node.name, self.etcd.get(MASTER_KEY)
        wanted = mark_wanted(
            Mastership(node=node.name, boot_id=node.boot_id),
            holder if isinstance(holder, Mastership) else None,
            is_master=node.is_master,
            is_failing_over=node.failing_over_s is not None,
            has_jobs=bool(node.jobs),
        )
        if wanted is None:
            self.etcd.delete(key)
        elif wanted != self.etcd.get(key):
            self.etcd.put(key, wanted)

    def _use_disk(self, node: SimNode) -> None:
        """Read all slots, and then write the own one; that takes a while."""
        began_s, slots = self.now_s, dict(self.disk)
        slot = Slot(
            lease=self.lease_disk,
            node=node.name,
            boot_id=node.boot_id,
            gave_up=node.keeper.gave_up,
            verdicts=dict(node.verdicts),
        )

        def done() -> None:
            node.is_at_disk = False
            if node.sees_disk:
                self.disk[node.name] = slot
                node.round = Round(began_s, slots, slot)
                node.keeper.read_disk(began_s, node.round.verdicts_on(node.name))

        node.is_at_disk = True
        done_s = began_s + self.chance() * DISK_S_MAX
        self._later.append((done_s, node.name, node.boot_id, done))

    def _feed(self, node: SimNode) -> None:
        if node.agent_stands or not node.is_armed:
            return
        if node.keeper.gives_up(self.now_s):
            self.say(f"{node.name} gives up")
            node.has_let_go, node.dies_s = True, self.now_s + node.watchdog_s  # the kernel feeds it
        if node.keeper.may_feed(self.now_s):
            node.dies_s = self.now_s + node.watchdog_s

    # --- who is the master

    def _claim(self, node: SimNode) -> None:
        holder = self.etcd.get(MASTER_KEY)
        seen = self._seen(node)
        outlook = Outlook(
            self.now_s,
            node.name,
            node.boot_id,
            holder if isinstance(holder, Mastership) else None,
            node.is_appeared and self.etcd.answers(node.name, self.reaches),
            node.is_master,
            node.failing_over_s is not None,
            node.follows in seen and self.nodes[node.follows].is_master,
            len(seen),
            len(node.knows),
            self._alone(),
            self.pause,
            node.name == self.witness,
        )
        own = Mastership(node=node.name, boot_id=node.boot_id)
        match node.claimant.look(outlook):
            case Claim.TAKE:
                self.etcd.put(ACTING + node.name, own)
                self.etcd.put(MASTER_KEY, own, node.boot_id)
            case Claim.GIVE_BACK:
                self.etcd.delete(MASTER_KEY)
            case Claim.FAIL_OVER:
                self.say(f"{node.name} begins to take over")
                node.failing_over_s = self.now_s + FAILOVER_S
            case _:
                pass

    def _seen(self, node: SimNode) -> set[str]:
        fresh_s = self.now_s - node.timing.answer_s
        fresh = {name for name, sent_s in node.answered_s.items() if sent_s > fresh_s}
        return (fresh & node.knows) | {node.name}

    def _fail_over(self, node: SimNode) -> None:
        """The votes decide; the old master, if it answers, ends its jobs first."""
        node.failing_over_s = None
        near = [self.nodes[name] for name in sorted(node.knows) if self.reaches(node.name, name)]
        copies = [other for other in near if other.name in self.candidates]
        needed = answers_wanted(self.candidates, self._alone(), node.name)
        if len(near) < votes_needed(len(node.knows)) or len(copies) < needed:
            self.say(f"{node.name} may not take over: too few nodes answer it")
            node.claimant.failed(self.now_s)
            return
        newest = max(copies, key=lambda other: other.settings.serial).settings
        if newest.serial < self._acknowledged:
            self.forgotten.append((self.now_s, f"{node.name} does not know all changes"))
        for other in near:
            if other.is_master and other is not node:
                other.is_master = False
                other.jobs.clear()
            other.follows = node.name
        for other in copies:
            other.settings = newest.copy()
        node.settings.serial += 10_000
        self._tell_nodes(node)
        node.is_master = True
        self.say(f"{node.name} is the master")

    def _step_down(self, node: SimNode) -> None:
        """A master that most nodes do not follow any more, or that sees too few, ends."""
        seen = self._seen(node)
        following = [name for name in seen if self.nodes[name].follows == node.name]
        if len(following) >= votes_needed(len(node.knows)):
            node.ends_s = None
        elif node.ends_s is None:
            node.ends_s = self.now_s + node.timing.lease_s + JOBS_END_S
        elif self.now_s >= node.ends_s:
            self.say(f"{node.name} is the master no more")
            node.is_master, node.ends_s = False, None
            node.jobs.clear()

    # --- the master

    def _lead(self, node: SimNode) -> None:
        self._step_down(node)
        if not node.is_master:
            return
        view = self._view(node)
        for order in node.judge.look(view):
            self._carry_out(node, order, view)
        if node.ends_s is None and view.is_current:
            self._be_alone(node)
            if not self.pause:
                self._restart(node)

    def _view(self, node: SimNode) -> View:
        holder, boots = self.etcd.get(MASTER_KEY), node.boot_id
        is_current = (
            self.etcd.answers(node.name, self.reaches)
            and isinstance(holder, Mastership)
            and holder.boot_id == boots
        )
        views = {}
        for name in sorted(node.knows):
            guard, loss = self.etcd.get(GUARDS + name), self.etcd.get(LOSSES + name)
            views[name] = NodeView(
                is_present=self.etcd.get(NODES + name) is not None,
                is_offline=name in node.settings.offline,
                is_witness=name == self.witness,
                answered_s=node.answered_s.get(name),
                guard=guard if isinstance(guard, Guard) else None,
                loss=loss if isinstance(loss, Loss) else None,
                revision=self.etcd.revision(LOSSES + name),
                has_helper=self.nodes[name].helper is not Helper.NONE,
                disk=self._seen_on_disk(node, name),
            )
        return View(self.now_s, node.name, views, is_current, self.pause)

    def _seen_on_disk(self, node: SimNode, name: str) -> DiskView | None:
        if node.round is None or node.round.written is None or name not in node.round.slots:
            return None
        slot, verdict = node.round.slots[name], node.round.written.verdicts.get(name)
        standing = "" if verdict is None else verdict.loss
        return DiskView(slot.lease, slot.boot_id, slot.gave_up, standing)

    def _carry_out(self, node: SimNode, order: Order, view: View) -> None:
        """Do what was ordered, if it may still be done."""
        name, etcd = order.node, self.etcd
        is_absent = etcd.get(NODES + name) is None
        is_same = etcd.revision(LOSSES + name) == order.revision
        loss = etcd.get(LOSSES + name)
        match order.act:
            case Act.SUSPECT if is_absent and (loss is None or is_same):
                uuid = f"{order.boot_id}@{self.now_s}"
                etcd.put(LOSSES + name, Loss(uuid=uuid, node=name, boot_id=order.boot_id))
                self.say(f"{name} is missed")
            case Act.ABSOLVE if is_same:
                etcd.delete(LOSSES + name)
            case Act.CONDEMN:
                self._condemn(node, order, view)
            case Act.PROVE if is_absent and is_same and isinstance(loss, Loss) and order.proof:
                self._prove(name, loss, order.proof, node.name)
            case Act.SWITCH_OFF:
                self._ask_helper(node, order)
            case _:
                pass

    def _condemn(self, node: SimNode, order: Order, view: View) -> None:
        loss, guard = view.nodes[order.node].loss, view.nodes[order.node].guard
        if loss is not None and guard is not None and guard.disk:
            node.verdicts[order.node] = Verdict(boot_id=order.boot_id, loss=loss.uuid)
        for name in order.to:
            if self.reaches(node.name, name) and not self.nodes[name].agent_stands:
                keeper = self.nodes[name].keeper
                keeper.condemn(order.node, order.boot_id, self.now_s, order.hold_s)
                node.judge.condemned(
                    order.node, order.revision, name, told_s=self.now_s, heard_s=self.now_s
                )

    def _prove(self, name: str, loss: Loss, proof: Proof, by: str) -> None:
        proved = Loss(uuid=loss.uuid, node=name, boot_id=loss.boot_id, proof=proof, by=by)
        self.etcd.put(LOSSES + name, proved)
        node = self.nodes[name]
        is_same = node.is_up and node.boot_id == loss.boot_id
        if is_same and node.watchdog_works and proof in (Proof.WATCHDOG, Proof.DISK):
            self.broken.append((self.now_s, f"{name} is proved dead by its {proof}, and runs"))
        self.say(f"{name} is proved dead: {proof}")

    def _ask_helper(self, node: SimNode, order: Order) -> None:
        name, revision = order.node, order.revision

        def told(power: Power, trouble: str = "") -> None:
            node.judge.told(name, revision, power, trouble, now_s=self.now_s)

        match self.nodes[name].helper:
            case Helper.WORKS:
                self.switch_off(name)
                self.say(f"the helper has switched {name} off")
                self._after(node, lambda: told(Power.OFF))
            case Helper.FAILS:
                told(Power.UNKNOWN, "it failed")
            case _:
                pass

    def _restart(self, node: SimNode) -> None:
        """Begin the restarts whose turn it is."""
        losses = {name: self._loss(name) for name in node.knows}
        proved = {name: loss for name, loss in losses.items() if loss is not None and loss.proof}
        acting = {
            name: found
            for name in self.nodes
            if isinstance(found := self.etcd.get(ACTING + name), Mastership)
        }
        if why := objection(acting, proved, node.name):
            self.left = dict.fromkeys((guest.name for guest in self._wanted(node, proved)), why)
            return
        wanted = list(self._wanted(node, proved))
        for name, loss in proved.items():
            present = self.etcd.get(NODES + name)
            if isinstance(present, Presence) and present.boot_id != loss.boot_id:
                self.etcd.delete(LOSSES + name)  # it is back, and nothing runs there
            elif name not in node.settings.offline:
                settings = node.settings.copy()
                settings.offline |= {name}
                self._commit(node, settings)
        seen = self._seen(node)
        used = {
            name: sum(self._memory(guest) for guest in self.nodes[name].guests) for name in seen
        }
        free = {
            name: self.nodes[name].memory - used[name]
            for name in seen
            if name in node.knows and name not in (*proved, *node.settings.offline, self.witness)
        }
        running = {job.guest: job.target for job in node.jobs}
        plan = plan_restarts(wanted, free, running, self.limits)
        self.left = plan.left
        for restart in plan.restarts:
            guest = restart.guest
            ready_s = self.now_s + CONFIGURE_S
            node.jobs.append(SimJob(guest.name, guest.node, restart.node, ready_s))

    def _memory(self, guest: str) -> int:
        return self.guests[guest].memory

    def _loss(self, name: str) -> Loss | None:
        found = self.etcd.get(LOSSES + name)
        return found if isinstance(found, Loss) else None

    def _wanted(self, node: SimNode, dead: Collection[str]) -> Iterator[Guest]:
        for guest in self.guests.values():
            primary = node.settings.primary[guest.name]
            is_down = guest.name not in self.nodes[primary].guests
            if primary not in dead and primary in self._seen(node) and is_down:
                yield Guest(guest.name, primary, guest.memory, [primary], guest.priority)
            if primary in dead:
                both = {guest.primary, guest.secondary}
                reach = node.knows if guest.is_shared else both
                others = [name for name in self.nodes if name in reach and name != primary]
                yield Guest(guest.name, primary, guest.memory, others, guest.priority)

    def _work(self, node: SimNode) -> None:
        """The jobs of a master go on, with its agent or without; so does its fail-over."""
        if node.failing_over_s is not None and self.now_s >= node.failing_over_s:
            self._fail_over(node)
        own = Mastership(node=node.name, boot_id=node.boot_id)
        if node.jobs and self.etcd.get(ACTING + node.name) != own:
            self.broken.append((self.now_s, f"jobs run on {node.name}, which has no mark"))
        for job in list(node.jobs):
            if not job.is_configured and self.now_s >= job.configured_s:
                self._configure(node, job)
            elif job.is_configured and self.now_s >= job.configured_s + START_S:
                if self.reaches(node.name, job.target):
                    self._start(job.guest, job.target)
                node.jobs.remove(job)

    def _start(self, guest: str, target: str) -> None:
        self.nodes[target].guests.add(guest)
        self.say(f"{guest} runs on {target}")
        hosts = [name for name, node in self.nodes.items() if guest in node.guests]
        if len(hosts) > 1:
            self.twice.append((self.now_s, f"{guest} runs on {' and '.join(hosts)}"))

    def _configure(self, node: SimNode, job: SimJob) -> None:
        """A change is answered when the master has it; how many copies there are counts later."""
        settings = node.settings.copy()
        settings.primary[job.guest] = job.target
        self._commit(node, settings)
        job.is_configured, job.configured_s = True, self.now_s

    def _commit(self, node: SimNode, settings: Settings) -> bool:
        """Write a configuration; returns whether enough candidates have it."""
        near = [name for name in self.candidates if self.reaches(node.name, name)]
        settings.serial += 1
        node.settings = settings
        for name in near:
            if self.nodes[name].settings.serial < settings.serial:
                self.nodes[name].settings = settings.copy()
        is_enough = len(near) >= copies_wanted(self.candidates, self._alone(), node.name)
        if is_enough:
            self._acknowledged = max(self._acknowledged, settings.serial)
        return is_enough

    def _alone(self) -> str:
        found = self.etcd.get(ALONE_KEY)
        return found.node if isinstance(found, Mastership) else ""

    def _be_alone(self, node: SimNode) -> None:
        """Of two candidates: go on without the other one, or with it again."""
        near = [name for name in self.candidates if self.reaches(node.name, name)]
        for name in near:
            if self.nodes[name].settings.serial < node.settings.serial:
                self.nodes[name].settings = node.settings.copy()
        match judge_lone(self.candidates, node.name, self._alone(), near):
            case Lone.WRITE:
                self.etcd.put(ALONE_KEY, Mastership(node=node.name, boot_id=node.boot_id))
                self.say(f"{node.name} goes on alone")
            case Lone.ERASE:
                self.etcd.delete(ALONE_KEY)
            case Lone.NOTHING:
                pass

    def change(self) -> None:
        """Somebody changes the configuration, on each node that believes to be the master."""
        for node in self.nodes.values():
            if node.is_master and node.is_up and node.ends_s is None:
                self._commit(node, node.settings.copy())

    def add(self, name: str) -> None:
        """A person adds a node, set up anew; refused while too few know of the last one."""
        for master in self._changing_nodes():
            if name not in master.settings.nodes:
                self._change_nodes(master, master.settings.nodes | {name})
                self.nodes[name].knows = master.settings.nodes
                self.nodes[name].follows = master.name
                self.reset(name)
                self.nodes[name].boots_s = self.now_s  # no agent of before runs on

    def remove(self, name: str) -> None:
        """A person removes a node without instances; it ends if it is reached."""
        for master in self._changing_nodes():
            settings = master.settings
            if name in settings.nodes and name not in self._needed(settings):
                self._change_nodes(master, settings.nodes - {name})
                self.etcd.delete(GUARDS + name)
                self.etcd.delete(LOSSES + name)
                if self.reaches(master.name, name):
                    self.switch_off(name)
                    self.nodes[name].knows = frozenset()

    def _needed(self, settings: Settings) -> set[str]:
        """Return the nodes that cannot be removed."""
        pairs = [(each.primary, each.secondary) for each in self.guests.values()]
        copies = {name for pair in pairs for name in pair if name is not None}
        return {*self.candidates, *settings.primary.values(), *copies, self.witness}

    def _changing_nodes(self) -> Iterator[SimNode]:
        """Yield the masters on which the list of nodes may change."""
        for master in self.nodes.values():
            is_working = master.is_master and master.is_up and master.ends_s is None
            if is_working and self.etcd.answers(master.name, self.reaches):
                names = master.settings.nodes
                present = [name for name in names if self.etcd.get(NODES + name) is not None]
                guards = {name: self.etcd.get(GUARDS + name) for name in names}
                if not obstacle(
                    names,
                    present,
                    {name: each for name, each in guards.items() if isinstance(each, Guard)},
                    {name: loss for name in names if (loss := self._loss(name)) is not None},
                ):
                    yield master

    def _change_nodes(self, master: SimNode, names: frozenset[str]) -> None:
        settings = master.settings.copy()
        settings.nodes = names
        self._commit(master, settings)
        self._tell_nodes(master)

    def _tell_nodes(self, master: SimNode) -> None:
        """Send the list of nodes; not all take it."""
        master.knows = names = master.settings.nodes
        for name in sorted(names):
            if self.reaches(master.name, name) and self.chance() < HEARD:
                self.nodes[name].knows = names

    def take_back(self, name: str) -> None:
        """A person takes a node back that was set offline."""
        for master in self.nodes.values():
            if master.is_master:
                settings = master.settings.copy()
                settings.offline -= {name}
                self._commit(master, settings)


def make_world(
    timing: Timing,
    names: Sequence[str],
    candidates: Sequence[str],
    guests: Sequence[SimGuest],
    chance: Callable[[], float] = lambda: 0.0,
    members: Sequence[str] = (),
    *,
    lease_disk: str = "",
    witness: str = "",
    spare: Sequence[str] = (),
) -> World:
    """Return a cluster in which everything runs for long; the first node is the master.

    Args:
        spare: nodes that are no part of it yet, and off.
        members: the nodes with a member of etcd; by default the candidates.
        lease_disk: the disk that all nodes share for leases; "" for none.
        witness: the node that only votes; "" for none.
    """
    primary = {guest.name: guest.primary for guest in guests}
    nodes = {
        name: SimNode(
            name,
            Keeper(timing, name, f"{name}.1", -timing.held_s),
            Judge(timing),
            Claimant(timing),
            follows=names[0],
            knows=frozenset(names),
            settings=Settings(primary=dict(primary), nodes=frozenset(names)),
            guests={guest.name for guest in guests if guest.primary == name},
        )
        for name in (*names, *spare)
    }
    for name in spare:
        nodes[name].is_up, nodes[name].knows = False, frozenset()
    nodes[names[0]].is_master = True
    etcd = EtcdModel(members or candidates)
    named = {each.name: each for each in guests}
    world = World(timing, nodes, named, candidates, etcd, chance, lease_disk=lease_disk)
    world.witness = witness
    return world
