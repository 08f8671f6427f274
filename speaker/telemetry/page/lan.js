// A picture of the LAN: a column for each node, and in it a cell for each EIP that it holds. What moves is seen to move.
// Whoever does not see it has the list of nodes, which is the columns' heads, and the table.

import { at, button, eipsOf, make } from "./dom.js";
import { search } from "./table.js";

const MOVE = 900; // milliseconds that a move takes on the screen
const RECENT = 8000; // and for which it is marked
const HEIGHT = 200; // pixels that the fullest column should keep to
const NOBODY = "nobody";
const still = matchMedia("(prefers-reduced-motion: reduce)");
const dark = matchMedia("(prefers-color-scheme: dark)");
const seen = []; // every node, as it came: the place of each gives its colour
const columns = new Map(); // node → its column, what it says, and the EIPs in it
let cells = new Map(); // EIP → where it is, where it came from and when
let side = 8; // pixels of a cell
let waiting = 0;

export function colour(node) {
  if (!seen.includes(node)) seen.push(node);
  const hue = 60 + 250 * ((0.58 + seen.indexOf(node) * 0.618) % 1); // red is what is wrong
  return `hsl(${hue} 55% ${dark.matches ? 66 : 42}%)`;
}

function column(node) {
  const nobody = node === NOBODY;
  const dot = make("i", "", "dot");
  const name = button(node, nobody ? "bad" : "", () => search(node));
  const says = make("span", "", "aside-text");
  const made = make("li", "", "", dot, name, says, make("div", "", "cells"));
  dot.hidden = nobody;
  dot.style.background = colour(node);
  return { made, says, eips: [] };
}

// A column that was there stays, and keeps the focus.
function showColumns(nodes) {
  const wanted = nodes.map((each) => each.node);
  if (wanted.join("\n") !== [...columns.keys()].join("\n")) {
    const [before, focused] = [new Map(columns), document.activeElement];
    columns.clear();
    for (const node of wanted) columns.set(node, before.get(node) ?? column(node));
    at("nodes").replaceChildren(...[...columns.values()].map((each) => each.made));
    if (at("nodes").contains(focused)) focused.focus();
  }
  for (const { node, eips, silent } of nodes) {
    const { made, says } = columns.get(node);
    made.className = silent ? "silent" : "";
    says.textContent = silent ? "not heard" : eipsOf(eips);
  }
}

// How many cells stand beside each other.
function fit() {
  const width = Math.min(...[...columns.values()].map(({ made }) => made.clientWidth));
  const most = Math.max(...[...columns.values()].map(({ eips }) => eips.length));
  side = 16;
  while (side > 4 && Math.ceil(most / Math.floor(width / side)) * side > HEIGHT) side -= 1;
  return Math.max(1, Math.floor(width / side));
}

function place() {
  if (!columns.size) return;
  const across = fit();
  for (const { made, eips } of columns.values()) {
    made.lastElementChild.style.height = `${Math.max(1, Math.ceil(eips.length / across)) * side}px`;
  }
  const [area, before, now] = [at("lan").getBoundingClientRect(), cells, performance.now()];
  cells = new Map();
  for (const [node, { made, eips }] of columns) {
    const box = made.lastElementChild.getBoundingClientRect();
    eips.forEach(([eip, one], index) => {
      const x = box.left - area.left + (index % across) * side;
      const y = box.top - area.top + Math.floor(index / across) * side;
      const was = before.get(eip);
      const [since, from] = was && was.node !== node ? [now, was] : [was?.since, was?.from];
      cells.set(eip, { x, y, node, since, from: from && { x: from.x, y: from.y }, conflict: one.conflict });
    });
  }
  draw();
}

function draw() {
  const [picture, area, now] = [at("picture"), at("lan").getBoundingClientRect(), performance.now()];
  const style = getComputedStyle(document.documentElement);
  const [ink, bad] = [style.getPropertyValue("--ink"), style.getPropertyValue("--bad")];
  const brush = picture.getContext("2d");
  [picture.width, picture.height] = [area.width * devicePixelRatio, area.height * devicePixelRatio];
  brush.scale(devicePixelRatio, devicePixelRatio);
  const colours = new Map([...columns.keys()].map((node) => [node, node === NOBODY ? bad : colour(node)]));
  let [moving, marked] = [false, false];
  for (const { x, y, node, since, from, conflict } of cells.values()) {
    const age = since === undefined ? Infinity : now - since;
    const left = still.matches || age >= MOVE ? 0 : (1 - age / MOVE) ** 3;
    const [here, there] = left ? [x + (from.x - x) * left, y + (from.y - y) * left] : [x, y];
    brush.fillStyle = conflict ? bad : colours.get(node);
    brush.fillRect(here, there, side - 1, side - 1);
    brush.strokeStyle = ink;
    if (age < RECENT) brush.strokeRect(here + 0.5, there + 0.5, side - 2, side - 2);
    moving ||= left > 0;
    marked ||= age < RECENT;
  }
  clearTimeout(waiting);
  if (moving) requestAnimationFrame(draw);
  else if (marked) waiting = setTimeout(draw, 1000);
}

function under({ target, clientX, clientY }) {
  if (target.className !== "cells") return "";
  const area = at("lan").getBoundingClientRect();
  const [x, y] = [clientX - area.left, clientY - area.top];
  return [...cells].find(([, one]) => x >= one.x && x < one.x + side && y >= one.y && y < one.y + side)?.[0] ?? "";
}

function hint(nodes) {
  const living = nodes.filter((each) => !each.silent && each.node !== NOBODY).sort((one, other) => other.eips - one.eips);
  const [first, second] = living;
  at("balance").hidden = !second || first.eips < 4 || second.eips > 0;
  if (at("balance").hidden) return;
  const words = `${first.node} holds all ${eipsOf(first.eips)}. If other nodes may hold them too, this spreads them: `;
  at("balance").replaceChildren(words, make("code", "speaker rebalance"));
}

// `eips`: pairs of an EIP and what is said of it, by address.
export function showLan({ nodes: heard, counts, failovers }, eips) {
  const here = new Set(heard.map((each) => each.node));
  const gone = [...new Set(failovers.map((each) => each.from))].filter((node) => node && !here.has(node));
  const nodes = [...heard, ...gone.map((node) => ({ node, eips: 0, silent: true }))];
  if (counts.by_nobody) nodes.push({ node: NOBODY, eips: counts.by_nobody });
  showColumns(nodes);
  hint(nodes);
  for (const each of columns.values()) each.eips = [];
  for (const pair of eips) columns.get(pair[1].holder || NOBODY)?.eips.push(pair);
  place();
}

at("nodes").addEventListener("click", (event) => {
  const eip = under(event);
  if (eip) search(eip);
});
at("nodes").addEventListener("mousemove", (event) => {
  at("nodes").title = under(event);
});
new ResizeObserver(place).observe(at("lan"));
dark.addEventListener("change", () => {
  for (const [node, { made }] of columns) made.firstElementChild.style.background = colour(node);
  draw();
});
