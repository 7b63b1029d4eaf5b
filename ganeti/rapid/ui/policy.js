// A policy of backups: a tag whose words say when, where and how; its form.  The words and what is
// checked of them come from the server: they are those of `gnt-backup set-policy`.

import { FormError } from "/ui/form.js";
import RULES from "/ui/policy-rules.js";
import { inOrder } from "/ui/table.js";

const { prefix: PREFIX, none: NONE, limit: LIMIT, seconds: SECONDS, words: WORDS } = RULES;
const TAGS = { instance: "/2/instances/{instance}/tags", group: "/2/groups/{group}/tags", cluster: "/2/tags" };
const FARTHER = { instance: "The policy of its node group, or else of the cluster, is in force then.", group: "The policy of the cluster is in force then.", cluster: "Only instances and node groups with policies of their own are backed up then." };

export const ownPolicy = (tags) => tags.filter((tag) => tag.startsWith(PREFIX) && !tag.startsWith(LIMIT));
export const policyText = (tags) => ownPolicy(tags).map((tag) => tag.slice(PREFIX.length).replaceAll(":", " ")).join("; ");

// The policy in force for an instance, and what has it; "" for none.
export function effective(app, instance) {
  const node = app.nodes.find(({ name }) => name === instance.pnode);
  const group = app.groups.find(({ uuid }) => uuid === node?.["group.uuid"]);
  const places = [["itself", instance.tags], [`node group ${group?.name}`, group?.tags ?? []], ["the cluster", app.info?.tags ?? []]];
  const [of, tags] = places.find(([, each]) => ownPolicy(each).length) ?? ["", []];
  return { of, text: policyText(tags) };
}

// The values of words in the tags of a thing, by their names.
function read(tags) {
  const [tag = ""] = ownPolicy(tags);
  const words = tag.slice(PREFIX.length).split(":");
  const found = {};
  for (const { name, kind } of WORDS) {
    const at = words.indexOf(name);
    if (at >= 0) found[name] = kind === "flag" ? true : words[at + 1];
  }
  return { ...found, none: tag === NONE };
}

function seconds(text) {
  const [, number, unit] = /^(\d+)(\w?)$/.exec(text);
  return Number(number) * SECONDS[unit || "s"];
}

// Answers what is wrong with the value of a word, or "", as far as no other word is needed.
function wrongOf({ pattern, wrong, least }, text) {
  if (!new RegExp(`^(?:${pattern})$`).test(text)) return `"${text}" ${wrong}`;
  return least.find(({ than }) => typeof than === "number" && seconds(text) < than)?.wrong ?? "";
}

// Full names of the nodes that are meant by full or short ones.
function fullNames(app, words) {
  return words.map((word) => {
    const [found, another] = app.nodes.filter(({ name }) => name === word || name.startsWith(`${word}.`));
    if (!found || another) throw new FormError(`no node "${word}" is known`);
    return found.name;
  });
}

function fieldOf(app, word, now) {
  const { name, kind, label, hint } = word;
  const spec = { name, label, hint, always: true };
  if (kind === "flag") return { ...spec, hint: undefined, kind: "flag", value: now[name] };
  if (kind === "nodes") {
    const placeholder = app.nodes.map((node) => node.name.split(".")[0]).sort(inOrder).slice(0, 3).join(" ");
    return { ...spec, kind: "words", value: now[name]?.replaceAll("+", " "), placeholder, check: (text) => { fullNames(app, text.split(/[\s,]+/).filter(Boolean)); return ""; } };
  }
  return { ...spec, kind: "text", value: now[name] ?? word.start, placeholder: word.example, check: (text) => wrongOf(word, text) };
}

function fields(app, tags) {
  const now = read(tags);
  return [
    { name: "none", label: "Make no backups", kind: "flag", value: now.none, always: true },
    ...WORDS.map((word) => fieldOf(app, word, now)),
  ];
}

function tagOf(app, values) {
  if (values.none) return NONE;
  const said = [];
  for (const { name, kind, label, least, is_needed } of WORDS) {
    const value = values[name];
    if (is_needed && !value) throw new FormError(`${label} is missing`);
    if (!value) continue;
    const below = least.find(({ than }) => typeof than === "string" && seconds(value) < seconds(values[than]));
    if (below) throw new FormError(`${label}: ${below.wrong}`);
    said.push(name);
    if (kind !== "flag") said.push(kind === "nodes" ? fullNames(app, value).join("+") : value);
  }
  return PREFIX + said.join(":");
}

const tagQuery = (tags) => tags.map((tag) => ["tag", tag]);

function setting(kind) {
  return {
    word: "Backup policy",
    make: (app, thing) => ({
      method: "PUT",
      path: TAGS[kind],
      word: "Set",
      text: policyText(thing.tags) ? `Replaces "${policyText(thing.tags)}".` : "The watcher makes backups by it.",
      fields: fields(app, thing.tags),
      noBody: true,
      queryOf: (values) => {
        const tag = tagOf(app, values);
        if (ownPolicy(thing.tags).join() === tag) throw new FormError("Nothing is changed by this");
        return tagQuery([tag]);
      },
      // What it replaces goes once it is there: in between both are, never none.
      also: (values) => {
        const old = ownPolicy(thing.tags).filter((tag) => tag !== tagOf(app, values));
        return old.length ? { method: "DELETE", path: TAGS[kind], query: tagQuery(old) } : null;
      },
    }),
  };
}

const removing = (kind) => ({
  word: "Remove the policy",
  fits: ({ tags }) => ownPolicy(tags).length > 0,
  make: (_app, thing) => ({ method: "DELETE", path: TAGS[kind], text: `"${policyText(thing.tags)}" goes. ${FARTHER[kind]}`, queryOf: () => tagQuery(ownPolicy(thing.tags)), noBody: true }),
});

// The operations on the policy of a thing, by its kind.
export const POLICIES = Object.fromEntries(Object.keys(TAGS).map((kind) => [kind, [setting(kind), removing(kind)]]));
