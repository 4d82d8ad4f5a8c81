// The time line: a curve for each stream, the moment with its two borders, shots, and the playhead.

import { number, t } from "./language.js";
import { clock, draw, make, percent, streamName } from "./words.js";

const WIDE = 1000;
const ROW = 100;
// Share of a row's height reserved for its name.
const NAME = 25;
const MOST_SURPRISE = 14;
// Hardly any unrelated query reaches this height: the line across a curve.
const STANDS_OUT = 0.95;
const MOST_STEPS = 1200;
// A press that moves less is a click.
const CLICK_PIXELS = 5;

/** Call `tick` before each browser frame while playing. */
export class Beat {
  constructor(tick) {
    this.tick = tick;
  }

  run(plays) {
    cancelAnimationFrame(this.next);
    if (plays) this.next = requestAnimationFrame(() => { this.tick(); this.run(true); });
  }
}

export class Timeline {
  /** `hooks`: seek(seconds), changed(start, end, isFinal), hovered(text or null), viewed(from, to). */
  constructor(root, hooks) {
    this.root = root;
    this.hooks = hooks;
    /** A time as a time code, or null; set by the player. */
    this.codeOf = () => null;
    this.curveArea = draw("svg", { preserveAspectRatio: "none", "aria-hidden": "true", class: "curves" });
    this.names = make("div", { class: "curve-names", "aria-hidden": "true" });
    this.span = make("div", { class: "span" });
    this.head = make("div", { class: "playhead" });
    this.line = make("div", { class: "hover", hidden: true });
    this.plot = make("div", { class: "plot" }, this.curveArea, this.names, this.span, this.head, this.line);
    this.tip = make("div", { class: "tip", hidden: true, "aria-hidden": "true" });
    this.grips = { start: this.#grip("start", t("Start of the moment")), end: this.#grip("end", t("End of the moment")) };
    this.axis = make("div", { class: "axis", "aria-hidden": "true" });
    root.replaceChildren(this.plot, this.grips.start, this.grips.end, this.axis, this.tip);
    this.#listen();
    this.show({ duration: 1, rate: 25, start: 0, end: 1 });
  }

  /** Show a new video with a moment in it. */
  show({ duration, rate, start, end, shots = [], playable = true }) {
    Object.assign(this, { duration, rate, start, end, shots, playable, curves: {}, at: start });
    this.#frame();
    this.#redraw();
  }

  setCurves(curves) {
    this.curves = curves;
    this.#redraw();
  }

  setDuration(duration) {
    const whole = this.to >= this.duration;
    this.duration = duration;
    if (whole) this.to = duration;
    this.#redraw();
  }

  setMoment(start, end) {
    Object.assign(this, { start, end });
    if (start < this.from || end > this.to) this.#include(start, end);
    this.#place();
  }

  setHead(seconds) {
    this.at = seconds;
    this.head.style.left = this.#percent(seconds);
    this.head.hidden = seconds < this.from || seconds > this.to;
  }

  /** Bring a time into view. */
  reach(seconds) {
    if (seconds >= this.from && seconds <= this.to) return;
    const half = (this.to - this.from) / 2;
    this.#view(seconds - half, seconds + half);
  }

  /** Halve or double the visible range, around the moment. */
  zoom(factor) {
    const middle = (this.start + this.end) / 2;
    const most = this.duration;
    const width = Math.min(most, Math.max((this.to - this.from) * factor, (this.end - this.start) * 1.1, 8 / this.rate));
    this.#view(middle - width / 2, middle + width / 2);
  }

  /** "0:04.3: subtitle 88 %, vision 12 % (share of unrelated queries that score lower)". */
  describe(seconds) {
    const parts = Object.entries(this.curves).map(([name, curve]) => {
      const row = rowAt(curve, seconds);
      if (row < 0) return `${name} –`;
      const share = curve.isShare ? curve.score[row] : curve.chance_percentile[row];
      return share === undefined
        ? t("{name} score {value}", { name, value: number(Number(curve.score[row]), 2) })
        : `${name} ${percent(share)}`;
    });
    const measured = Object.values(this.curves).some((curve) => !curve.isShare && isMeasured(curve));
    const meaning = measured ? ` (${t("share of unrelated queries that score lower")})` : "";
    return (this.codeOf(seconds, false) ?? clock(seconds, 2)) + (parts.length ? `: ${parts.join(", ")}${meaning}` : "");
  }

  // What is in view

  #frame() {
    const length = this.end - this.start;
    // A whole film would make a moment as thin as a hair.
    if (this.duration <= 90 || length >= this.duration / 12) this.#set(0, this.duration);
    else this.#set(this.start - 4 * Math.max(length, 2), this.end + 4 * Math.max(length, 2));
  }

  #set(from, to) {
    const width = Math.min(to - from, this.duration);
    this.from = Math.max(0, Math.min(from, this.duration - width));
    this.to = this.from + width;
  }

  #view(from, to) {
    this.#set(from, to);
    this.#redraw();
  }

  #include(start, end) {
    const width = Math.max(this.to - this.from, (end - start) * 1.2);
    this.#view(Math.min(this.from, start - width * 0.1), Math.max(this.to, end + width * 0.1));
  }

  #share(seconds) {
    return (seconds - this.from) / (this.to - this.from);
  }

  #percent(seconds) {
    return `${100 * Math.min(1, Math.max(0, this.#share(seconds)))}%`;
  }

  #seconds(event) {
    const box = this.plot.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    return this.from + share * (this.to - this.from);
  }

  // Drawing

  #redraw() {
    const names = Object.keys(this.curves);
    const rows = Math.max(1, names.length);
    this.curveArea.setAttribute("viewBox", `0 0 ${WIDE} ${rows * ROW}`);
    this.root.dataset.rows = String(Math.min(rows, 4));
    this.curveArea.replaceChildren(
      ...this.shots.filter((at) => at > this.from && at < this.to).map((at) => {
        const x = this.#share(at) * WIDE;
        return draw("path", { class: "shot", d: `M${x.toFixed(1)} 0V${rows * ROW}` });
      }),
      ...names.flatMap((name, row) => this.#curve(this.curves[name], row)),
    );
    this.names.replaceChildren(...names.map((name, row) =>
      make("span", { class: `curve-name stream-${row % 4}` }, name + (isMeasured(this.curves[name]) || this.curves[name].isShare ? "" : ` (${t("score")})`))));
    this.#ticks();
    this.#place();
    this.setHead(this.at);
    this.hooks.viewed?.(this.from, this.to);
  }

  #curve(curve, row) {
    const bottom = (row + 1) * ROW;
    const steps = this.#steps(curve);
    const path = steps.map(([start, end, value]) => {
      const [left, right] = [start, end].map((at) => (Math.min(1, Math.max(0, this.#share(at))) * WIDE).toFixed(1));
      return `M${left} ${bottom}V${heightAt(bottom, value)}H${right}V${bottom}`;
    }).join("");
    const parts = [draw("path", { class: "floor", d: `M0 ${bottom}H${WIDE}` })];
    if (isMeasured(curve)) {
      const y = heightAt(bottom, surprise(STANDS_OUT) / scaleOf(curve));
      parts.push(draw("path", { class: "bar", d: `M0 ${y}H${WIDE}` }));
    }
    parts.push(draw("path", { class: `curve stream-${row % 4}`, d: path }));
    return parts;
  }

  /** [start, end, height in 0..1] of the visible curve; many clips are reduced to the highest of neighbours. */
  #steps(curve) {
    const height = heights(curve);
    const steps = [];
    for (let row = 0; row < curve.start.length; row += 1) {
      if (curve.end[row] > this.from && curve.start[row] < this.to) steps.push([curve.start[row], curve.end[row], height(row)]);
    }
    const joined = Math.ceil(steps.length / MOST_STEPS);
    if (joined < 2) return steps;
    const fewer = [];
    for (let first = 0; first < steps.length; first += joined) {
      const group = steps.slice(first, first + joined);
      fewer.push([group[0][0], group[group.length - 1][1], Math.max(...group.map((step) => step[2]))]);
    }
    return fewer;
  }

  #ticks() {
    const width = this.to - this.from;
    const step = [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200].find((s) => width / s <= 6) ?? width / 5;
    const marks = [];
    for (let at = Math.ceil(this.from / step) * step; at <= this.to + 1e-6; at += step) {
      const mark = make("span", {}, clock(at, step < 1 ? 1 : 0));
      mark.style.left = this.#percent(at);
      marks.push(mark);
    }
    this.axis.replaceChildren(...marks);
  }

  #place() {
    this.span.style.left = this.#percent(this.start);
    this.span.style.right = `calc(100% - ${this.#percent(this.end)})`;
    for (const [side, grip] of Object.entries(this.grips)) {
      const at = this[side];
      grip.style.left = this.#percent(at);
      grip.classList.toggle("outside", at < this.from || at > this.to);
      const [low, high] = this.#limits(side);
      grip.setAttribute("aria-valuemin", low.toFixed(3));
      grip.setAttribute("aria-valuemax", high.toFixed(3));
      grip.setAttribute("aria-valuenow", at.toFixed(3));
      grip.setAttribute("aria-valuetext", this.codeOf(at, true) ?? clock(at, 3));
    }
  }

  // Moving the borders

  #limits(side) {
    const frame = 1 / this.rate;
    return side === "start" ? [0, Math.max(0, this.end - frame)] : [this.start + frame, Math.max(this.duration, this.start + frame)];
  }

  /** Move one border to some seconds, as far as it may go. */
  move(side, seconds, isFinal) {
    const [low, high] = this.#limits(side);
    this[side] = Math.min(high, Math.max(low, seconds));
    if (this[side] < this.from || this[side] > this.to) this.#include(this.start, this.end);
    this.#place();
    this.hooks.changed(this.start, this.end, isFinal, side);
  }

  /** Move one border by frames; it lands on the grid of frames. */
  step(side, frames) {
    this.move(side, (Math.round(this[side] * this.rate) + frames) / this.rate, true);
  }

  #onFrame(seconds) {
    return Math.round(seconds * this.rate) / this.rate;
  }

  #grip(side, label) {
    const grip = make("div", {
      class: `grip ${side}`, role: "slider", tabindex: 0, "aria-label": label, "aria-orientation": "horizontal", id: `grip-${side}`,
    });
    grip.addEventListener("keydown", (event) => this.#gripKey(side, event));
    grip.addEventListener("pointerdown", (event) => this.#drag(side, grip, event));
    return grip;
  }

  #gripKey(side, event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const second = Math.max(1, Math.round(this.rate));
    const [low, high] = this.#limits(side);
    const moves = {
      ArrowLeft: () => this.step(side, event.shiftKey ? -second : -1),
      ArrowRight: () => this.step(side, event.shiftKey ? second : 1),
      ArrowDown: () => this.step(side, -second),
      ArrowUp: () => this.step(side, second),
      PageDown: () => this.step(side, -10 * second),
      PageUp: () => this.step(side, 10 * second),
      Home: () => this.move(side, low, true),
      End: () => this.move(side, high, true),
    };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    event.stopPropagation();
    move();
  }

  #drag(side, grip, event) {
    if (event.button !== 0) return;
    event.preventDefault();
    grip.focus({ preventScroll: true });
    // The border stays where it was under the finger: a grip hangs beside its border.
    const box = this.plot.getBoundingClientRect();
    const offset = event.clientX - (box.left + this.#share(this[side]) * box.width);
    const before = this[side];
    follow(grip, event, {
      move: (moved) => this.move(side, this.#onFrame(this.#seconds({ clientX: moved.clientX - offset })), false),
      end: (moved) => {
        if (Math.abs(moved.clientX - event.clientX) > 0) this.move(side, this[side], true);
      },
      cancel: () => this.move(side, before, true),
    });
  }

  #listen() {
    this.plot.addEventListener("pointerdown", (event) => this.#press(event));
    this.plot.addEventListener("pointermove", (event) => {
      if (event.pointerType === "mouse" || event.buttons) this.#hover(event);
    });
    this.plot.addEventListener("pointerleave", () => this.#hover(null));
  }

  /** A click seeks; a press that travels picks a new moment. */
  #press(event) {
    if (event.button !== 0) return;
    const first = this.#seconds(event);
    const before = [this.start, this.end];
    let picking = false;
    follow(this.plot, event, {
      move: (moved) => {
        if (!picking && Math.abs(moved.clientX - event.clientX) < CLICK_PIXELS) return;
        picking = true;
        this.#pick(first, this.#seconds(moved), false);
      },
      end: (moved) => (picking ? this.#pick(first, this.#seconds(moved), true) : this.hooks.seek(first)),
      cancel: () => {
        if (picking) this.#pick(...before, true);
      },
    });
  }

  #pick(one, other, isFinal) {
    const start = this.#onFrame(Math.min(one, other));
    const end = Math.max(this.#onFrame(Math.max(one, other)), start + 1 / this.rate);
    Object.assign(this, { start: Math.max(0, Math.min(start, this.duration - 1 / this.rate)), end: Math.min(end, this.duration) });
    this.#place();
    this.hooks.changed(this.start, this.end, isFinal, "start");
  }

  #hover(event) {
    this.line.hidden = this.tip.hidden = event === null;
    if (event === null) return;
    const seconds = this.#seconds(event);
    this.line.style.left = this.#percent(seconds);
    this.tip.textContent = this.describe(seconds);
    const box = this.root.getBoundingClientRect();
    const plot = this.plot.getBoundingClientRect();
    const half = this.tip.offsetWidth / 2;
    const x = plot.left - box.left + this.#share(seconds) * plot.width;
    this.tip.style.left = `${Math.max(half, Math.min(x, box.width - half))}px`;
  }
}

/** Follow a pointer until it is released or lost. */
function follow(element, event, { move, end, cancel }) {
  const leave = new AbortController();
  const on = (name, act) => element.addEventListener(name, (other) => {
    if (other.pointerId !== event.pointerId) return;
    act(other);
  }, { signal: leave.signal });
  element.setPointerCapture(event.pointerId);
  on("pointermove", move);
  on("pointerup", (other) => { leave.abort(); end(other); });
  on("pointercancel", (other) => { leave.abort(); cancel(other); });
}

const isMeasured = (curve) => curve.chance_percentile.length > 0;

const heightAt = (bottom, value) => (bottom - 2 - value * (ROW - NAME)).toFixed(1);

/** How surprising a percentile is, on an unbounded scale that still separates the surest places. */
const surprise = (share) => Math.min(MOST_SURPRISE, -Math.log(Math.max(1e-9, 1 - share)));

/** The surprise that fills a row: at least that of 99 %. */
const scaleOf = (curve) => curve.chance_percentile.reduce((most, value) => Math.max(most, surprise(value)), surprise(0.99));

/** The curves of an answer of /api/explain or …/curves: scores, then how much each stream counts (`isShare`). */
export function curvesOf({ curves = {}, shares = {} }) {
  const scores = Object.entries(curves).map(([name, curve]) => [streamName(name), curve]);
  const counts = Object.entries(shares).map(([stream, curve]) => [t("share of {name}", { name: streamName(stream) }), { ...curve, isShare: true }]);
  return Object.fromEntries([...scores, ...counts]);
}

/** A clip's height in 0..1: its share, its surprise, or its place between the lowest and highest score. */
export function heights(curve) {
  if (curve.isShare) return (row) => curve.score[row];
  if (isMeasured(curve)) {
    const scale = scaleOf(curve);
    return (row) => surprise(curve.chance_percentile[row]) / scale;
  }
  let [low, high] = [Infinity, -Infinity];
  for (const score of curve.score) {
    low = Math.min(low, score);
    high = Math.max(high, score);
  }
  return (row) => (high > low ? (curve.score[row] - low) / (high - low) : 0.5);
}

function rowAt(curve, seconds) {
  for (let row = 0; row < curve.start.length; row += 1) {
    if (curve.start[row] <= seconds && seconds < curve.end[row]) return row;
  }
  return -1;
}
