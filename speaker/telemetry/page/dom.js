// What every part of the page uses. Services, pools and nodes are named by others: they are shown as text alone.

export const at = (id) => document.getElementById(id);
export const count = (number, one, many) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
export const seconds = (value) => `${value.toFixed(3)} s`;
export const eipsOf = (number) => count(number, "EIP", "EIPs");

export function make(tag, text = "", name = "", ...children) {
  const made = document.createElement(tag);
  if (text !== "") made.textContent = text;
  if (name) made.className = name;
  made.append(...children);
  return made;
}

export function button(text, name, pressed) {
  const made = make("button", text, name);
  made.type = "button";
  made.addEventListener("click", pressed);
  return made;
}

export function when(text) {
  const made = make("time", "", "when");
  const time = new Date(text);
  const known = !Number.isNaN(time.getTime());
  made.textContent = known ? time.toLocaleString([], { dateStyle: "short", timeStyle: "medium" }) : text;
  if (known) made.dateTime = time.toISOString();
  return made;
}
