// What a job is about and who wanted it, from the parameters of its operations.

const ENDS = /\.$/;

// Answers the names of one kind in an operation, as they were typed.
function namesIn(kind, op) {
  if (op.OP_ID === "OP_TAGS_SET" || op.OP_ID === "OP_TAGS_DEL") return op.kind === kind ? [op.name] : [];
  const found = [op[`${kind}_name`]];
  if (kind === "instance") found.push(...(op.instances ?? []).map((each) => each?.instance_name ?? each));
  if (kind === "node") found.push(op.pnode, op.snode, op.target_node, op.remote_node, op.src_node, ...(op.nodes ?? []), ...(op.node_names ?? []));
  return found.filter((name) => typeof name === "string");
}

// A short name stands for the only full name that begins with it.
export function fullName(name, known) {
  const plain = name.replace(ENDS, "");
  if (known.has(plain)) return plain;
  const longer = [...known].filter((each) => each.startsWith(`${plain}.`));
  return longer.length === 1 ? longer[0] : plain;
}

export function jobsAbout(jobs, kind, name, things) {
  const known = new Set(things.map((thing) => thing.name));
  const resolved = new Map();
  const full = (each) => {
    if (!resolved.has(each)) resolved.set(each, fullName(each, known));
    return resolved.get(each);
  };
  return jobs.filter((job) => (job.ops ?? []).some((op) => namesIn(kind, op).some((each) => full(each) === name)));
}

// Who submitted a job, and the reason that was given; from the trail of its first operation.
export function submitterOf(job) {
  const trail = job.ops?.[0]?.reason ?? [];
  const remote = trail.find(([source]) => source.startsWith("gnt:library:rlib2"));
  if (remote) return remote[1].replace(/^user /, "") || "remote API";
  const [source] = trail.find(([each]) => each.startsWith("gnt:client:") || each.startsWith("gnt:daemon:")) ?? [""];
  return source.split(":").at(-1) || "–";
}

export const reasonOf = (job) => (job.ops?.[0]?.reason ?? []).filter(([source]) => source === "gnt:user").map(([, text]) => text).join(", ");

const SILENT = new Set(["OP_ID", "reason", "debug_level", "priority", "depends", "comment", "dry_run"]);
const isSaid = (value) => value !== null && value !== undefined && !(typeof value === "object" && Object.keys(value).length === 0);

export const parametersOf = (op) => Object.entries(op).filter(([name, value]) => !SILENT.has(name) && !name.endsWith("_uuid") && isSaid(value));
