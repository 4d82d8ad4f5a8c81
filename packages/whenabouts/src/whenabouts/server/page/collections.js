// Collections of moments and saved searches: listed, ordered, trimmed, noted, played through, taken away.

import { address, ask, download, sent } from "./server.js";
import { clock, counted, length, make, noTime, readClock, span } from "./words.js";

const byId = (id) => document.getElementById(id);
const LAST = "whenabouts collection";
const FORMATS = {
  edl: "Edit list (EDL)", otio: "OpenTimelineIO", fcpxml: "Final Cut Pro (FCPXML)", csv: "Table (CSV)",
  vtt: "Subtitle cues (WebVTT)", m3u: "Playlist (M3U)", json: "JSON",
};
// Saved searches that are asked anew to count what is new.
const MOST_ASKED = 20;

const of = (id, part = "") => `collections/${encodeURIComponent(id)}${part}`;

/** All collections, the one that was changed last first. */
export const listed = async (signal) => (await ask("collections", {}, { signal })).data;

/** The name that moments go to without being asked: the last one used. */
export const lastUsed = () => localStorage.getItem(LAST) ?? "My collection";

/** Put moments ("VIDEO@START-END") at the end of a collection, made if it is missing; the collection. */
export async function collect(name, moments, query = "") {
  const known = (await listed()).find((each) => each.name === name || each.id === name);
  const { id } = known ?? (await sent("POST", "collections", { name }));
  const collection = await sent("POST", of(id, "/items"), { moments, query });
  localStorage.setItem(LAST, collection.name);
  return collection;
}

/** Keep a question; `moments` are those that it gives now. */
export const saveSearch = (name, question, moments) => sent("POST", "saved-searches", { name, question, moments });

export class Collections {
  /** `hooks`: go(changes), linkTo(state), search(question), say(text). */
  constructor(hooks) {
    this.hooks = hooks;
    this.root = byId("collections");
  }

  /** The list of all, or the collection with an id. */
  async show(id) {
    this.leaving?.abort();
    this.leaving = new AbortController();
    const { signal } = this.leaving;
    try {
      if (id === "all") await this.#list(signal);
      else this.#one(await ask(of(id), {}, { signal }));
    } catch (error) {
      if (error.name !== "AbortError") this.#fault(error, () => this.show(id));
    }
  }

  leave() {
    this.leaving?.abort();
    this.root.replaceChildren();
  }

  #fault(error, again) {
    this.root.replaceChildren(make("div", { class: "fault", role: "alert" },
      make("p", {}, error.message), make("button", { type: "button", click: again }, "Try again")));
  }

  /** Do something with a collection; a refusal is said above it, and it is shown as it is now. */
  async #do(work) {
    try {
      const collection = await work();
      if (collection?.items) this.#one(collection);
    } catch (error) {
      const { id } = this.open;
      await this.show(id);
      byId("collection-message").textContent = error.message;
      this.hooks.say(error.message);
    }
  }

  // The list

  async #list(signal) {
    const [all, saved] = await Promise.all([listed(signal), ask("saved-searches", {}, { signal })]);
    if (signal.aborted) return;
    const name = make("input", { maxlength: 200, required: true, placeholder: "A new collection", "aria-label": "Name of a new collection" });
    this.root.replaceChildren(
      make("h1", { class: "answer", tabindex: -1, id: "collections-title" }, "Collections"),
      make("form", { class: "line-form", submit: (event) => {
        event.preventDefault();
        sent("POST", "collections", { name: name.value.trim() })
          .then((made) => this.hooks.go({ c: made.id }), (error) => { name.setCustomValidity(error.message); name.reportValidity(); });
      }, input: () => name.setCustomValidity("") }, name, make("button", { type: "submit" }, "Make it")),
      all.length ? make("ul", { class: "shelves" }, ...all.map((each) => make("li", {},
        this.#link({ c: each.id }, "shelf",
          make("span", { class: "card-title" }, each.name),
          make("span", { class: "quiet" }, `${counted(each.count, "moment")} · ${length(each.seconds)}`)))))
        : make("p", { class: "quiet" }, "None yet. “Collect” beside a moment puts it into one."),
      make("h2", {}, "Saved searches"),
      saved.data.length ? make("ul", { class: "shelves" }, ...saved.data.map((each) => this.#search(each)))
        : make("p", { class: "quiet" }, "None yet. “Save search” keeps a question and tells what is new since."),
    );
    for (const each of saved.data.slice(0, MOST_ASKED)) void this.#news(each, signal);
  }

  #link(to, kind, ...children) {
    return make("a", { class: kind, href: this.hooks.linkTo(to), click: (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      this.hooks.go(to);
    } }, ...children);
  }

  #search(each) {
    return make("li", {},
      this.#link({ ...this.hooks.blank, ...each.question, c: "" }, "shelf",
        make("span", { class: "card-title" }, each.name),
        make("span", { class: "quiet", "data-news": each.name }, "…")),
      make("button", { type: "button", class: "round", "aria-label": `Forget the search ${each.name}`, click: () => {
        void sent("DELETE", `saved-searches/${encodeURIComponent(each.name)}`).then(() => this.show("all"));
      } }, "×"));
  }

  async #news(each, signal) {
    try {
      const now = await this.hooks.search(each.question, signal);
      const known = new Set(each.moments);
      const fresh = now.filter((key) => !known.has(key)).length;
      const line = [...this.root.querySelectorAll("[data-news]")].find((line) => line.dataset.news === each.name);
      if (line) line.textContent = fresh ? `${counted(fresh, "new moment")} since` : "nothing new";
    } catch { /* its page says what is wrong */ }
  }

  // One collection

  #one(collection) {
    this.open = collection;
    const { items } = collection;
    document.title = `${collection.name} – whenabouts`;
    const format = make("select", { "aria-label": "Format" }, ...Object.entries(FORMATS).map(([value, text]) => make("option", { value }, text)));
    const name = make("input", { class: "name", value: collection.name, maxlength: 200, "aria-label": "Name of the collection", id: "collections-title",
      change: () => void this.#do(() => sent("PATCH", of(collection.id), { name: name.value })) });
    const has = items.some((item) => !item.gone);
    const button = (text, click, more = {}) => make("button", { type: "button", click, disabled: !has, ...more }, text);
    this.root.replaceChildren(
      make("p", {}, this.#link({ c: "all" }, "back", "‹ all collections")),
      make("div", { class: "answer-line" }, name,
        make("p", { class: "status" }, `${counted(items.length, "moment")} · ${length(items.reduce((sum, item) => sum + item.end - item.start, 0)) || "0 s"}`)),
      make("div", { class: "actions" },
        button("▶ Play through", () => this.#play(), { class: "strong" }),
        format, button("Export", () => void this.#take(address(of(collection.id, "/export"), { format: format.value }), `${collection.name}.${format.value}`)),
        button("One film (mp4)", () => void this.#take(address(of(collection.id, "/film")), `${collection.name}.mp4`)),
        button("Copy link", () => void this.hooks.copy(this.hooks.linkTo({ c: collection.id })), { disabled: false }),
        button("Delete…", () => void this.#delete(), { disabled: false })),
      make("p", { class: "message", role: "status", id: "collection-message" }),
      items.length ? make("ol", { class: "clips", "aria-label": "Moments in order" }, ...items.map((item, place) => this.#item(item, place)))
        : make("p", { class: "quiet" }, "Empty. Search, open a moment, and “Collect” it."),
    );
  }

  #item(item, place) {
    const { id } = this.open;
    const change = (what) => void this.#do(() => sent("PATCH", of(id, `/items/${item.id}`), what));
    const time = (side) => {
      const field = make("input", { class: "time-field", value: clock(item[side], 3), "aria-label": `${side} of moment ${place + 1}`, spellcheck: "false",
        change: () => {
          const seconds = readClock(field.value);
          if (seconds === null) byId("collection-message").textContent = noTime(field.value);
          else change({ [side]: seconds });
        } });
      return field;
    };
    const note = make("input", { class: "note-field", value: item.note, maxlength: 2000, placeholder: "note", "aria-label": `note on moment ${place + 1}`, change: () => change({ note: note.value }) });
    const tags = make("input", { class: "tags-field", value: item.tags.join(", "), placeholder: "tags", "aria-label": `tags of moment ${place + 1}, with commas between`,
      change: () => change({ tags: tags.value.split(",").map((tag) => tag.trim()).filter(Boolean) }) });
    const handle = make("button", { type: "button", class: "handle", "aria-label": `Moment ${place + 1}: move with Alt and the arrow keys, or drag`, keydown: (event) => {
      const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (!by || !event.altKey) return;
      event.preventDefault();
      void this.#move(place, place + by);
    } }, "⠿");
    const picture = item.thumbnail_url ? make("img", { src: item.thumbnail_url.slice(1), alt: "", loading: "lazy", width: 160, height: 90 }) : null;
    const title = make("span", { class: "card-title" }, `${place + 1}. ${item.title}`);
    const line = make("li", { class: item.gone ? "clip gone" : "clip", "data-id": item.id, draggable: "true" },
      handle,
      make("span", { class: "thumb" }, picture ?? make("span", { class: "quote" }, item.text || "♪")),
      make("div", { class: "clip-body" },
        item.gone ? title : this.#link({ v: item.video_id, s: item.start, e: item.end }, "clip-link", title),
        make("span", { class: "evidence" }, item.gone ? "Its video is not in the corpus any more." : item.text),
        make("div", { class: "clip-fields" }, time("start"), "–", time("end"), note, tags)),
      make("button", { type: "button", class: "round", "aria-label": `Take moment ${place + 1} out`, click: () => void this.#do(() => sent("DELETE", of(id, `/items/${item.id}`))) }, "×"));
    this.#draggable(line, place);
    return line;
  }

  #draggable(line, place) {
    line.addEventListener("dragstart", (event) => {
      if (event.target.matches?.("input")) return;
      event.dataTransfer.setData("text/plain", String(place));
      event.dataTransfer.effectAllowed = "move";
      this.dragged = place;
    });
    line.addEventListener("dragover", (event) => {
      if (this.dragged === undefined) return;
      event.preventDefault();
      line.classList.add(place > this.dragged ? "drop-after" : "drop-before");
    });
    line.addEventListener("dragleave", () => line.classList.remove("drop-after", "drop-before"));
    line.addEventListener("dragend", () => { this.dragged = undefined; });
    line.addEventListener("drop", (event) => {
      if (this.dragged === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      const from = this.dragged;
      this.dragged = undefined;
      void this.#move(from, place);
    });
  }

  /** Put the moment of one place at another one. */
  async #move(from, to) {
    const { id, items } = this.open;
    if (to < 0 || to >= items.length || from === to) return;
    const others = items.filter((_, place) => place !== from);
    await this.#do(() => sent("POST", of(id, `/items/${items[from].id}/move`), { before: others[to]?.id ?? null }));
    this.root.querySelectorAll(".handle")[to]?.focus();
    this.hooks.say(`Moment ${to + 1} of ${items.length}`);
  }

  async #take(url, name) {
    const message = byId("collection-message");
    message.textContent = "Writing…";
    try {
      message.textContent = `Saved ${await download(url, name)}.`;
    } catch (error) {
      message.textContent = error.message;
    }
  }

  async #delete() {
    const { id, name, items } = this.open;
    if (!confirm(`Delete the collection “${name}” with ${counted(items.length, "moment")}? The videos stay.`)) return;
    await sent("DELETE", of(id));
    this.hooks.go({ c: "all" });
  }

  /** One moment after the other in a dialog; what the browser cannot play as the server cuts it. */
  #play() {
    const items = this.open.items.filter((item) => item.video_url);
    const title = make("p", { "aria-live": "polite" });
    const video = make("video", { controls: true, playsinline: true, class: "through" });
    const dialog = make("dialog", { class: "keys theatre", "aria-label": "Play through", close: () => { video.pause(); dialog.remove(); } },
      title, video, make("form", { method: "dialog" }, make("button", { class: "strong" }, "Close")));
    let place = -1;
    const next = () => {
      place += 1;
      const item = items[place];
      if (!item) { dialog.close(); return; }
      title.textContent = `${place + 1} of ${items.length}: ${item.title}, ${span(item.start, item.end)}`;
      video.src = `${item.video_url.slice(1)}#t=${item.start},${item.end}`;
      video.play().catch(() => { /* the error event says why */ });
    };
    video.addEventListener("timeupdate", () => {
      if (!video.src.includes("/clip?") && items[place] && video.currentTime >= items[place].end - 0.02) next();
    });
    video.addEventListener("ended", next);
    video.addEventListener("error", () => {
      const item = items[place];
      if (!item || !video.src) return;
      if (video.src.includes("/clip?")) next();
      else { video.src = item.clip_url.slice(1); video.play().catch(() => { /* then it is left out */ }); }
    });
    document.body.append(dialog);
    dialog.showModal();
    next();
  }
}
