// The page: what the speaker sends, shown as it comes.

import { at, button, count, eipsOf, make, seconds, when } from "./dom.js";
import { search, showEips } from "./table.js";

const WAIT = 5000; // milliseconds until the next question, where too many look already
let shown = {};
let newest = null; // what was there before is no news

function bar(part, bad) {
  const filled = make("i", "", bad ? "bad" : "");
  filled.style.width = `${Math.min(100, 100 * part)}%`;
  const whole = make("span", "", "bar", filled);
  whole.setAttribute("aria-hidden", "true"); // the number is beside it
  return whole;
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
    const name = button(node, "", () => search(node));
    name.title = `Show the EIPs of ${node}`;
    return make("li", "", "", name, make("span", eipsOf(eips)), bar(eips / most, false));
  }));
  [...at("nodes").querySelectorAll("button")].find((each) => each.textContent === focused)?.focus();
}

const said = (one) => {
  const what = one.count === 1 ? one.eips[0] : eipsOf(one.count);
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

function show(told, all) {
  if (!told.counts) return; // nothing is known yet
  shown = told;
  showHead();
  showDoctor();
  showBars();
  showFailovers();
  showEips(told.eips, all);
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
