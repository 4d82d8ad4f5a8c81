// Collections of moments and saved searches: list, order, trim, annotate, play through, export.

import { may } from "./access.js";
import { faultParts, isPassing, toldOf } from "./errors.js";
import { faultText, t } from "./language.js";
import { readBorder } from "./player.js";
import { keyOf } from "./results.js";
import { address, ask, download, ofVideo, own, sent } from "./server.js";
import { codeOf, countsCodes, list, onCodes } from "./timecode.js";
import { clock, counted, length, make, noTime, readClock } from "./words.js";

const byId = (id) => document.getElementById(id);
// The last used collection's name, and its id, which stays when it is renamed.
const [LAST, LAST_ID] = ["whenabouts collection", "whenabouts collection id"];
const FORMATS = {
  edl: t("Edit list (EDL)"), otio: "OpenTimelineIO", fcpxml: "Final Cut Pro (FCPXML)",
  premiere: t("Markers (Premiere, TSV)"), csv: t("Table (CSV)"),
  vtt: t("Subtitle cues (WebVTT)"), m3u: t("Playlist (M3U)"), json: "JSON",
};
/** Formats with a place for notes and tags. */
const NOTED = ["edl", "otio", "fcpxml", "premiere", "csv", "json"];
// Most saved searches that are repeated to count new moments.
const MOST_ASKED = 20;
// Most moments that a saved search keeps; counting new ones looks at the first page only.
const MOST_SEEN = 200;

/** The server's refusal of a change of what is no longer as it was seen. */
const CHANGED = "changed_meanwhile";

/** What a collection has for the field with a key, "ID NAME". */
function valueOf(collection, key) {
  const [id, name] = key.split(" ");
  return (id === collection.id ? collection : collection.items.find((item) => item.id === id))?.[name];
}

const timeOf = (item, side) => codeOf(item.video_id, item[side]) ?? clock(item[side], 3);
const tagsIn = (text) => text.split(",").map((tag) => tag.trim()).filter(Boolean);
const printed = ({ name, note, tags }) => [name, note, tags.map((tag) => `#${tag}`).join(" ")].filter(Boolean).join("\n");
const of = (id, part = "") => `collections/${encodeURIComponent(id)}${part}`;

/** All collections, most recently changed first. */
export const listed = async (signal) => (await ask("collections", {}, { signal })).data;

/** The name that the last used collection had then. */
export const lastName = () => localStorage.getItem(LAST) ?? t("My collection");

/** The last used of all collections, if it is still there. */
export const lastUsed = (all) => all.find(({ id }) => id === localStorage.getItem(LAST_ID)) ?? all.find(({ name }) => name === lastName());

/**
 * Append a moment ("VIDEO@START-END") to a collection, created if missing; returns it, with `isThere` if it was in it.
 * Without a name: the last used.
 */
export async function collect(name, moment, query = "") {
  const all = await listed();
  const known = name ? all.find((each) => each.name === name || each.id === name) : lastUsed(all);
  const { id } = known ?? (await sent("POST", "collections", { name: name || lastName() }));
  const now = await ask(of(id));
  const isThere = now.items.some((item) => keyOf(item) === moment);
  const collection = isThere ? { ...now, isThere } : await sent("POST", of(id, "/items"), { moments: [moment], query });
  localStorage.setItem(LAST, collection.name);
  localStorage.setItem(LAST_ID, collection.id);
  return collection;
}

/** Save a question under a name, with a number if another question has it; `moments` are those it finds now. */
export async function saveSearch(name, question, moments) {
  const { data } = await ask("saved-searches");
  const isTaken = (name) => data.some((each) => each.name === name && JSON.stringify(each.question) !== JSON.stringify(question));
  const short = [...name].slice(0, 190).join("").trim(); // by characters: half of one is refused
  let free = short;
  for (let n = 2; isTaken(free); n++) free = `${short} (${n})`;
  return sent("POST", "saved-searches", { name: free, question, moments: moments.slice(0, MOST_SEEN) });
}

export class Collections {
  /** `hooks`: go(changes), linkTo(state), search(question), say(text), drawn(). */
  constructor(hooks) {
    this.hooks = hooks;
    this.root = byId("collections");
    this.moves = this.changes = Promise.resolve();
    this.waiting = 0;
    this.shown = null;
    /** Changes that failed and may be tried again, by field: { work, text (as typed), shown }. */
    this.failed = new Map();
    window.addEventListener("beforeunload", (event) => { if (this.failed.size) event.preventDefault(); });
    /** By field: the value that its text is a change of. The server refuses the change of another one. */
    this.seen = new Map();
    /** Moments that were taken out, the last one last: { id (of the collection), item, place, before }, or { id, moved, to, text }. */
    this.taken = [];
    /** Ids of the chosen moments. */
    this.chosen = new Set();
    this.bar = this.#chosenBar();
    this.format = make("select", { "aria-label": t("Format"), change: () => this.#showOptions() }, ...Object.entries(FORMATS).map(([value, text]) => make("option", { value }, text)));
    const [notes, codes] = [t("Notes and tags"), t("Time code of the camera")].map((text) => {
      const box = make("input", { type: "checkbox", checked: true });
      return { box, label: make("label", { class: "choice" }, box, ` ${text}`) };
    });
    Object.assign(this, { notes, codes });
    window.addEventListener("focus", () => void this.#refresh());
    onCodes(() => { this.#retime(); this.#showOptions(); });
    this.missing = new Set();
    this.root.addEventListener("change", (event) => {
      // Browsers report a change as well if a field is removed while it is typed in.
      if (this.isRendering || event.target.value === event.target.defaultValue) event.stopImmediatePropagation();
      // What was sent is no longer a draft: the answer's value replaces it.
      else event.target.defaultValue = event.target.value;
    }, true);
    // Of a draft that was shown again they report no change unless it is typed in once more.
    const send = ({ target, type }) => {
      const waits = () => type === "focusout" && this.failed.has(this.#keyOf(target));
      if (target.dataset.field && target.value !== target.defaultValue && !waits()) target.dispatchEvent(new Event("change"));
    };
    this.root.addEventListener("focusout", send);
    this.root.addEventListener("keydown", (event) => { if (event.key === "Enter" && !event.isComposing) send(event); });
  }

  /** The list of all, or the collection with an id. */
  async show(id) {
    this.leaving?.abort();
    this.leaving = new AbortController();
    const { signal } = this.leaving;
    if (id !== this.shown) this.#keepTexts();
    this.shown = id;
    try {
      if (id === "all") await this.#list(signal);
      else {
        this.#one(await ask(of(id), {}, { signal }));
        void this.#look(signal);
      }
    } catch (error) {
      if (error.name !== "AbortError") this.#fault(error, () => this.show(id));
    }
  }

  /** Another window may have changed what is shown. */
  async #refresh() {
    const { shown, leaving } = this;
    if (!shown || this.waiting || this.dragged !== undefined) return;
    try {
      const now = await (shown === "all" ? listed(leaving.signal) : ask(of(shown), {}, { signal: leaving.signal }));
      if (leaving !== this.leaving || leaving.signal.aborted || this.waiting) return;
      if (shown !== "all") {
        if (this.open?.id === now.id && JSON.stringify(now) !== JSON.stringify(this.open)) this.#one(now);
      } else if (JSON.stringify(now) !== this.all && !this.root.querySelector("input")?.value) await this.#list(leaving.signal);
    } catch { /* what is done next says what is wrong */ }
  }

  leave() {
    this.leaving?.abort();
    this.shown = null;
    this.#keepTexts();
    this.root.replaceChildren();
  }

  /** Forget what failed, but not typed texts: their collection shows them again. */
  #keepTexts() {
    for (const [key, { text }] of [...this.failed]) if (text === undefined) this.failed.delete(key);
  }

  #failedHere() {
    return [...this.failed].filter(([, { shown }]) => shown === this.shown);
  }

  #fault(error, again) {
    const back = error.code === "no_such_collection" ? () => this.hooks.go({ c: "all" }) : null;
    this.root.replaceChildren(make("div", { class: "fault", role: "alert" },
      ...faultParts(error, { [t("Try again")]: again, [t("All collections")]: back, [t("Back to the videos")]: () => this.hooks.go({ c: "" }) }, { headed: true })));
  }

  /**
   * Change a collection after the changes before, then show its state unless another page is open by then; an error is
   * shown above it. A change replaces a failed one of the same key.
   */
  #do(work, key = work) {
    this.waiting++;
    const { shown } = this;
    const text = this.#fields().get(key)?.value;
    this.changes = this.changes.then(() => this.#done(work, key, shown, text));
    return this.changes;
  }

  async #done(work, key, shown, text) {
    this.failed.delete(key);
    try {
      const collection = await work().finally(() => { this.waiting--; });
      if (collection?.items && text !== undefined) this.seen.set(key, valueOf(collection, key));
      if (shown === this.shown && collection?.items && !this.waiting) this.#one(collection);
    } catch (error) {
      this.hooks.say(toldOf(error));
      this.error = error;
      const { open } = this;
      const isHere = shown === this.shown;
      const isOther = error.code === CHANGED && text !== undefined;
      if (isOther || (isPassing(error) && (isHere || text !== undefined))) this.failed.set(key, { work, text, shown });
      if (!isHere) return;
      const field = this.#fields().get(key);
      if (field && (isOther || error.status === 404)) field.defaultValue = field.stored; // so it is a draft again
      if (isOther || !this.failed.has(key)) await this.show(shown);
      if (isOther) this.seen.set(key, valueOf(this.open, key));
      if (error.status !== 404 || text === undefined || this.#fields().has(key)) this.#tell(error);
      else if (this.open === open) this.root.append(make("p", { class: "message", role: "status" }, t("You wrote: “{text}”.", { text })));
    }
  }

  /** Show an error. Fields with failed changes keep their texts, so that they can be sent again. */
  #tell(error) {
    this.error = error;
    for (const [key, field] of this.#fields()) if (this.failed.has(key)) field.defaultValue = field.stored;
    const failed = this.#failedHere();
    const again = () => { for (const [key, { work }] of failed) void this.#do(work, key); };
    const button = (text, click) => make("button", { type: "button", click }, text);
    if (error.code !== CHANGED || !failed.length) {
      byId("collection-message")?.replaceChildren(toldOf(error), failed.length ? button(t("Try again"), again) : "");
      return;
    }
    const fields = failed.map(([key]) => this.#fields().get(key)).filter(Boolean);
    const theirs = () => {
      for (const [key] of failed) this.failed.delete(key);
      for (const field of fields) field.value = field.stored;
      byId("collection-message").replaceChildren();
    };
    byId("collection-message")?.replaceChildren(t("Meanwhile somebody changed it to “{theirs}”. The field still has what you wrote.", { theirs: fields.map(({ stored }) => stored).join("”, “") }),
      button(t("Keep mine"), again), button(t("Take theirs"), theirs));
  }

  /** Find out which files are missing. */
  async #look(signal) {
    try {
      const { data } = await ask("videos", { where: "video.state=missing", page_limit: 50 }, { signal });
      this.missing = new Set(data.map((video) => video.video_id));
      this.#mark();
    } catch { /* exports and the player say it, too */ }
  }

  #mark() {
    for (const item of this.open.items) {
      const line = this.root.querySelector(`[data-id="${item.id}"]`);
      if (!line || item.gone) continue;
      const isMissing = this.missing.has(item.video_id);
      line.classList.toggle("gone", isMissing);
      line.querySelector(".thumb").classList.toggle("bare", isMissing);
      line.querySelector(".evidence").textContent = isMissing ? t("The file of this video is not there.") : item.text;
    }
  }

  // The list

  async #list(signal) {
    const [all, saved] = await Promise.all([listed(signal), ask("saved-searches", {}, { signal })]);
    if (signal.aborted) return;
    this.all = JSON.stringify(all);
    const name = make("input", { maxlength: 200, required: true, placeholder: t("A new collection"), "aria-label": t("Name of a new collection") });
    this.root.replaceChildren(
      make("h1", { class: "answer", tabindex: -1, id: "collections-title" }, t("Collections")),
      make("form", { class: "line-form", "data-needs": "collect", submit: (event) => {
        event.preventDefault();
        sent("POST", "collections", { name: name.value.trim() })
          .then((made) => this.hooks.go({ c: made.id }), (error) => { name.setCustomValidity(error.message); name.reportValidity(); });
      }, input: () => name.setCustomValidity("") }, name, make("button", { type: "submit" }, t("Make it"))),
      all.length ? make("ul", { class: "shelves" }, ...all.map((each) => make("li", {}, ...(each.problem
        ? this.#invalid(each, of(each.id), t("Delete the collection {name}", { name: each.name }))
        : [this.#link({ c: each.id }, "shelf",
          make("span", { class: "card-title" }, each.name),
          make("span", { class: "quiet" }, `${counted(each.count, "moment")} · ${length(each.seconds)}`))]))))
        : make("p", { class: "quiet" }, t("None yet. “Collect” beside a moment puts it into one.")),
      make("h2", {}, t("Saved searches")),
      saved.data.length ? make("ul", { class: "shelves" }, ...saved.data.map((each) => this.#search(each)))
        : make("p", { class: "quiet" }, t("None yet. “Save search” keeps a question and tells what is new since.")),
    );
    for (const each of saved.data.filter((each) => !each.problem).slice(0, MOST_ASKED)) void this.#news(each, signal);
  }

  /** The line of what somebody else wrote and cannot be opened: its fault, and a button that deletes it. */
  #invalid(each, path, label) {
    return [make("span", { class: "shelf" }, make("span", { class: "card-title" }, each.name), make("span", { class: "quiet" }, faultText(each.problem))),
      this.#eraser(path, label)];
  }

  #eraser(path, label) {
    return make("button", { type: "button", class: "round", "data-needs": "collect", "aria-label": label,
      click: () => void sent("DELETE", path).catch((error) => { if (error.status !== 404) throw error; })
        .then(() => this.show("all"), (error) => this.#fault(error, () => this.show("all"))) }, "×");
  }

  #link(to, kind, ...children) {
    return make("a", { class: kind, href: this.hooks.linkTo(to), click: (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      this.hooks.go(to);
    } }, ...children);
  }

  #search(each) {
    const path = `saved-searches/${encodeURIComponent(each.name)}`;
    const label = t("Forget the search {name}", { name: each.name });
    if (each.problem) return make("li", {}, ...this.#invalid(each, path, label));
    return make("li", {},
      this.#link({ ...this.hooks.blank, ...each.question, c: "" }, "shelf",
        make("span", { class: "card-title" }, each.name),
        make("span", { class: "quiet", "data-news": each.name }, "…")),
      this.#eraser(path, label));
  }

  async #news(each, signal) {
    try {
      const now = await this.hooks.search(each.question, signal);
      const known = new Set(each.moments);
      const fresh = now.filter((key) => !known.has(key)).length;
      const line = [...this.root.querySelectorAll("[data-news]")].find((line) => line.dataset.news === each.name);
      if (line) line.textContent = fresh ? t("{n} new moment since|{n} new moments since", { n: fresh }) : t("nothing new");
    } catch { /* its page says what is wrong */ }
  }

  // One collection

  #keyOf(field) {
    return `${field.closest(".clip")?.dataset.id ?? this.open.id} ${field.dataset.field}`;
  }

  #fields() {
    return new Map([...this.root.querySelectorAll("[data-field]")].map((field) => [this.#keyOf(field), field]));
  }

  /** Show a collection. What is being typed stays, and where. */
  #one(collection) {
    const drafts = this.#fields();
    const before = this.open;
    const typing = document.activeElement;
    const isInBar = this.bar.contains(typing);
    if (before?.id !== collection.id) this.chosen.clear();
    this.isRendering = true;
    try {
      this.#render(collection);
    } finally {
      this.isRendering = false;
    }
    for (const [key, field] of this.#fields()) {
      field.stored = field.defaultValue;
      const draft = drafts.get(key);
      const isTyped = draft ? draft.value !== draft.defaultValue : this.failed.has(key);
      if (!isTyped || !this.seen.has(key)) this.seen.set(key, valueOf(collection, key));
      if (!draft) field.value = this.failed.get(key)?.text ?? field.value;
      if (!draft) continue;
      if (isTyped) field.value = draft.value;
      if (draft !== typing) continue;
      field.focus({ preventScroll: true });
      field.setSelectionRange(draft.selectionStart, draft.selectionEnd);
    }
    // A moment that was taken out meanwhile has no field any more.
    for (const [key, { text }] of this.#failedHere()) if (text !== undefined && !this.#fields().has(key)) this.failed.delete(key);
    if (this.#failedHere().length) this.#tell(this.error);
    for (const [key, { value, defaultValue }] of drafts) if (value !== defaultValue && !this.#fields().has(key)) this.#lost(before, key, value);
    this.#offerBack();
    this.#showChosen();
    this.#showOptions();
    if (isInBar && !this.bar.hidden) typing.focus({ preventScroll: true });
    this.#mark();
    list(collection.items.filter((item) => item.thumbnail_url).map((item) => item.video_id));
    this.hooks.drawn();
  }

  /** Show what was typed on a moment that was taken out elsewhere; it can be put back with it. */
  #lost({ id, items }, key, text) {
    const [itemId, name] = key.split(" ");
    const place = items.findIndex((item) => item.id === itemId);
    if (place < 0) return;
    const written = { note: { note: text }, tags: { tags: tagsIn(text) } }[name];
    this.taken.push({ id, item: { ...items[place], ...written }, place, before: items[place + 1]?.id ?? null });
    byId("collection-message").textContent = t("You wrote: “{text}”.", { text });
  }

  #render(collection) {
    this.open = collection;
    const { items } = collection;
    document.title = `${collection.name} – whenabouts`;
    const name = make("input", { class: "name", "data-field": "name", value: collection.name, maxlength: 200, "aria-label": t("Name of the collection"),
      change: () => { const { value } = name; const key = this.#keyOf(name); void this.#do(() => sent("PATCH", of(collection.id), { name: value, seen: { name: this.seen.get(key) } }), key); } });
    const has = items.some((item) => !item.gone);
    const button = (text, click, more = {}) => make("button", { type: "button", click, disabled: !has, ...more }, text);
    this.root.replaceChildren(
      make("p", {}, this.#link({ c: "all" }, "back", `‹ ${t("all collections")}`)),
      make("div", { class: "answer-line", id: "collections-title", tabindex: -1, role: "group", "aria-label": collection.name }, name,
        make("p", { class: "status" }, `${counted(items.length, "moment")} · ${length(items.reduce((sum, item) => sum + item.end - item.start, 0)) || "0 s"}`)),
      make("div", { class: "actions" },
        button(`▶ ${t("Play through")}`, () => void this.#play(), { class: "strong" }),
        this.format, this.notes.label, this.codes.label, button(t("Export"), (event) => {
          const format = this.format.value;
          const parameters = { format, notes: this.notes.box.checked, from_zero: !this.codes.box.checked && countsCodes(format) };
          void this.#take(event, address(of(collection.id, "/export"), parameters), `${collection.name}.${format}`);
        }),
        button(t("One film (mp4)"), (event) => void this.#film(event)),
        button(t("Copy link"), (event) => void this.hooks.copy(this.hooks.linkTo({ c: collection.id }), event.target), { disabled: false, "aria-keyshortcuts": "c" }),
        button(t("Delete…"), () => void this.#delete(), { disabled: false, "data-needs": "collect" })),
      make("p", { class: "message", role: "status", id: "collection-message" }),
      make("p", { class: "message", role: "status", id: "collection-undo" }),
      items.length ? make("ol", { class: "clips", "aria-label": t("Moments in order") }, ...items.map((item, place) => this.#item(item, place)))
        : make("p", { class: "quiet" }, t("Empty. Search, open a moment, and “Collect” it.")),
      this.bar,
    );
    if (may("collect")) return;
    for (const field of this.root.querySelectorAll("input")) Object.assign(field, { readOnly: true, placeholder: "" });
    for (const line of this.root.querySelectorAll(".clip")) line.draggable = false;
  }

  /** Time codes were switched on or off; what is being typed stays. */
  #retime() {
    for (const [key, field] of this.#fields()) {
      const item = this.open.items.find(({ id }) => id === key.split(" ")[0]);
      if (!item || !field.classList.contains("time-field")) continue;
      const { value, defaultValue } = field;
      field.defaultValue = field.stored = timeOf(item, field.dataset.field);
      field.value = value === defaultValue ? field.stored : value;
    }
  }

  /** What an export may leave out, where that makes a difference. */
  #showOptions() {
    const { value } = this.format;
    this.notes.label.hidden = !NOTED.includes(value) || !this.open?.items.some(({ note, tags }) => note || tags.length);
    this.codes.label.hidden = !countsCodes(value);
  }

  #item(item, place) {
    const { id } = this.open;
    const change = (field, value) => void this.#do(() => this.#patch(id, item, field, value), this.#keyOf(field));
    const time = (side) => {
      const field = make("input", { class: "time-field", "data-field": side, value: timeOf(item, side), "aria-label": side === "start" ? t("start of moment {n}", { n: place + 1 }) : t("end of moment {n}", { n: place + 1 }), spellcheck: "false",
        change: () => this.#typed(item, side, field) });
      return field;
    };
    const note = make("input", { class: "note-field", "data-field": "note", value: item.note, maxlength: 2000, placeholder: t("note"), "aria-label": t("note on moment {n}", { n: place + 1 }), change: () => change(note, note.value) });
    const tags = make("input", { class: "tags-field", "data-field": "tags", value: item.tags.join(", "), placeholder: t("tags"), "aria-label": t("tags of moment {n}, with commas between", { n: place + 1 }),
      change: () => change(tags, tagsIn(tags.value)) });
    const handle = make("button", { type: "button", class: "handle", "data-needs": "collect", "aria-label": t("Moment {n}: move with Alt and the arrow keys, or drag", { n: place + 1 }), keydown: (event) => {
      const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (!by || !event.altKey) return;
      event.preventDefault();
      this.#shift(item.id, by);
    } }, "⠿");
    const picture = item.thumbnail_url ? make("img", { src: own(item.thumbnail_url), alt: "", loading: "lazy", width: 160, height: 90 }) : null;
    const title = make("span", { class: "card-title" }, `${place + 1}. ${item.title}`);
    const link = item.gone ? title : this.#link({ v: item.video_id, s: item.start, e: item.end, i: item.id }, "clip-link", title);
    link.dataset.key = item.id;
    const line = make("li", { class: item.gone ? "clip gone" : "clip", "data-id": item.id, draggable: "true" },
      make("span", { class: "clip-ends", "data-needs": "collect" }, handle,
        make("label", { class: "choose" }, make("input", { type: "checkbox", "aria-label": t("Choose moment {n}", { n: place + 1 }), click: (event) => this.#choose(event, place) }))),
      make("span", { class: "thumb" }, picture ?? make("span", { class: "quote" }, item.text || "♪")),
      make("div", { class: "clip-body" },
        link,
        make("span", { class: "evidence" }, item.gone ? t("Its video is not in the corpus any more.") : item.text),
        item.replaced ? make("span", { class: "evidence" }, t("Its file has changed since; check the moment.")) : null,
        make("div", { class: "clip-fields", "data-print": printed(item) }, time("start"), "–", time("end"), note, tags)),
      make("button", { type: "button", class: "round", "data-needs": "collect", "aria-label": t("Take moment {n} out", { n: place + 1 }), click: (event) => void this.#takeOut(event, item, place) }, "×"));
    this.#draggable(line, place);
    return line;
  }

  #patch(id, item, { dataset }, value) {
    const name = dataset.field;
    return sent("PATCH", of(id, `/items/${item.id}`), { [name]: value, seen: { [name]: this.seen.get(`${item.id} ${name}`) } });
  }

  /** A time may be typed as a time code, which is read at the video's rate. */
  #typed(item, side, field) {
    const { value } = field;
    if (readClock(value.replace(";", ":"), 1000) === null) {
      byId("collection-message").textContent = noTime(value);
      field.defaultValue = field.stored;
      return;
    }
    const { id } = this.open;
    void this.#do(async () => {
      const [info, { items }] = await Promise.all([item.gone ? {} : ask(ofVideo(item.video_id)), ask(of(id))]);
      const seconds = readBorder(value, side, items.find((each) => each.id === item.id) ?? item, info);
      return this.#patch(id, item, field, seconds);
    }, this.#keyOf(field));
  }

  /** Save borders that were moved in the player. Throws Fault. */
  async trim(item, start, end) {
    const { open: { id }, shown } = this;
    const collection = await sent("PATCH", of(id, `/items/${item}`), { start, end });
    if (shown === this.shown && !this.waiting) this.#one(collection);
  }

  /** The second press of a double click may hit the next moment. */
  async #takeOut(event, item, place) {
    if (event.detail > 1) return;
    const button = event.currentTarget;
    const { id, items } = this.open;
    button.disabled = true;
    await this.#do(() => sent("DELETE", of(id, `/items/${item.id}`)), item.id);
    button.disabled = false;
    const isOut = this.shown && this.open.id === id && !this.open.items.some((each) => each.id === item.id);
    if (!isOut || item.gone) return;
    this.taken.push({ id, item, place, before: items[place + 1]?.id ?? null });
    this.#offerBack();
  }

  // Choosing, moving and copying

  #chosenBar() {
    this.count = make("span", { role: "status" });
    this.target = make("select", { "aria-label": t("Into the collection"), change: () => this.#showTarget() });
    this.newName = make("input", { maxlength: 200, placeholder: t("Name"), "aria-label": t("Name of a new collection") });
    return make("form", { class: "chosen-bar", "aria-label": t("Chosen moments"), hidden: true, submit: (event) => {
      event.preventDefault();
      void this.#transfer(event.submitter?.value === "copy");
    } }, this.count, this.target, this.newName,
    make("button", { type: "submit", class: "strong" }, t("Move")), make("button", { type: "submit", value: "copy" }, t("Copy")),
    make("button", { type: "button", click: () => { this.chosen.clear(); this.#showChosen(); } }, t("Clear")));
  }

  /** Choose a moment or not; with Shift, all from the last one that was clicked. */
  #choose({ target, shiftKey }, place) {
    const { items } = this.open;
    const from = shiftKey ? items.findIndex(({ id }) => id === this.anchor) : -1;
    const [first, last] = from < 0 ? [place, place] : [Math.min(from, place), Math.max(from, place)];
    for (const { id } of items.slice(first, last + 1)) this.chosen[target.checked ? "add" : "delete"](id);
    this.anchor = items[place].id;
    this.#showChosen();
  }

  #showChosen() {
    const { items } = this.open;
    for (const id of this.chosen) if (!items.some((item) => item.id === id)) this.chosen.delete(id);
    for (const line of this.root.querySelectorAll(".clip")) line.querySelector(".choose input").checked = this.chosen.has(line.dataset.id);
    this.count.textContent = t("{n} chosen", { n: this.chosen.size });
    if (this.bar.hidden && this.chosen.size) void this.#offerTargets();
    this.bar.hidden = this.chosen.size === 0;
  }

  async #offerTargets() {
    const { value } = this.target;
    // Without an answer there is a new collection, and the server says what is wrong.
    const all = (await listed().catch(() => [])).filter(({ id, problem }) => id !== this.open.id && !problem);
    this.target.replaceChildren(...all.map(({ id, name }) => make("option", { value: id }, name)), make("option", { value: "" }, t("A new collection")));
    this.target.value = all.some(({ id }) => id === value) ? value : all[0]?.id ?? "";
    this.#showTarget();
  }

  #showTarget() {
    this.newName.hidden = this.target.value !== "";
    this.newName.required = !this.newName.hidden;
  }

  /** Move or copy the chosen moments to the end of another collection, as they are. A second try goes on where the first failed. */
  async #transfer(copies) {
    const { id, items } = this.open;
    const left = items.filter((item) => this.chosen.has(item.id));
    if (this.isMoving || !left.length) return;
    this.isMoving = true;
    const name = this.newName.value.trim();
    const done = { id, to: this.target.value, moved: [], text: "" };
    let [there, count, twice] = [null, 0, 0];
    await this.#do(async () => {
      if (!done.to) {
        done.to = (await sent("POST", "collections", { name })).id;
        this.newName.value = "";
      }
      there ??= await ask(of(done.to));
      let now;
      for (; left.length; left.shift()) {
        const [item] = left;
        now = await sent("POST", of(id, `/items/${item.id}/move`), { to: done.to, keep: copies });
        this.chosen.delete(item.id);
        count += 1;
        twice += there.items.some((each) => keyOf(each) === keyOf(item)) ? 1 : 0;
        done.text = [
          copies ? t("Copied {n} moment to “{name}”.|Copied {n} moments to “{name}”.", { n: count, name: there.name })
            : t("Moved {n} moment to “{name}”.|Moved {n} moments to “{name}”.", { n: count, name: there.name }),
          twice && t("{n} of them was there already.|{n} of them were there already.", { n: twice }),
        ].filter(Boolean).join(" ");
        if (copies) continue;
        if (!done.moved.length) this.taken.push(done);
        done.moved.push({ item: item.id, title: item.title, after: items.slice(items.indexOf(item) + 1).map((each) => each.id) });
      }
      return now;
    });
    this.isMoving = false;
    if (!this.shown || this.open.id !== id) return;
    if (copies && !left.length) byId("collection-message").textContent = done.text;
    this.#offerBack();
    if (document.activeElement === document.body) byId("collection-undo").querySelector("button")?.focus();
  }

  async #moveBack(done) {
    const { id, to, moved } = done;
    const gone = [];
    await this.#do(async () => {
      for (const there = await ask(of(to)); moved.length; moved.pop()) {
        const { item, title, after } = moved.at(-1);
        if (!there.items.some((each) => each.id === item)) { gone.push(title); continue; }
        const { items } = await ask(of(id));
        const before = after.find((next) => items.some((each) => each.id === next)) ?? null;
        await sent("POST", of(to, `/items/${item}/move`), { to: id, before });
      }
      this.taken = this.taken.filter((each) => each !== done);
      return ask(of(id));
    });
    if (gone.length && this.shown && this.open.id === id) byId("collection-message").textContent = t("Meanwhile taken out of the other collection: {titles}.", { titles: gone.join(", ") });
  }

  /** A line of its own, so that no message replaces it. */
  #offerBack() {
    const last = this.taken.findLast(({ id }) => id === this.open.id);
    const back = last && make("button", { type: "button", "data-needs": "collect", click: () => { back.disabled = true; this.#putBack(last); } }, t("Put back"));
    byId("collection-undo").replaceChildren(...(last ? [last.text ?? t("Moment {n} is taken out.", { n: last.place + 1 }), back] : []));
  }

  #putBack(taken) {
    if (taken.moved) { void this.#moveBack(taken); return; }
    const { id, item, before } = taken;
    void this.#do(async () => {
      taken.made ??= (await sent("POST", of(id, "/items"), { moments: [keyOf(item)], query: item.query })).items.at(-1).id;
      const { items } = await sent("PATCH", of(id, `/items/${taken.made}`), { note: item.note, tags: item.tags });
      this.taken = this.taken.filter((each) => each !== taken);
      return sent("POST", of(id, `/items/${taken.made}/move`), { before: items.some((each) => each.id === before) ? before : null });
    });
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

  /** Keys may come faster than answers, so each move starts where the previous one left the moment. */
  #shift(id, by) {
    this.moves = this.moves.then(() => {
      const from = this.open.items.findIndex((item) => item.id === id);
      return from < 0 ? null : this.#move(from, from + by);
    });
  }

  async #move(from, to) {
    const { id, items } = this.open;
    if (to < 0 || to >= items.length || from === to) return;
    const others = items.filter((_, place) => place !== from);
    await this.#do(() => sent("POST", of(id, `/items/${items[from].id}/move`), { before: others[to]?.id ?? null }));
    this.root.querySelectorAll(".handle")[to]?.focus();
    this.hooks.say(t("Moment {n} of {all}", { n: to + 1, all: items.length }));
  }

  async #take({ currentTarget: button }, url, name, more = "") {
    const message = byId("collection-message");
    const { items } = this.open;
    button.disabled = true;
    message.textContent = t("Writing…");
    try {
      message.textContent = [await download(url, name), more].filter(Boolean).join(" ");
    } catch (error) {
      const first = ` ${error.message.split("; ")[0]} `;
      const named = items.filter((item) => item.name && first.includes(` ${item.name} `));
      const place = new Set(named.map((item) => item.video_id)).size === 1 ? items.indexOf(named[0]) : -1;
      message.textContent = (place < 0 ? "" : t("Moment {n}, “{title}”: ", { n: place + 1, title: items[place].title })) + toldOf(error);
    } finally {
      button.disabled = false;
    }
  }

  async #film(event) {
    const { id, name, items } = this.open;
    const places = items.flatMap((item, place) => (item.video_url ? [] : [place + 1])).join(", ");
    await this.#take(event, address(of(id, "/film")), `${name}.mp4`, places && t("Left out, because no recording is here: moments {places}.", { places }));
  }

  async #delete() {
    const { id, name, items } = this.open;
    const notes = items.filter((item) => item.note || item.tags.length).length;
    const question = t("Delete the collection “{name}” with {n} moment? The videos stay.|Delete the collection “{name}” with {n} moments? The videos stay.", { name, n: items.length });
    if (!confirm([question, notes && t("{n} of them has a note or tags.|{n} of them have notes or tags.", { n: notes }), t("This cannot be undone.")].filter(Boolean).join(" "))) return;
    const { shown } = this;
    await this.#do(async () => {
      await sent("DELETE", of(id));
      for (const [key, each] of [...this.failed]) if (each.shown === shown) this.failed.delete(key);
      if (shown === this.shown) this.hooks.go({ c: "all" });
    });
  }

  /** One moment after the other in a dialog. */
  async #play() {
    const items = this.open.items.filter((item) => item.video_url);
    try {
      const { playThrough } = await import("./through.js");
      await playThrough(items);
    } catch {
      byId("collection-message").textContent = t("The player could not be loaded. Is `whenabouts serve` still running?");
    }
  }
}
