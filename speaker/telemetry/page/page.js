// The page: what the speaker sends, shown as it comes.

import { at, button, eipsOf, make, when } from "./dom.js";
import { showFailovers } from "./failovers.js";
import { showLan } from "./lan.js";
import { search, showEips } from "./table.js";

const WAIT = 5000; // milliseconds until the next question, where too many look already
const SOME = 3; // more sentences of one kind
const STATES = ["used", "resting", "excluded", "free"]; // of an address that is not outside its pool
const open = new Set(); // kinds of problems and pools that somebody opened
const listed = {}; // what each list shows
let shown = {};

// What is the same is not touched, and what is another keeps the focus.
function list(id, found, line) {
  const said = JSON.stringify(found);
  if (said === listed[id]) return;
  listed[id] = said;
  const heads = () => [...at(id).querySelectorAll("summary")];
  const focused = heads().indexOf(document.activeElement);
  at(id).replaceChildren(...found.map(line));
  heads()[focused]?.focus();
}

function opens(name, ...children) {
  const made = make("details", "", "", ...children);
  made.open = open.has(name);
  made.addEventListener("toggle", () => (made.open ? open.add(name) : open.delete(name)));
  return made;
}

function showHead() {
  const { by, role, version, counts, refused, left_out: left } = shown;
  document.title = `EIP speaker · ${by}`;
  at("by").textContent = `${role} ${by}, version ${version}`;
  const numbers = [
    [counts.eips, "EIP in use", "EIPs in use", ""],
    [counts.by_nobody, "held by nobody", "held by nobody", "nobody"],
    [counts.conflicts, "in conflict with a stranger", "in conflict with strangers", "conflict"],
    [refused.length + left.refused, "Service that lacks something", "Services that lack something", null],
  ].filter(([number, , , words]) => number || words === "");
  at("counts").replaceChildren(...numbers.map(([number, one, many, words]) => {
    const text = number === 1 ? one : many;
    const name = words ? button(text, "", () => search(words)) : make("span", text);
    return make("li", "", words === "" ? "" : "bad", make("b", number.toLocaleString("en")), " ", name);
  }));
}

// Everything that is wrong, by kind, what breaks most first: what the doctor finds, what the speaker says of itself, and
// Services that lack something.
function wrong() {
  const { problems, findings = [], doctor, refused } = shown;
  const found = new Map();
  const add = (kind, one) => {
    const known = found.get(kind);
    if (known) known.more.push(one.what);
    else found.set(kind, { more: [], eips: 0, ...one });
  };
  for (const { kind, ...one } of doctor?.findings ?? []) add(kind, one);
  const examined = new Set(found.keys());
  problems.forEach((what, index) => {
    const { kind = what, ...one } = findings[index] ?? {};
    if (!examined.has(kind)) add(kind, { what, ...one });
    else Object.assign(found.get(kind), one);
  });
  for (const { service, reason, message } of refused) {
    if (!examined.has(reason)) add(reason, { what: `${service}: ${message}` });
    found.get(reason).eips = 0; // no EIP of another Service is worse for that
  }
  const weight = (one) => (one.severity === "warning" ? 0 : 1 + one.eips);
  return [...found].map(([kind, one]) => ({ ...one, kind })).sort((one, other) => weight(other) - weight(one));
}

function docs(where) {
  const base = document.querySelector("link[rel=help]").href;
  if (base.includes("/REPOSITORY/")) return make("span", where, "aside-text"); // nobody said where the docs are
  const link = make("a", where);
  link.href = new URL(where.replace(/^docs\//, ""), base);
  return link;
}

function problem({ kind, left, what, eips, more, mend, docs: where, severity }) {
  if (left) return make("li", `and ${left} more`);
  const made = opens(kind, make("summary", what));
  if (eips > 1 && !what.includes(`${eips} EIPs`)) made.firstChild.append(" ", make("span", eipsOf(eips), "many"));
  made.append(...more.slice(0, SOME).map((each) => make("p", each)));
  if (more.length > SOME) made.append(make("p", `and ${more.length - SOME} more of this kind`, "aside-text"));
  if (mend) made.append(make("p", "To mend: ", "", make("code", mend)));
  if (where) made.append(make("p", "", "", docs(where)));
  return make("li", "", severity === "warning" ? "warning" : "", made);
}

function showProblems() {
  const { doctor, left_out: left } = shown; // no doctor: it was not asked, or not yet
  const found = wrong();
  const more = left.problems + left.refused + (doctor?.left_out ?? 0);
  at("problems-section").hidden = !found.length && !doctor;
  at("problems-section").className = found.length ? "wrong" : "";
  at("problems-title").textContent = found.length ? `What is wrong: ${found.length}` : "Nothing is wrong, as far as is seen";
  list("problems", more ? [...found, { left: more }] : found, problem);
  at("examined").hidden = !doctor;
  if (doctor) at("examined").replaceChildren("The doctor looked at this host ", when(doctor.at));
}

// A /24, or the rows of one in which the pool has any: a cell for each address, and how many are what.
function map([first, runs]) {
  const cells = runs.flatMap(([state, number]) => Array.from({ length: number }, () => make("i", "", state)));
  cells.forEach((cell, index) => { cell.title = first.replace(/\d+$/, (last) => Number(last) + index); });
  const made = make("div", "", "map", ...cells);
  made.setAttribute("aria-hidden", "true"); // the numbers are below it
  made.addEventListener("click", ({ target }) => target.className === "used" && search(target.title));
  const of = (state) => cells.filter((cell) => cell.className === state).length;
  const said = STATES.filter(of).map((state) => make("span", "", "", make("i", "", `dot ${state}`), `${of(state)} ${state}`));
  return make("div", "", "", make("p", `${first}–${cells.at(-1).title}`), made, make("p", "", "key", ...said));
}

function pool({ pool: name, family, size, used, resting, maps, left_out: left }) {
  const bad = used + resting >= 0.9 * size ? "bad" : "used";
  const bar = make("span", "", "bar", make("i", "", bad), make("i", "", "resting"));
  bar.setAttribute("aria-hidden", "true"); // the number is above it
  [used, resting].forEach((part, index) => { bar.children[index].style.width = `${100 * (size ? part / size : 1 - index)}%`; });
  const rest = resting ? ` (+ ${resting} resting)` : "";
  const all = size > 1e9 ? `about 2^${Math.round(Math.log2(size))}` : size;
  const says = [`${name}, ${family} `, make("span", `${used}${rest} of ${all}`, "took"), bar];
  const found = Object.entries(maps ?? {});
  if (!found.length) return make("li", "", "", ...says);
  const made = opens(`${name}, ${family}`, make("summary", "", "", ...says));
  const fill = () => {
    if (!made.open || made.children.length > 1) return; // cells are many: only what somebody opens has any
    made.append(...found.map(map));
    if (left) made.append(make("p", `and ${left} more /24s in use`, "aside-text"));
  };
  made.addEventListener("toggle", fill);
  fill();
  return make("li", "", "", made);
}

function show(told, all) {
  if (!told.counts) return; // nothing is known yet
  shown = told;
  showHead();
  showProblems();
  list("pools", shown.pools, pool);
  const eips = showEips(told.eips, all);
  showLan(shown, eips);
  showFailovers(shown.failovers);
}

function state(words, lost) {
  at("link").textContent = words;
  at("link").className = lost ? "lost" : "";
}

// Too many look already: what is so now, and then another try.
async function ask() {
  try {
    show(await (await fetch("status.json")).json(), true);
    state("as it was just now", false);
  } catch {
    state("no connection: this is what was known last", true);
  }
  listen();
}

function listen() {
  const source = new EventSource("events");
  source.addEventListener("open", () => state("live", false));
  source.addEventListener("all", (event) => show(JSON.parse(event.data), true));
  source.addEventListener("change", (event) => show(JSON.parse(event.data), false));
  source.addEventListener("error", () => {
    state("no connection: this is what was known last", true);
    if (source.readyState === EventSource.CLOSED) setTimeout(ask, WAIT);
  });
}

listen();
