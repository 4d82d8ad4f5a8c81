// Two systems side by side for one question: words that count, start and end, best moments.
// This script and its styles are fetched when a comparison is first opened.

import { number, t, term } from "./language.js";
import { keyOf, momentCard, waiting } from "./results.js";
import { ask, ofVideo } from "./server.js";
import { heights, curvesOf } from "./timeline.js";
import { tokenWeightParts } from "./why.js";
import { clock, counted, draw, make, sentence, span, streamName } from "./words.js";

// Best moments of each system; and the overlap (IoU) from which two are the same, as in `whenabouts explain`.
const BEST = 10;
const SAME = 0.5;
const SIDES = [0, 1];
const WIDE = 1000;
const ROW = 100;
const MOST_STEPS = 600;

const nameOf = (system) => system || t("the usual search");
const isAbort = (error) => error.name === "AbortError";

/** The comparison, styled. `hooks`: go(changes), linkTo(changes), parametersOf(state), systems(), say(text). */
export function opened(hooks) {
  const styles = make("link", { rel: "stylesheet", href: "static/compare.css" });
  return new Promise((resolve, reject) => {
    styles.addEventListener("load", () => resolve(new Comparison(hooks)));
    styles.addEventListener("error", reject);
    document.head.append(styles);
  });
}

function shareOf(one, other) {
  if (one.video_id !== other.video_id) return 0;
  const shared = Math.max(0, Math.min(one.end, other.end) - Math.max(one.start, other.start));
  return shared / (one.end - one.start + other.end - other.start - shared);
}

/** The best ranked result that is the same moment, or undefined. */
const sameIn = (results, moment) => results.find((one) => shareOf(one, moment) >= SAME - 1e-9);

class Comparison {
  constructor(hooks) {
    this.hooks = hooks;
    this.question = null;
    this.pending = new AbortController();
    this.title = make("h1", { class: "answer", tabindex: -1, id: "compare-title" }, t("Side by side"));
    this.summary = make("p", { class: "beneath" });
    this.columns = SIDES.map((side) => new Column(this, side));
    this.root = make("section", { class: "panel compare", id: "comparison", tabindex: -1, "aria-labelledby": "compare-title", hidden: true, keydown: (event) => this.#key(event) },
      make("div", { class: "answer-line" }, this.title,
        make("button", { type: "button", click: () => hooks.go({ vs: null }) }, t("Back to results"))),
      this.summary,
      make("div", { class: "columns" }, ...this.columns.map((column) => column.root)));
    document.getElementById("results").after(this.root);
  }

  /** Show the comparison of a state, if it has one; a comparison that is shown is not requested again. */
  show(state, focus) {
    this.state = state;
    this.root.hidden = !state.vs;
    document.querySelector(".skip").setAttribute("href", state.vs ? "#comparison" : "#results");
    const question = state.vs && JSON.stringify([state.vs, { ...this.hooks.parametersOf(state), model: "" }]);
    const another = question !== this.question;
    this.question = question;
    if (another) this.pending.abort();
    if (!question) return;
    if (another) void this.#ask();
    else this.#follow();
    if (focus) this.title.focus();
  }

  /** The open moment, to return to; null without a comparison. */
  linkOf() {
    return this.root.hidden ? null : this.root.querySelector("[aria-current]") ?? this.title;
  }

  again() {
    this.question = null;
    this.show(this.state, true);
  }

  other(column) {
    return this.columns[1 - column.side];
  }

  /** Choose a system for one side; if the other side has it, the two change places. */
  take(side, system) {
    const vs = [...this.state.vs];
    if (vs[1 - side] === system) vs[1 - side] = vs[side];
    vs[side] = system;
    this.hooks.go({ vs });
  }

  async #ask() {
    this.pending = new AbortController();
    const { signal } = this.pending;
    const onWait = (seconds, why) => { this.summary.textContent = `${why} ${t("Trying again in {seconds} s.", { seconds })}`; };
    this.summary.textContent = t("Searching with each system…");
    this.root.setAttribute("aria-busy", "true");
    try {
      for (const column of this.columns) column.wait(this.state.vs[column.side]);
      const systems = await this.hooks.systems();
      if (signal.aborted) return;
      for (const column of this.columns) column.offer(new Set([...systems, ...this.state.vs]));
      // One after the other: each may have to encode the corpus first, which only one can do at a time.
      for (const column of this.columns) await column.search(this.state, signal, onWait);
      if (signal.aborted) return;
      this.#choose();
      await Promise.all(this.columns.map((column) => column.tell(signal)));
      if (signal.aborted) return;
      for (const column of this.columns) column.show();
      this.#drawBoth();
      this.#mark();
      this.#summarize();
      this.root.removeAttribute("aria-busy");
    } catch (error) {
      if (!isAbort(error)) throw error;
    }
  }

  /** The moment to show: the open one, else the best, else the other system's best. */
  #choose() {
    for (const column of this.columns) {
      column.chosen = this.#openIn(column) ?? column.results[0] ?? this.other(column).results[0] ?? null;
    }
  }

  /** The result of a column that the player has open. */
  #openIn(column) {
    const { v, s, e, model } = this.state;
    if (!v || s === null || column.system !== model) return undefined;
    const open = { video_id: v, start: s, end: e };
    return column.results.find((one) => keyOf(one) === keyOf(open)) ?? sameIn(column.results, open);
  }

  #follow() {
    this.#mark();
    for (const column of this.columns) {
      const open = this.#openIn(column);
      if (open && column.chosen !== open) void this.choose(column, open);
    }
  }

  /** Show start and end of another moment in a column. */
  async choose(column, moment) {
    column.chosen = moment;
    this.#mark();
    try {
      await column.tell(this.pending.signal, moment);
      if (column.chosen !== moment) return;
      this.#drawBoth();
      this.hooks.say(`${nameOf(column.system)}: ${column.caption()}. ${column.explanation?.said.join(" ") ?? column.fault}`);
    } catch (error) {
      if (!isAbort(error)) throw error;
    }
  }

  /** Use one scale for both, so that equal probabilities are equally high. */
  #drawBoth() {
    const top = Math.max(0, ...this.columns.map((column) => column.most()));
    for (const column of this.columns) column.draw(top);
  }

  #mark() {
    for (const column of this.columns) column.mark(this.#openIn(column));
  }

  #summarize() {
    const [one, two] = this.columns;
    const both = one.results.filter((result) => sameIn(two.results, result)).length;
    this.summary.textContent = one.results.length && two.results.length
      ? `${this.#shared(both, counted(one.results.length, "best moment"), { one: nameOf(one.system), two: nameOf(two.system) })} ${t("Scores are each system's own; only their order means something.")}`
      : "";
    this.hooks.say(`${t("Side by side")}. ${this.summary.textContent}`);
  }

  /** How many of the best moments of one are among those of the other. */
  #shared(n, moments, names) {
    return n
      ? t("{n} of the {moments} of {one} is among those of {two} (with half of the time shared, or more).|{n} of the {moments} of {one} are among those of {two} (with half of the time shared, or more).", { n, moments, ...names })
      : t("None of the {moments} of {one} are among those of {two} (with half of the time shared, or more).", { moments, ...names });
  }

  /** Arrows go through a column and from one to the other. */
  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !event.target.matches?.(".card-link")) return;
    const letters = this.state.v ? {} : { j: 1, k: -1 };
    const step = { ArrowDown: 1, ArrowUp: -1, ...letters }[event.key] ?? 0;
    const side = { ArrowLeft: 0, ArrowRight: 1 }[event.key];
    if (!step && side === undefined) return;
    event.preventDefault();
    const own = this.columns.find((column) => column.links.includes(event.target));
    const { links } = this.columns[side ?? own.side];
    links[Math.min(links.length - 1, Math.max(0, own.links.indexOf(event.target) + step))]?.focus();
  }
}

/** One system: its answers, and its view of the chosen moment. */
class Column {
  constructor(comparison, side) {
    Object.assign(this, { comparison, side, system: "", results: [], links: [], chosen: null, about: null, explanation: null });
    const button = (text, label, step) =>
      make("button", { type: "button", class: "round", "aria-label": label, click: () => this.#step(step) }, text);
    this.select = make("select", { change: () => comparison.take(side, this.select.value) });
    this.name = make("h2", { class: "unseen" });
    this.answer = make("div", { class: "column-answer quiet" });
    this.words = make("div", { class: "why" });
    this.scale = make("figcaption", { class: "quiet" });
    this.less = button("‹", t("Start and end of the moment before"), -1);
    this.more = button("›", t("Start and end of the next moment"), 1);
    this.both = make("button", { type: "button", click: () => this.#inBoth() }, t("Show in both"));
    this.named = make("p", { class: "along-name" });
    this.heading = make("h3");
    this.plot = make("div", { class: "along-plot", role: "img" });
    this.along = make("figure", { class: "along" }, 
      make("div", { class: "along-steps" }, this.heading, this.less, this.more, this.both), this.named, this.plot, this.scale);
    this.list = make("ol", { class: "cards" });
    this.root = make("section", { class: "column" },
      make("div", { class: "column-head" }, this.name, make("label", {}, side ? t("Second system") : t("First system"), this.select)),
      this.answer, this.words, this.along, this.list);
  }

  /** Grey cards until the system has answered. */
  wait(system) {
    Object.assign(this, { system, results: [], links: [], chosen: null, about: null, explanation: null, fault: "" });
    this.offer(new Set([system]));
    this.root.setAttribute("aria-label", nameOf(system));
    this.name.textContent = nameOf(system);
    this.heading.textContent = system ? t("Start and end") : t("How well it fits");
    this.root.classList.add("waits");
    this.answer.replaceChildren();
    this.words.replaceChildren();
    this.list.setAttribute("aria-label", t("Best moments of {name}", { name: nameOf(system) }));
    this.list.replaceChildren(...waiting(3));
  }

  offer(systems) {
    this.select.replaceChildren(...[...systems].map((name) => make("option", { value: name }, nameOf(name))));
    this.select.value = this.system;
  }

  async search(state, signal, onWait) {
    const parameters = { ...this.comparison.hooks.parametersOf(state), model: this.system, all: "", k: BEST, page_limit: BEST };
    this.query = parameters.query;
    // The server would refuse streams, because a trained system has its own.
    this.skips = this.system && state.stream ? [t("The filter “{name}” is for the usual search only.", { name: streamName(state.stream) })] : [];
    if (this.system) parameters.stream = "";
    this.fails = null;
    try {
      this.reply = await ask("search", parameters, { signal, onWait });
      this.results = this.reply.data;
    } catch (error) {
      if (isAbort(error)) throw error;
      this.fails = error.message;
    }
  }

  /** Explain the chosen moment; if that fails, `explanation` is null and `fault` says why. */
  async tell(signal, moment = this.chosen) {
    if (!moment || this.fails) return;
    this.along.setAttribute("aria-busy", "true");
    let [explanation, fault] = [null, ""];
    try {
      explanation = await this.#reasons(moment, signal);
    } catch (error) {
      if (isAbort(error)) throw error;
      fault = error.message;
    }
    // Another moment may have been chosen meanwhile.
    if (moment === this.chosen) {
      Object.assign(this, { about: moment, explanation, fault });
      this.along.removeAttribute("aria-busy");
    }
  }

  async #reasons({ video_id: id, start, end }, signal) {
    const { query, system } = this;
    if (system) return ask("explain", { query, model: system, moment: `${id}@${start.toFixed(3)}-${end.toFixed(3)}`, k: 1 }, { signal });
    const { curves } = await ask(ofVideo(id, "/curves"), { query }, { signal });
    return { heard: null, curves, said: [] };
  }

  show() {
    this.root.classList.remove("waits");
    this.root.classList.toggle("fails", Boolean(this.fails));
    if (this.fails) {
      this.answer.replaceChildren(make("div", { class: "fault", role: "alert" }, make("p", {}, this.fails),
        make("button", { type: "button", click: () => this.comparison.again() }, t("Try again"))));
      this.list.replaceChildren();
      return;
    }
    const { answer, word, doubt, notes } = this.reply;
    const head = this.results.length ? sentence(term(word)).slice(0, -1) : t("Finds nothing for this query");
    this.answer.replaceChildren(make("p", {}, sentence(doubt && this.results.length ? `${head}: ${term(doubt)}` : head)),
      ...[...notes, ...this.skips].filter((note) => note !== doubt).map((note) => make("p", {}, sentence(note))));
    this.along.hidden = !this.chosen;
    this.words.replaceChildren(make("h3", {}, t("Words that count")), ...this.#tokenWeights());
    const cards = this.results.map((result) => this.#card(result, answer));
    this.links = cards.map((card) => card.querySelector(".card-link"));
    this.list.replaceChildren(...cards);
  }

  #tokenWeights() {
    if (this.explanation?.heard) return tokenWeightParts({ heard: this.explanation.heard, said: [] });
    const why = this.fault || (!this.explanation ? t("Word weights belong to a moment, and none is selected.")
      : this.system ? t("This system has no word weights.") : t("The usual search does not weigh words."));
    return [make("p", { class: "quiet" }, why)];
  }

  #card(result, answer) {
    const other = this.comparison.other(this);
    const href = this.comparison.hooks.linkTo({ v: result.video_id, s: result.start, e: result.end, model: this.system });
    const card = momentCard(result, { query: this.query, href, dim: answer === "no_match" });
    const same = sameIn(other.results, result);
    // The line above the list says once that confidence was not measured.
    if (result.confidence === null) card.querySelector(".badge").remove();
    card.querySelector(".card-head").after(
      make("span", { class: "place" }, make("span", {}, span(result.start, result.end)), " ", make("span", {}, `${t("score")} ${number(result.score, 3)}`)),
      same ? make("span", { class: "badge same" }, t("= {rank}. of {name}", { rank: same.rank, name: nameOf(other.system) })) : "");
    return card;
  }

  /** Which result is open in the player, and which one's start and end are shown. */
  mark(open) {
    this.links.forEach((link, at) => {
      link.classList.toggle("chosen", this.results[at] === this.chosen);
      if (this.results[at] === open) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    });
  }

  #step(by) {
    const to = this.#place() + by;
    if (this.results[to]) void this.comparison.choose(this, this.results[to]);
  }

  /** Rank of the chosen moment in this list, or -1. */
  #place() {
    return this.results.indexOf(this.chosen && (this.results.includes(this.chosen) ? this.chosen : sameIn(this.results, this.chosen)));
  }

  #inBoth() {
    const other = this.comparison.other(this);
    if (this.chosen && !other.fails) void this.comparison.choose(other, this.chosen);
  }

  /** "3. Film, 0:10.0 – 0:14.0", with its rank if it is the other system's. */
  caption() {
    const { about, results } = this;
    if (!about) return "";
    const title = `${about.title || about.video_id}, ${span(about.start, about.end)}`;
    if (results.includes(about)) return `${about.rank}. ${title}`;
    const same = sameIn(results, about);
    return `${title} (${same ? t("here {rank}.", { rank: same.rank }) : t("not among the best here")})`;
  }

  /** The highest probability of start and end, or 0. */
  most() {
    const curves = this.system ? Object.values(this.explanation?.curves ?? {}) : [];
    return curves.reduce((most, { score }) => score.reduce((high, one) => Math.max(high, one), most), 0);
  }

  /** Start and end along the video, the highest value `top`. */
  draw(top) {
    const at = this.#place();
    this.less.setAttribute("aria-disabled", String(!this.results[at - 1]));
    this.more.setAttribute("aria-disabled", String(!this.results[at + 1]));
    this.both.setAttribute("aria-disabled", String(!this.chosen || Boolean(this.comparison.other(this).fails)));
    this.named.textContent = this.caption();
    const curves = Object.entries(curvesOf(this.explanation ?? {}));
    this.plot.hidden = !curves.length;
    if (curves.length) this.#plot(curves, top);
    const scale = this.system ? curves.some(([, curve]) => curve.isShare) ? t("Full height: {percent}; of a share, 100 %.", { percent: percentOf(top) }) : t("Full height: {percent}.", { percent: percentOf(top) })
      : t("The score of each place of the video: {streams}.|The score of each place of the video, a curve for each of {streams}.", { n: curves.length, streams: curves.map(([name]) => streamName(name)).join(", ") });
    const none = this.fault || (this.explanation ? t("This system finds no start and end in a video.") : t("No moment is selected."));
    this.scale.replaceChildren(...(curves.length ? [...this.explanation.said, scale] : [none]).map((line) => make("p", {}, line)));
  }

  #plot(curves, top) {
    const { start, end } = this.about;
    const until = curves.reduce((last, [, curve]) => Math.max(last, curve.end.at(-1) ?? 0), end);
    const area = draw("svg", { class: "curves", viewBox: `0 0 ${WIDE} ${curves.length * ROW}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    curves.forEach(([, curve], row) => {
      const height = this.system && !curve.isShare ? (at) => curve.score[at] / (top || 1) : heights(curve);
      area.append(draw("path", { class: "floor", d: `M0 ${(row + 1) * ROW}H${WIDE}` }),
        draw("path", { class: `curve stream-${row % 4}`, d: pathOf(curve, height, (row + 1) * ROW, until) }));
    });
    const names = make("div", { class: "curve-names" }, ...curves.map(([name], row) => make("span", { class: `curve-name stream-${row % 4}` }, name)));
    const band = make("div", { class: "span" });
    band.style.left = `${(100 * start) / until}%`;
    band.style.width = `${(100 * (end - start)) / until}%`;
    this.plot.style.setProperty("--rows", curves.length);
    this.plot.replaceChildren(band, area, names,
      make("span", { class: "along-end", "aria-hidden": "true" }, make("span", {}, clock(0, 0)), make("span", {}, clock(until, 0))));
    this.plot.setAttribute("aria-label", t("Along {length} of video: {curves}", { length: clock(until, 0), curves: curves.map(([name, curve]) => this.#highest(name, curve)).join("; ") }));
  }

  #highest(name, { start, score }) {
    const at = score.reduce((best, one, row) => (one > score[best] ? row : best), 0);
    return `${t("{name} is highest at {time}", { name, time: clock(start[at]) })}${this.system ? ` (${percentOf(score[at])})` : ""}`;
  }
}

const percentOf = (share) => `${number(100 * share, share < 0.095 ? 1 : 0)} %`;

/** A step per clip; many clips are reduced to the highest of neighbours. */
function pathOf({ start, end, score }, height, bottom, until) {
  const joined = Math.ceil(score.length / MOST_STEPS);
  const across = (seconds) => ((seconds / until) * WIDE).toFixed(1);
  let path = "";
  for (let first = 0; first < score.length; first += joined) {
    const last = Math.min(score.length, first + joined) - 1;
    let most = 0;
    for (let at = first; at <= last; at += 1) most = Math.max(most, height(at));
    path += `M${across(start[first])} ${bottom}V${(bottom - 2 - most * (ROW - 27)).toFixed(1)}H${across(end[last])}V${bottom}`;
  }
  return path;
}
