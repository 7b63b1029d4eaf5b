// Elements and words.  Whatever comes from the cluster becomes a text node or an attribute,
// never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

export const byId = (id) => document.getElementById(id);

export function link(kind, name, text = name) {
  return el("a", { href: `#/${kind}/${encodeURIComponent(name)}` }, String(text));
}

// Sizes come in MiB.
export function size(mib) {
  if (typeof mib !== "number") return "–";
  const units = ["MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  while (mib >= 1024 && at < units.length - 1) {
    mib /= 1024;
    at += 1;
  }
  return `${mib >= 100 || at === 0 ? Math.round(mib) : mib.toFixed(1)} ${units[at]}`;
}

// Times of jobs come as seconds and microseconds.
export const seconds = (stamp) => (Array.isArray(stamp) ? stamp[0] + stamp[1] / 1e6 : null);

const clockTime = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const dayTime = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export function when(stamp, whole = false) {
  const at = seconds(stamp);
  if (at === null) return "–";
  const date = new Date(at * 1000);
  const isToday = date.toDateString() === new Date().toDateString();
  return (whole || !isToday ? dayTime : clockTime).format(date);
}

export function lasted(from, to) {
  if (seconds(from) === null) return "–";
  const took = Math.max(0, (seconds(to) ?? Date.now() / 1000) - seconds(from));
  if (took < 60) return `${took.toFixed(took < 10 ? 1 : 0)} s`;
  const minutes = Math.floor(took / 60);
  return minutes < 60 ? `${minutes} min ${Math.floor(took % 60)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// A word with a colour; the colour never says more than the word.
export function badge(word, tone) {
  return el("span", { class: `badge ${tone}` }, word);
}

export function bar(part, whole, label, kind = "") {
  const share = whole > 0 ? Math.min(1, Math.max(0, part / whole)) : 0;
  const inner = el("span", { class: kind || (share > 0.9 ? "full" : "") });
  inner.style.width = `${(share * 100).toFixed(1)}%`;
  return el("span", { class: "load" },
    el("span", { class: "bar", role: "img", "aria-label": `${Math.round(share * 100)} %` }, inner),
    el("span", { class: "small" }, label));
}

export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return el("dl", { class: "facts" }, shown.map(([name, value]) => [
    el("dt", {}, name),
    el("dd", {}, Array.isArray(value) ? value : [value instanceof Node ? value : String(value)]),
  ]).flat());
}

// A name that may be broken into lines at its dots.
export const breakable = (name) => name.split(/(?=\.)/).flatMap((part, at) => (at ? [el("wbr"), part] : [part]));

// Puts something between the elements of a list.
export const between = (items, word = ", ") => items.flatMap((item, at) => (at ? [word, item] : [item]));
