// The EIPs as a table in which only the rows in view exist: 5,000 cost what 40 do, and no page is 84,000 pixels long.

import { at, button, count, eipsOf, make, when } from "./dom.js";

const SPARE = 8; // rows above and below those in view
const known = new Map(); // EIP → what is said of it, the words that a filter finds, and its row while it is in view
let order = []; // EIPs by address
let listed = []; // those of them that fit the filter
let printing = false;
let told = ""; // the EIP whose way is in sight

// As numbers, IPv4 first.
function rank(name) {
  if (!name.includes(":")) return `4${name.split(".").map((each) => each.padStart(3, "0")).join(".")}`;
  const [head, tail = []] = name.split("::").map((half) => half.split(":").filter(Boolean));
  const zeros = Array(Math.max(0, 8 - head.length - tail.length)).fill("");
  return `6${[...head, ...zeros, ...tail].map((each) => each.padStart(4, "0")).join(":")}`;
}

const services = (one) => one.services.join(", ") + (one.more ? ` and ${one.more} more` : "");

function fill({ row, one }) {
  const [, held, since, of, pool] = row.children;
  held.className = one.holder ? "" : "bad";
  held.textContent = one.holder || "nobody";
  const why = one.conflict || one.message || prefers(one);
  if (why) held.append(make("span", ` ${why}`, one.conflict ? "bad" : "aside-text"));
  since.replaceChildren(...(one.since ? [when(one.since)] : []));
  of.textContent = services(one);
  pool.textContent = one.pool;
  for (const cell of [held, of, pool]) cell.title = cell.textContent;
}

// Where it is not: the node that it prefers.
const prefers = (one) => (one.preferred && one.preferred !== one.holder ? `prefers ${one.preferred}` : "");

// The steps of `speaker explain`: what is known of each here, and whether that is bad. Nothing is well because we say so.
function steps({ pool, holder, since, link, message, conflict, preferred, weights, answering, ready_endpoints: ready, ...one }) {
  const where = preferred === holder ? "and holds it" : `but ${holder} holds it (weight ${weights?.[holder]})`;
  return [
    ["pool", pool],
    ["assignment", services(one) || "no Service"],
    ["candidates", preferred && `${preferred} is preferred (weight ${weights[preferred]}), ${where}`],
    ["holder", holder || (link && message ? `nobody: ${message}` : "nobody"), !holder, since && when(since)],
    ["link", link || message],
    ["wire", conflict || (answering >= 0 && count(answering, "host answers", "hosts answer")), conflict || answering !== 1],
    ["way in"],
    ["kernel"],
    ["endpoints", ready >= 0 && `${ready} ready`, !ready],
    ["way back"],
  ];
}

function step([name, words, bad, time]) {
  const said = make("dd", words || "not seen from here", words ? bad && "bad" : "aside-text");
  if (time) said.append(", since ", time);
  return [make("dt", name), said];
}

// The way of one EIP, and in full what its row has no room for.
function tell(name) {
  const one = known.get(name)?.one;
  if (!one) return at("path").close();
  const way = ["client", name, one.holder || "nobody", services(one) || "no Service"];
  if (one.ready_endpoints >= 0) way.push(count(one.ready_endpoints, "ready endpoint", "ready endpoints"));
  const title = make("h2", name);
  title.id = "path-title";
  at("path").replaceChildren(
    title,
    make("p", way.join(" → ")),
    make("dl", "", "", ...steps(one).flatMap(step)),
    make("p", "Each step, and the one that is broken: ", "", make("code", `speaker explain ${name}`)),
    button("Close", "", () => at("path").close()),
  );
  told = name;
  if (!at("path").open) at("path").showModal();
  at("path").lastElementChild.focus();
}

function rowOf(name) {
  const made = known.get(name);
  if (!made.row) {
    const eip = make("span", "", "", button(name, "", () => tell(name)));
    made.row = make("div", "", "row", eip, ...Array.from({ length: 4 }, () => make("span")));
    made.row.setAttribute("role", "row");
    for (const cell of made.row.children) cell.setAttribute("role", "cell");
    fill(made);
  }
  return made.row;
}

// Rows that stay in view are not touched, so that none loses the focus.
function draw() {
  const [box, body] = [at("eips"), at("rows")];
  if (listed.length && !body.children.length) body.append(rowOf(listed[0])); // to be measured
  const height = body.firstElementChild?.getBoundingClientRect().height || 0;
  body.style.height = printing ? "auto" : `${listed.length * height}px`; // before it is asked how much is in view
  const from = printing ? 0 : Math.max(0, Math.floor(box.scrollTop / (height || 1)) - SPARE);
  const to = printing ? listed.length : Math.ceil((box.scrollTop + box.clientHeight) / (height || 1)) + SPARE;
  const wanted = listed.slice(from, to).map(rowOf);
  for (const row of [...body.children].filter((each) => !wanted.includes(each))) row.remove();
  let next = body.firstElementChild;
  wanted.forEach((row, index) => {
    row.setAttribute("aria-rowindex", from + index + 2); // the first one is the head
    if (row === next) next = row.nextElementSibling;
    else body.insertBefore(row, next);
  });
  for (const each of known.values()) if (each.row && !each.row.isConnected) each.row = null;
  body.style.paddingTop = `${from * height}px`;
}

function filter() {
  const words = at("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  listed = words.length ? order.filter((name) => words.every((word) => known.get(name).text.includes(word))) : order;
  at("eips").setAttribute("aria-rowcount", listed.length + 1);
  at("found").textContent = words.length ? `${listed.length} of ${eipsOf(known.size)}` : eipsOf(known.size);
  draw();
}

export function search(words) {
  at("filter").value = words;
  filter();
  at("filter").focus();
}

export function showEips(changed, all) {
  if (all) known.clear();
  let others = all;
  for (const [name, one] of Object.entries(changed)) {
    others ||= one === null || !known.has(name);
    if (one === null) {
      known.delete(name);
      continue;
    }
    const trouble = one.conflict ? "conflict" : "";
    const text = [name, one.holder || "nobody", services(one), one.pool, trouble, prefers(one)].join(" ").toLowerCase();
    const same = { row: known.get(name)?.row, one, text };
    known.set(name, same);
    if (same.row) fill(same);
  }
  if (others) {
    const ranks = [...known.keys()].map((name) => [rank(name), name]);
    order = ranks.sort(([one], [other]) => (one < other ? -1 : 1)).map(([, name]) => name);
  }
  if (at("path").open && (all || told in changed)) tell(told);
  filter();
  return order.map((name) => [name, known.get(name).one]);
}

function print(all) {
  printing = all;
  draw();
}

at("filter").addEventListener("input", filter);
at("eips").addEventListener("scroll", draw, { passive: true });
addEventListener("resize", draw);
addEventListener("beforeprint", () => print(true));
addEventListener("afterprint", () => print(false));
