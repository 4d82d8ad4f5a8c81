// Chapters below the overview line and as a list; on-screen text in its own lane.

import { placed, rowsOf } from "./lanes.js";
import { t, term } from "./language.js";
import { ask, ofVideo } from "./server.js";
import { styled } from "./styles.js";
import { clock, make, marker, sentence, span } from "./words.js";

const MOST_DRAWN = 400;
// Within these seconds of a chapter's start, "previous" means the chapter before.
const SOON_SECONDS = 2;

export class Marks {
  constructor(player) {
    const hooks = { seek: (seconds) => player.seek(seconds), reach: (seconds) => player.timeline.reach(seconds) };
    Object.assign(this, { player, root: document.getElementById("chapters"), chapters: [], ...hooks });
    this.screen = new Texts(document.getElementById("texts"), hooks);
  }

  /** Show the chapters and texts of the open video, with the query's words marked in the texts. */
  async open(signal) {
    const { info, timeline, opened } = this.player;
    if (signal.aborted) return;
    this.screen.view(timeline.from, timeline.to);
    this.#chapters(info.chapters, timeline.duration);
    if (!info.has_texts) return;
    const { data } = await ask(ofVideo(info.video_id, "/texts"), {}, { signal });
    if (signal.aborted) return;
    this.screen.show(data, opened.query);
    this.follow(this.player.at);
  }

  forget() {
    this.#chapters([], 0);
    this.screen.show([], "");
  }

  #chapters(chapters, duration) {
    this.chapters = chapters.map((each, place) => ({ ...each, name: each.title || t("Chapter {n}", { n: place + 1 }) }));
    this.now = undefined;
    this.root.hidden = !chapters.length;
    const jump = ({ start }) => { this.reach(start); this.seek(start); };
    // For the mouse only; keyboard and screen reader have the list.
    this.parts = this.chapters.map((each) => placed(make("span", { class: "chapter", "aria-hidden": "true", title: `${each.name}\n${span(each.start, each.end)}`, click: () => jump(each) }, each.name),
      0, duration, each.start, each.end));
    this.lines = this.chapters.map((each) => make("li", {},
      make("button", { type: "button", class: "chapter-line", click: () => jump(each) }, make("span", { class: "cue-time" }, clock(each.start, 0)), each.name)));
    this.current = make("span", { class: "quiet" });
    this.root.replaceChildren(make("div", { class: "chapter-strip" }, ...this.parts),
      make("details", {}, make("summary", {}, `${t("{n} chapter|{n} chapters", { n: chapters.length })} `, this.current), make("ol", { "aria-label": t("Chapters") }, ...this.lines)));
  }

  /** Show the player's position. */
  follow(at) {
    this.screen.follow(at);
    const now = this.chapters.findLastIndex(({ start, end }) => start <= at && at < end);
    if (now === this.now || !this.chapters.length) return;
    this.now = now;
    this.current.textContent = now < 0 ? "" : `· ${t("now {name}", { name: this.chapters[now].name })}`;
    this.lines.forEach((line, place) => {
      this.parts[place].classList.toggle("now", place === now);
      line.firstChild.setAttribute("aria-current", String(place === now));
    });
  }

  /** Go to the next chapter, or (-1) to this one's start, then the previous one; false without chapters. */
  step(by, at) {
    const starts = this.chapters.map(({ start }) => start);
    const to = by > 0 ? starts.find((start) => start > at + 0.05) : starts.findLast((start) => start < at - SOON_SECONDS) ?? starts[0];
    if (to === undefined) return false;
    this.reach(to);
    this.seek(to);
    return true;
  }
}

/** Lanes of texts: one Tab stop, then arrow keys. The chosen text is shown below. */
class Texts {
  /** `seek(seconds)` gets a text's start; `reach(seconds)` brings it into view. */
  constructor(root, { seek, reach }) {
    Object.assign(this, { root, seek, reach, streams: [] });
    root.addEventListener("keydown", (event) => this.#key(event));
  }

  show(streams, query) {
    this.mark = marker(query ?? "");
    this.streams = streams.map(({ title, texts }) => ({
      title, texts, at: 0, lane: make("div", { class: "lane", role: "group", "aria-label": term(title) }), said: make("p", { class: "lane-said" }),
    }));
    this.root.hidden = !this.streams.length;
    this.root.replaceChildren(...this.streams.map(({ lane, said }) => make("div", {}, lane, said)));
    this.#draw();
  }

  /** Draw the texts between two times. */
  view(from, to) {
    Object.assign(this, { from, to });
    this.#draw();
  }

  #draw() {
    if (!(this.to > this.from)) return;
    for (const stream of this.streams) {
      const { lane, texts } = stream;
      const had = lane.contains(document.activeElement);
      const seen = texts.map((text, place) => ({ ...text, place })).filter(({ start, end }) => end > this.from && start < this.to);
      const rows = rowsOf(seen);
      lane.style.setProperty("--rows", String(Math.max(1, ...rows.map((row) => row + 1))));
      stream.drawn = new Map(seen.slice(0, MOST_DRAWN).map((text, nth) => [text.place, this.#text(stream, text, rows[nth])]));
      lane.replaceChildren(...stream.drawn.values());
      stream.left = seen.length - stream.drawn.size;
      if (!stream.drawn.has(stream.at)) stream.at = seen[0]?.place ?? 0;
      const stop = stream.drawn.get(stream.at);
      if (stop) stop.tabIndex = 0;
      if (had) stop?.focus({ preventScroll: true });
      else this.#say(stream, null);
    }
  }

  #text(stream, text, row) {
    const words = text.text.split("\n").join(" / ");
    const look = () => this.#say(stream, text);
    const button = make("button", {
      type: "button", class: "turn text", tabindex: -1, "aria-label": `${words}, ${span(text.start, text.end)}`,
      click: () => { stream.at = text.place; this.seek(text.start); }, focus: look, pointerenter: look,
      blur: () => this.#say(stream, null), pointerleave: () => this.#say(stream, null),
    }, words);
    button.style.setProperty("--row", String(row));
    return placed(button, this.from, this.to, text.start, text.end);
  }

  /** Show a text, or what the lane is. */
  #say(stream, text) {
    const { title, texts, said, left } = stream;
    if (text) said.replaceChildren(make("span", { class: "cue-time" }, span(text.start, text.end)), " ", ...this.mark(text.text.split("\n").join(" / ")));
    else said.replaceChildren(`${sentence(term(title)).slice(0, -1)}: ${texts.length}${left ? ` ${t("({n} of those in view are not drawn; zoom in)", { n: left })}` : ""}`);
  }

  follow(at) {
    for (const { drawn, texts } of this.streams) {
      for (const [place, button] of drawn ?? []) button.classList.toggle("now", texts[place].start <= at && at < texts[place].end);
    }
  }

  #key(event) {
    const stream = this.streams.find(({ lane }) => lane.contains(event.target));
    const last = (stream?.texts.length ?? 0) - 1;
    const to = stream && { ArrowLeft: stream.at - 1, ArrowRight: stream.at + 1, Home: 0, End: last }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    if (to < 0 || to > last) return;
    for (const button of stream.drawn.values()) button.tabIndex = -1;
    stream.at = to;
    this.reach(stream.texts[to].start);
    const button = stream.drawn.get(to) ?? event.target;
    button.tabIndex = 0;
    button.focus({ preventScroll: true });
  }
}

/** The marks of a player's videos, styled. */
export async function opened(player) {
  await styled("marks");
  return new Marks(player);
}
