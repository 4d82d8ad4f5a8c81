// Who speaks and is seen, below the time line: a lane per stream, a colour and a name per person.

import { t, term } from "./language.js";
import { clock, make } from "./words.js";

// Okabe and Ito's colours, which are distinguishable with any colour vision; and a readable text colour on each.
const COLOURS = [
  ["#e69f00", "#000"], ["#56b4e9", "#000"], ["#009e73", "#000"], ["#f0e442", "#000"],
  ["#0072b2", "#fff"], ["#d55e00", "#000"], ["#cc79a7", "#000"], ["#bbbbbb", "#000"],
];
// Overlapping turns are stacked in at most this many rows; and the most turns that are drawn.
const MOST_ROWS = 3;
const MOST_DRAWN = 600;

export class Lanes {
  /** `seek(seconds)` gets the start of a pressed turn, `who(name)` the pressed name. */
  constructor(root, seek, who) {
    Object.assign(this, { root, seek, who });
    this.show([]);
  }

  /** Show the streams of /api/videos/…/people; names are buttons if they may be changed. */
  show(streams, mayChange = false) {
    this.mayChange = mayChange;
    this.streams = streams.filter(({ turns }) => turns.length).map(({ title, turns }) => ({ title: term(title), turns, colours: coloursOf(turns) }));
    this.root.hidden = !this.streams.length;
    this.#redraw();
  }

  /** Draw the turns between two times. */
  view(from, to) {
    Object.assign(this, { from, to });
    this.#redraw();
  }

  #redraw() {
    if (this.to > this.from) this.root.replaceChildren(...this.streams.map((stream) => this.#lane(stream)));
  }

  #lane({ title, turns, colours }) {
    const seen = turns.filter((turn) => turn.end > this.from && turn.start < this.to);
    const rows = rowsOf(seen);
    const lane = make("div", { class: "lane", role: "group", "aria-label": title });
    lane.style.setProperty("--rows", String(Math.max(1, ...rows.map((row) => row + 1))));
    lane.append(...seen.slice(0, MOST_DRAWN).map((turn, place) => this.#turn(turn, rows[place], colours.get(turn.name))));
    const names = [...new Set(seen.map((turn) => turn.name))];
    const legend = make("p", { class: "lane-names" }, make("span", { class: "lane-title" }, `${title}: `), ...names.map((name) => this.#name(name, colours.get(name))));
    if (seen.length > MOST_DRAWN) legend.append(` (${t("the first {n} of {all} turns; zoom in for the others", { n: MOST_DRAWN, all: seen.length })})`);
    return make("div", {}, lane, legend);
  }

  #turn(turn, row, [colour, text]) {
    const what = `${turn.name}, ${clock(turn.start)} – ${clock(turn.end)}`;
    const button = make("button", { type: "button", class: "turn", tabindex: -1, title: what, "aria-label": what, click: () => this.seek(turn.start) }, turn.name);
    Object.assign(button.style, { background: colour, color: text });
    button.style.setProperty("--row", String(row));
    return placed(button, this.from, this.to, turn.start, turn.end);
  }

  #name(name, [colour]) {
    const sign = make("span", { class: "swatch", "aria-hidden": "true" });
    sign.style.background = colour;
    if (!this.mayChange) return make("span", { class: "lane-name" }, sign, name);
    return make("button", { type: "button", class: "lane-name", title: t("Name, merge or forget"), click: () => this.who(name) }, sign, name);
  }
}

/** An element that stands for [start, end) on a line from `from` to `to`. */
export function placed(element, from, to, start, end) {
  const share = (seconds) => 100 * Math.min(1, Math.max(0, (seconds - from) / (to - from)));
  Object.assign(element.style, { left: `${share(start)}%`, width: `${share(end) - share(start)}%` });
  return element;
}

/** A colour for each person, longest presence first. */
function coloursOf(turns) {
  const seconds = new Map();
  for (const { name, start, end } of turns) seconds.set(name, (seconds.get(name) ?? 0) + end - start);
  const names = [...seconds.keys()].sort((one, other) => seconds.get(other) - seconds.get(one));
  return new Map(names.map((name, place) => [name, COLOURS[place % COLOURS.length]]));
}

/** The row of each turn: the first free one, else the last. */
export function rowsOf(turns) {
  const until = [];
  return turns.map(({ start, end }) => {
    const free = until.findIndex((at) => at <= start);
    const row = free >= 0 ? free : Math.min(until.length, MOST_ROWS - 1);
    until[row] = Math.max(until[row] ?? 0, end);
    return row;
  });
}
