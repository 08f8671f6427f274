"use strict";
// What the speaker says is shown as text alone (textContent): Services, pools and nodes are named by others.

const CHUNK = 50; // rows that are laid out together, once they come into view
const WAIT = 5000; // milliseconds until the next question, where too many look already
const at = (id) => document.getElementById(id);
const rows = new Map(); // EIP → its row, and what it says
let shown = {};
let newest = "";

function make(tag, text, name, ...children) {
  const made = document.createElement(tag);
  if (text !== "") made.textContent = text;
  if (name) made.className = name;
  made.append(...children);
  return made;
}

function bar(part, bad) {
  const filled = make("i", "", bad ? "bad" : "");
  filled.style.width = `${Math.min(100, 100 * part)}%`;
  const whole = make("span", "", "bar", filled);
  whole.setAttribute("aria-hidden", "true"); // the number is beside it
  return whole;
}

const count = (number, one, many) => `${number} ${number === 1 ? one : many}`;
const seconds = (value) => `${value.toFixed(3)} s`;

function when(text) {
  const made = make("time", "", "when");
  const time = new Date(text);
  const known = !Number.isNaN(time.getTime());
  made.textContent = known ? time.toLocaleString([], { dateStyle: "short", timeStyle: "medium" }) : text;
  if (known) made.dateTime = time.toISOString();
  return made;
}

function showHead() {
  const { by, role, version, counts, problems, refused, left_out: left } = shown;
  document.title = `EIP speaker · ${by}`;
  at("by").textContent = `${role} ${by}, version ${version}`;
  const numbers = [
    [counts.eips, "EIP in use", "EIPs in use", false],
    [counts.by_nobody, "held by nobody", "held by nobody", true],
    [counts.conflicts, "in conflict with a stranger", "in conflict with strangers", true],
    [refused.length + left.refused, "Service that lacks something", "Services that lack something", true],
  ].filter(([number, , , bad]) => number || !bad);
  at("counts").replaceChildren(...numbers.map(([number, one, many, bad]) =>
    make("li", "", bad ? "bad" : "", make("b", `${number}`), ` ${number === 1 ? one : many}`)));
  const sentences = [
    ...problems,
    ...refused.map((each) => `${each.service}: ${each.message}`),
    ...(left.problems + left.refused ? [`${left.problems + left.refused} more`] : []),
  ];
  at("problems-section").hidden = !sentences.length;
  at("problems").replaceChildren(...sentences.map((each) => make("li", each)));
}

function showDoctor() {
  const { doctor } = shown; // null: nobody was asked, or not yet
  at("doctor-section").hidden = !doctor;
  if (!doctor) return;
  at("doctor").replaceChildren(...doctor.findings.map((each) =>
    make("li", each.what, "", make("span", `To mend: ${each.mend}`), make("span", each.docs, "aside-text"))));
  const more = doctor.left_out ? `, and ${doctor.left_out} more` : "";
  const words = doctor.findings.length ? `Looked at${more}: ` : "Nothing is wrong, as far as this host sees: ";
  at("examined").replaceChildren(words, when(doctor.at));
}

function showBars() {
  at("pools").replaceChildren(...shown.pools.map(({ pool, family, size, used, resting }) => {
    const taken = used + resting;
    const rest = resting ? ` (+ ${resting} resting)` : "";
    return make("li", "", "", make("span", `${pool}, ${family}`), make("span", `${used}${rest} of ${size}`),
      bar(size ? taken / size : 1, taken >= 0.9 * size));
  }));
  const focused = at("nodes").contains(document.activeElement) ? document.activeElement.textContent : null;
  const most = Math.max(1, ...shown.nodes.map((each) => each.eips));
  at("nodes").replaceChildren(...shown.nodes.map(({ node, eips }) => {
    const button = make("button", node);
    button.type = "button";
    button.title = `Show the EIPs of ${node}`;
    button.addEventListener("click", () => {
      at("filter").value = node;
      filter();
      at("filter").focus();
    });
    return make("li", "", "", button, make("span", count(eips, "EIP", "EIPs")), bar(eips / most, false));
  }));
  [...at("nodes").querySelectorAll("button")].find((each) => each.textContent === focused)?.focus();
}

const said = (one) => {
  const what = one.count === 1 ? one.eips[0] : count(one.count, "EIP", "EIPs");
  return `${what}: ${one.to} in place of ${one.from || "a node that fell silent"}`;
};

function showFailovers() {
  const found = shown.failovers;
  const slowest = Math.max(...found.map((each) => each.unanswered[1]));
  at("failovers").replaceChildren(...found.map((one) => {
    const [least, most] = one.unanswered;
    const took = least === most ? seconds(most) : `${least.toFixed(3)}–${seconds(most)}`;
    const who = make("span", said(one), "who");
    if (one.count > 1) who.title = one.eips.join(", ") + (one.count > one.eips.length ? " …" : "");
    return make("li", "", "", when(one.at), who, make("span", took, "took"), bar(slowest ? most / slowest : 0, false));
  }));
  if (!found.length) at("failovers").append(make("li", "None since this page's speaker started.", "who"));
  const last = found.length ? `${said(found[0])}, after ${seconds(found[0].unanswered[1])}` : "";
  if (newest !== last && newest !== null) at("news").textContent = last;
  newest = last;
}

function row(name, one) {
  const made = make("div", "", "");
  made.setAttribute("role", "row");
  const known = { row: made, text: "" };
  fill(known, name, one);
  return known;
}

function fill(known, name, one) {
  const held = make("span", one.holder || "nobody", one.holder ? "" : "bad");
  const why = one.conflict || one.message;
  if (why) held.append(make("span", ` ${why}`, one.conflict ? "bad" : "aside-text"));
  const services = one.services.join(", ") + (one.more ? ` and ${one.more} more` : "");
  const cells = [make("span", name), held, one.since ? when(one.since) : make("span", ""), make("span", services), make("span", one.pool)];
  cells.forEach((cell) => cell.setAttribute("role", "cell"));
  known.row.replaceChildren(...cells);
  known.text = [name, one.holder, services, one.pool].join(" ").toLowerCase();
}

// In the order of addresses, as numbers: IPv4 first.
function order(name) {
  if (!name.includes(":")) return `4${name.split(".").map((each) => each.padStart(3, "0")).join(".")}`;
  const [head, tail = []] = name.split("::").map((half) => half.split(":").filter(Boolean));
  const zeros = Array(Math.max(0, 8 - head.length - tail.length)).fill("");
  return `6${[...head, ...zeros, ...tail].map((each) => each.padStart(4, "0")).join(":")}`;
}

function lay() {
  const table = at("eips");
  while (table.children.length > 1) table.lastElementChild.remove();
  const sorted = [...rows].map(([name, known]) => [order(name), known.row]).sort(([one], [other]) => (one < other ? -1 : 1));
  for (let from = 0; from < sorted.length; from += CHUNK) {
    const group = make("div", "", "rows", ...sorted.slice(from, from + CHUNK).map(([, each]) => each));
    group.setAttribute("role", "rowgroup");
    table.append(group);
  }
}

function showEips(changed) {
  let others = false;
  for (const [name, one] of Object.entries(changed)) {
    const known = rows.get(name);
    if (one === null) {
      others = rows.delete(name) || others;
    } else if (known) {
      fill(known, name, one);
    } else {
      rows.set(name, row(name, one));
      others = true;
    }
  }
  if (others) lay();
  filter();
}

function filter() {
  const words = at("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  let found = 0;
  for (const known of rows.values()) {
    const fits = words.every((word) => known.text.includes(word));
    if (known.row.hidden === fits) known.row.hidden = !fits;
    found += fits;
  }
  for (const group of at("eips").querySelectorAll(".rows")) {
    group.hidden = ![...group.children].some((each) => !each.hidden);
  }
  at("found").textContent = words.length ? `${found} of ${count(rows.size, "EIP", "EIPs")}` : count(rows.size, "EIP", "EIPs");
}

function show(told) {
  if (!told.counts) return; // nothing is known yet
  shown = told;
  showHead();
  showDoctor();
  showBars();
  showFailovers();
  showEips(told.eips);
}

function state(words, lost) {
  at("link").textContent = words;
  at("link").className = lost ? "lost" : "";
}

function showAll(told) {
  rows.clear();
  lay();
  show(told);
}

// Too many look already: what is so now, and then another try.
async function ask() {
  try {
    showAll(await (await fetch("status.json")).json());
    state("as it was just now", false);
  } catch {
    state("no connection: this is what was known last", true);
  }
  listen();
}

function listen() {
  const source = new EventSource("events");
  source.addEventListener("open", () => state("live", false));
  source.addEventListener("all", (event) => showAll(JSON.parse(event.data)));
  source.addEventListener("change", (event) => show(JSON.parse(event.data)));
  source.addEventListener("error", () => {
    state("no connection: this is what was known last", true);
    if (source.readyState === EventSource.CLOSED) setTimeout(ask, WAIT);
  });
}

newest = null; // what was there before is no news
at("filter").addEventListener("input", filter);
listen();
