// Chips for the rules that interpreted the question: each turns its rule off, and back on.

import { t, term } from "./language.js";
import { make } from "./words.js";

// Names of rules that are off; the server names only those that are on.
const NAMES = {
  first: "first", last: "last", every: "every time", after: "after", before: "before", without: "without",
  about: "about", in: "in", outside: "not in", recorded: "recorded", all: "everything",
};

/**
 * Show chips in a list. `understood` are the server's rules, `literal` names of rules that are off, and
 * `change(literal)` searches again with others off. `Delete` on a chip does what a click does.
 */
export function showChips(list, understood, literal, change) {
  const on = understood.map(({ name, label }) => chip("understood", t("Search this as words: {label}", { label: labelOf(label) }), () => change([...new Set([...literal, name])]),
    make("span", {}, labelOf(label)), make("span", { "aria-hidden": "true" }, "×")));
  const off = literal.filter((name) => name in NAMES).map((name) => chip("literal", t("Understand this again: {label}", { label: term(NAMES[name]) }), () => change(literal.filter((other) => other !== name)),
    make("span", {}, t("{label}: as words", { label: term(NAMES[name]) })), make("span", { "aria-hidden": "true" }, "↺")));
  list.hidden = !(on.length || off.length);
  list.replaceChildren(...[...on, ...off].map((button) => make("li", {}, button)));
}

/** "after: a bell rings": the rule in the reader's language, the question's words as they are. */
const labelOf = (label) => label.replace(/^[^:]+/, (rule) => term(rule));

function chip(kind, label, act, ...children) {
  const keydown = (event) => {
    if (event.key !== "Delete" && event.key !== "Backspace") return;
    event.preventDefault();
    act();
  };
  return make("button", { type: "button", class: `chip ${kind}`, "aria-label": label, title: label, click: act, keydown }, ...children);
}
