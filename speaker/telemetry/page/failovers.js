// The last day's failovers on an axis of time, each as high as its EIPs were silent, and all that are known in words.

import { at, eipsOf, make, seconds, when } from "./dom.js";
import { colour } from "./lan.js";

const DAY = 24 * 3600 * 1000;
const LINES = 6; // that are in sight; the others on demand
let shown = [];
let newest = null; // what was there before is no news

const said = (one) => {
  const what = one.count === 1 ? one.eips[0] : eipsOf(one.count);
  return `${what}: ${one.to} in place of ${one.from || "a node that fell silent"}`;
};

function line(one) {
  const [least, most] = one.unanswered;
  const took = least === most ? seconds(most) : `${least.toFixed(3)}–${seconds(most)}`;
  const who = make("span", said(one), "who");
  if (one.count > 1) who.title = one.eips.join(", ") + (one.count > one.eips.length ? " …" : "");
  return make("li", "", "", when(one.at), who, make("span", took, "took"));
}

function drawAxis() {
  const age = (one) => (Date.now() - new Date(one.at)) / DAY;
  const lately = shown.filter((one) => age(one) < 1);
  const top = Math.max(0.5, ...lately.map((one) => one.unanswered[1]));
  at("axis").parentElement.hidden = !lately.length;
  at("top").textContent = `${top.toFixed(1)} s`;
  at("axis").replaceChildren(...lately.map((one) => {
    const made = make("i");
    made.style.left = `${100 * Math.min(1, 1 - age(one))}%`;
    made.style.height = `${Math.max(4, (100 * one.unanswered[1]) / top)}%`;
    made.style.background = colour(one.to);
    made.title = `${said(one)}, after ${seconds(one.unanswered[1])}`;
    return made;
  }));
}

export function showFailovers(found) {
  shown = found;
  drawAxis();
  at("failovers").replaceChildren(...found.slice(0, LINES).map(line));
  at("earlier").replaceChildren(...found.slice(LINES).map(line));
  at("earlier").parentElement.hidden = found.length <= LINES;
  if (!found.length) at("failovers").append(make("li", "None since this page's speaker started.", "who"));
  const last = found.length ? `${said(found[0])}, after ${seconds(found[0].unanswered[1])}` : "";
  if (newest !== last && newest !== null) at("news").textContent = last;
  newest = last;
}

setInterval(drawAxis, 60000);
