// The whole video on one line: pictures, shots, all hits of the search, and the part that the time line shows.

import { t, term } from "./language.js";
import { address, ask, ofVideo } from "./server.js";
import { clock, make, span } from "./words.js";

// As many pictures as fill the strip, but no more than the server takes at once.
const PICTURES = 10;
const MOST_HITS = 100;
const MOST_SHOTS = 400;

export class Overview {
  /** `seek(seconds)` gets the pressed time, `open(result)` a pressed hit. */
  constructor(root, { seek, open }) {
    Object.assign(this, { root, seek, open });
    this.strip = make("div", { class: "strip", "aria-hidden": "true" });
    this.marks = make("div", { class: "hits" });
    this.seen = make("div", { class: "seen", "aria-hidden": "true" });
    this.moment = make("div", { class: "span", "aria-hidden": "true" });
    this.head = make("div", { class: "playhead", "aria-hidden": "true" });
    this.told = make("p", { class: "unseen" });
    root.replaceChildren(this.strip, this.seen, this.moment, this.marks, this.head, this.told);
    root.addEventListener("click", (event) => {
      if (event.target.closest(".hit")) return;
      const box = root.getBoundingClientRect();
      this.seek(this.duration * Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)));
    });
  }

  /** Show another video; `info` is its record, `duration` in seconds. */
  show(info, duration) {
    this.duration = duration;
    this.marks.replaceChildren();
    this.told.textContent = "";
    const at = Array.from({ length: PICTURES }, (_, place) => ((place + 0.5) / PICTURES) * duration);
    const hasPictures = info.has_picture && info.available;
    this.root.classList.toggle("bare", !hasPictures);
    const pictures = hasPictures ? at.map((seconds) => make("img", {
      src: address(ofVideo(info.video_id, "/thumbnail"), { at: seconds.toFixed(3), width: 160 }),
      alt: "", loading: "lazy", decoding: "async", fetchpriority: "low", error: (event) => event.target.classList.add("missing"),
    })) : [];
    const shots = (info.shots ?? []).length <= MOST_SHOTS ? info.shots ?? [] : [];
    this.strip.replaceChildren(...pictures, ...shots.map((seconds) => this.#placed(make("i", { class: "cut" }), seconds)));
  }

  /** All hits of a search in this video, with the query interpreted the same way. */
  async hits(question, id, signal) {
    const reply = await ask("search", { ...question, within: id, k: MOST_HITS, page_limit: 50 }, { signal });
    if (signal.aborted) return;
    const found = reply.data ?? [];
    this.marks.replaceChildren(...found.map((result) => {
      // For the mouse only; keyboard and screen reader have the list of results.
      const mark = this.#placed(make("span", {
        class: result.word === "unlikely" ? "hit dim" : "hit", "aria-hidden": "true",
        title: `${span(result.start, result.end)}: ${term(result.word)}${result.text ? `\n${result.text.slice(0, 160)}` : ""}`,
        click: () => this.open(result),
      }), result.start);
      mark.style.width = `max(6px, ${(100 * (result.end - result.start)) / this.duration}%)`;
      return mark;
    }));
    this.told.textContent = found.length ? t("{n} moment of this video answers.|{n} moments of this video answer.", { n: found.length }) : "";
  }

  /** The seconds that the time line shows. */
  view(from, to) {
    this.#placed(this.seen, from).style.width = `${(100 * (to - from)) / this.duration}%`;
  }

  setMoment(start, end) {
    this.#placed(this.moment, start).style.width = `max(2px, ${(100 * (end - start)) / this.duration}%)`;
  }

  setHead(seconds) {
    this.#placed(this.head, seconds);
    this.root.setAttribute("aria-label", t("The whole video, {length} long; the player stands at {time}", { length: clock(this.duration, 0), time: clock(seconds, 0) }));
  }

  #placed(element, seconds) {
    element.style.left = `${(100 * seconds) / this.duration}%`;
    return element;
  }
}
