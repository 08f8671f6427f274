// The page: what the speaker sends, shown as it comes.

import { at, button, eipsOf, make, when } from "./dom.js";
import { showFailovers } from "./failovers.js";
import { showLan } from "./lan.js";
import { search, showEips } from "./table.js";

const WAIT = 5000; // milliseconds until the next question, where too many look already
const SOME = 3; // more sentences of one kind
let shown = {};

function bar(part, bad) {
  const filled = make("i", "", bad ? "bad" : "");
  filled.style.width = `${Math.min(100, 100 * part)}%`;
  const whole = make("span", "", "bar", filled);
  whole.setAttribute("aria-hidden", "true"); // the number is beside it
  return whole;
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
  }
  const weight = (one) => (one.severity === "warning" ? 0 : 1 + one.eips);
  return [...found.values()].sort((one, other) => weight(other) - weight(one));
}

function docs(where) {
  const base = document.querySelector("link[rel=help]").href;
  if (base.includes("/REPOSITORY/")) return make("span", where, "aside-text"); // nobody said where the docs are
  const link = make("a", where);
  link.href = new URL(where.replace(/^docs\//, ""), base);
  return link;
}

function problem({ what, eips, more, mend, docs: where, severity }) {
  const made = make("li", "", severity === "warning" ? "warning" : "", make("b", what));
  if (eips > 1) made.append(" ", make("span", eipsOf(eips), "many"));
  made.append(...more.slice(0, SOME).map((each) => make("p", each)));
  if (more.length > SOME) made.append(make("p", `and ${more.length - SOME} more of this kind`, "aside-text"));
  if (mend) made.append(make("p", "To mend: ", "", make("code", mend)));
  if (where) made.append(make("p", "", "", docs(where)));
  return made;
}

function showProblems() {
  const { doctor, left_out: left } = shown; // no doctor: it was not asked, or not yet
  const found = wrong();
  const more = left.problems + left.refused + (doctor?.left_out ?? 0);
  at("problems-section").hidden = !found.length && !doctor;
  at("problems-section").className = found.length ? "wrong" : "";
  at("problems-title").textContent = found.length ? `What is wrong: ${found.length}` : "Nothing is wrong, as far as is seen";
  at("problems").replaceChildren(...found.map(problem), ...(more ? [make("li", `and ${more} more`)] : []));
  at("examined").hidden = !doctor;
  if (doctor) at("examined").replaceChildren("The doctor looked at this host ", when(doctor.at));
}

function showPools() {
  at("pools").replaceChildren(...shown.pools.map(({ pool, family, size, used, resting }) => {
    const taken = used + resting;
    const rest = resting ? ` (+ ${resting} resting)` : "";
    return make("li", "", "", make("span", `${pool}, ${family}`), make("span", `${used}${rest} of ${size}`),
      bar(size ? taken / size : 1, taken >= 0.9 * size));
  }));
}

function show(told, all) {
  if (!told.counts) return; // nothing is known yet
  shown = told;
  showHead();
  showProblems();
  showPools();
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
