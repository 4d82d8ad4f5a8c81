// The videos of the corpus on a wall: sorted, filtered by folders and facts, chosen for a search. Only visible cards
// are in the page.

import { language, t, term } from "./language.js";
import { videoCard } from "./results.js";
import { ask, copied, ofVideo, sent } from "./server.js";
import { counted, make, streamName } from "./words.js";

// Videos are requested in blocks; the most blocks that are cached.
const BLOCK = 50;
const MOST_BLOCKS = 60;
// Rows above and below the visible ones.
const MARGIN = 2;
// Nothing is requested while the user scrolls fast.
const STAYS_MS = 80;
// Browsers cannot show a higher list; filtering makes it shorter.
const MOST_PIXELS = 15_000_000;
const MOST_CHOSEN = 50;
const SORTS = {
  name: t("Name"), "-date": t("Newest first"), date: t("Oldest first"), "-length": t("Longest first"), length: t("Shortest first"), "-added": t("Added last"),
};
const MARKS = { missing: t("file gone"), damaged: t("damaged"), unreadable: t("could not be read") };
export const TOGETHER = " | ";
const WIDE = matchMedia("(min-width: 64rem)");
const languages = new Intl.DisplayNames([language], { type: "language", fallback: "code" });

/** The conditions in the address, one per line. */
export const conditionsOf = (text) => text.split("\n").filter(Boolean);

const keyOf = (condition) => condition.slice(0, condition.indexOf("="));
const valueOf = (condition) => condition.slice(condition.indexOf("=") + 1);

/** A condition for users. */
function titleOf(condition) {
  const key = keyOf(condition);
  if (key === "video.folder") return t("in {folder}", { folder: valueOf(condition).split("/").filter(Boolean).at(-1) ?? "/" });
  const value = valueOf(condition).replace(/\[([*?[])\]/g, "$1");
  if (key === "video.stream") return t("with {stream}", { stream: streamName(value) });
  if (key === "language") return nameOfLanguage(value);
  return key.startsWith("video.") ? MARKS[value] ?? value : `${key}: ${value}`;
}

function nameOfLanguage(code) {
  try {
    return languages.of(code);
  } catch {
    return code;
  }
}

/** The filters of list and search, each with a button that removes it. */
export function showScope(root, state, go) {
  const conditions = conditionsOf(state.in);
  const chosen = state.within.split(TOGETHER).filter(Boolean);
  const chip = (text, without) => make("button", { type: "button", class: "chip", "aria-label": t("No longer only {what}", { what: text }), click: () => go(without) },
    text, make("span", { "aria-hidden": "true" }, " ×"));
  const chips = conditions.map((condition) => chip(titleOf(condition), { in: conditions.filter((each) => each !== condition).join("\n") }));
  if (chosen.length > 1) chips.push(chip(counted(chosen.length, "chosen video"), { within: "" }));
  root.replaceChildren(...chips);
  root.hidden = chips.length === 0;
}

export class Library {
  /** `hooks`: go(changes), hrefOf(id), openKey(), again(), say(text). */
  constructor(root, hooks) {
    Object.assign(this, { root, hooks, total: 0, blocks: new Map(), asked: new Map(), failed: new Set(), cards: new Map(), chosen: new Map() });
    this.sort = make("select", { id: "sort", change: () => hooks.go({ sort: this.sort.value === "name" ? "" : this.sort.value }) },
      ...Object.entries(SORTS).map(([value, text]) => make("option", { value }, text)));
    this.path = make("nav", { class: "crumbs", "aria-label": t("Folder") });
    this.facets = make("div", { class: "facet-groups" });
    this.narrow = make("details", { class: "narrow" }, make("summary", {}, t("Narrow")), this.facets);
    this.narrow.open = WIDE.matches;
    this.wall = make("ol", { class: "wall", "aria-label": t("Videos"), role: "list", keydown: (event) => this.#key(event) });
    this.bar = make("div", { class: "chosen-bar", role: "group", "aria-label": t("Chosen videos"), hidden: true });
    this.trouble = make("div", { class: "chosen-bar", role: "alert", hidden: true });
    root.replaceChildren(this.path, make("label", { class: "sort" }, `${t("Sort")} `, this.sort), this.narrow,
      make("div", { class: "wall-side" }, this.wall, this.bar, this.trouble));
    this.draw = () => { this.drawn ??= requestAnimationFrame(() => { this.drawn = null; this.#draw(); }); };
    addEventListener("scroll", this.draw, { passive: true });
    new ResizeObserver(() => { this.#measure(); this.draw(); }).observe(this.wall);
    WIDE.addEventListener("change", () => { this.narrow.open = WIDE.matches; });
  }

  /** List the videos of a page's state: fetch the first block and the number of videos. */
  async show(state, { signal, onWait }) {
    const sort = state.sort in SORTS ? state.sort : "name";
    const narrow = { where: conditionsOf(state.in), after: state.after, before: state.before };
    const question = { ...narrow, sort: sort.replace("-", ""), descending: sort.startsWith("-") };
    const [first, facets] = await Promise.all([
      ask("videos", { ...question, page_limit: BLOCK }, { signal, onWait }),
      ask("facets", narrow, { signal, onWait }),
    ]);
    if (signal.aborted) return first;
    this.question = question;
    this.sort.value = sort;
    this.#forget();
    this.blocks.set(0, first.data);
    this.total = first.page_info.total_results;
    this.#showFacets(facets, question.where);
    this.reveal();
    return first;
  }

  /** Show the last list. */
  reveal() {
    this.root.hidden = false;
    this.#measure();
    this.#draw();
  }

  hide() {
    this.root.hidden = true;
    this.#empty();
  }

  #forget() {
    this.#empty();
    this.blocks.clear();
  }

  /** Remove all cards and cancel requests; the blocks stay. */
  #empty() {
    clearTimeout(this.waits);
    this.trouble.hidden = true;
    for (const call of this.asked.values()) call.abort();
    for (const card of this.cards.values()) card.remove();
    for (const kept of [this.asked, this.failed, this.cards]) kept.clear();
  }

  // The wall

  #measure() {
    if (this.root.hidden) return;
    const style = getComputedStyle(this.wall);
    const columns = style.gridTemplateColumns.split(" ").map(parseFloat);
    const beside = style.getPropertyValue("--beside").trim() === "1";
    const gap = parseFloat(style.columnGap);
    const row = parseFloat(style.gridAutoRows) + (beside ? 0 : columns[0] * 9 / 16) + gap;
    const size = JSON.stringify([columns.length, columns[0], row]);
    if (size !== this.size) {
      const before = this.size && this.columns ? this.#firstInSight() : 0;
      Object.assign(this, { size, columns: columns.length, width: columns[0], gap, row });
      for (const [index, card] of this.cards) this.#place(card, index);
      if (before >= this.columns) scrollTo(0, this.#top() + Math.floor(before / this.columns) * row);
    }
    this.wall.style.height = `${Math.min(MOST_PIXELS, Math.ceil(this.total / this.columns) * row)}px`;
  }

  #top() {
    return this.wall.getBoundingClientRect().top + scrollY;
  }

  #firstInSight() {
    return Math.max(0, Math.floor((scrollY - this.#top()) / this.row)) * this.columns;
  }

  #place(card, index) {
    const [column, row] = [index % this.columns, Math.floor(index / this.columns)];
    card.style.width = `${this.width}px`;
    card.style.height = `${this.row - this.gap}px`;
    card.style.transform = `translate(${column * (this.width + this.gap)}px, ${row * this.row}px)`;
  }

  /** Cards for the visible rows, some around them, and the one with the focus. A list below the screen keeps its first rows, for Tab and screen readers. */
  #draw() {
    if (this.root.hidden || !this.row) return;
    const top = this.wall.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(-top / this.row) - MARGIN) * this.columns;
    const last = Math.min(this.total, (Math.max(0, Math.ceil((innerHeight - top) / this.row)) + MARGIN) * this.columns);
    for (const [index, card] of this.cards) {
      const isStale = card.classList.contains("ghost") && this.#at(index);
      if ((index < first || index >= last || isStale) && (isStale || !card.contains(document.activeElement))) {
        card.remove();
        this.cards.delete(index);
      }
    }
    for (let index = first; index < last; index += 1) if (!this.cards.has(index)) this.#add(index);
    clearTimeout(this.waits);
    this.waits = setTimeout(() => this.#fill(first, last), STAYS_MS);
  }

  #at(index) {
    return this.blocks.get(Math.floor(index / BLOCK))?.[index % BLOCK];
  }

  #add(index) {
    const video = this.#at(index);
    const card = video ? this.#card(video) : make("li", { class: "card ghost", tabindex: -1 });
    card.setAttribute("aria-setsize", this.total);
    card.setAttribute("aria-posinset", index + 1);
    card.dataset.index = index;
    this.#place(card, index);
    // In the order of the list, for Tab.
    let after = null;
    for (const [other, element] of this.cards) if (other > index && (after === null || other < Number(after.dataset.index))) after = element;
    this.wall.insertBefore(card, after);
    this.cards.set(index, card);
    if (this.wanted === index) (card.querySelector(".card-link") ?? card).focus({ preventScroll: true });
    if (this.wanted === index && video) this.wanted = null;
  }

  #card(video) {
    const card = videoCard(video, this.hooks.hrefOf(video.video_id));
    const name = video.title || video.video_id;
    if (this.hooks.openKey() === video.video_id) card.querySelector(".card-link").setAttribute("aria-current", "true");
    card.append(make("label", { class: "choose" }, make("input", {
      type: "checkbox", "aria-label": t("Choose {name}", { name }), checked: this.chosen.has(video.video_id),
      change: (event) => this.#choose(video, event.target.checked),
    })));
    if (MARKS[video.state]) {
      card.append(make("button", { type: "button", class: `mark-state ${video.state}`, "aria-label": `${name}: ${MARKS[video.state]}, ${t("how to mend it")}`, click: () => this.#mend(video) }, MARKS[video.state]));
    }
    return card;
  }

  /** Request missing visible blocks and cancel the others; failed blocks wait for "Try again". */
  #fill(first, last) {
    const needed = new Set();
    for (let block = Math.floor(first / BLOCK); block * BLOCK < last; block += 1) needed.add(block);
    for (const [block, call] of this.asked) {
      if (needed.has(block)) continue;
      call.abort();
      this.asked.delete(block);
    }
    for (const block of needed) if (![this.blocks, this.asked, this.failed].some((each) => each.has(block))) void this.#ask(block);
  }

  async #ask(block) {
    const call = new AbortController();
    this.asked.set(block, call);
    try {
      const reply = await ask("videos", { ...this.question, skip: block * BLOCK, page_limit: BLOCK }, { signal: call.signal });
      if (call.signal.aborted) return;
      this.blocks.set(block, reply.data);
      for (const old of this.blocks.keys()) if (this.blocks.size > MOST_BLOCKS && old !== block) this.blocks.delete(old);
      if (reply.page_info.total_results !== this.total) {
        this.total = reply.page_info.total_results;
        this.#measure();
      }
      this.draw();
    } catch (error) {
      if (error.name === "AbortError") return;
      this.failed.add(block);
      this.trouble.replaceChildren(error.message, make("button", { type: "button", click: () => this.#retry() }, t("Try again")));
      this.trouble.hidden = false;
    } finally {
      if (this.asked.get(block) === call) this.asked.delete(block);
    }
  }

  #retry() {
    this.failed.clear();
    this.trouble.hidden = true;
    this.#draw();
  }

  #key(event) {
    const card = event.target.closest("li");
    if (!card || event.target.matches("input, button") || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(innerHeight / this.row)) * this.columns;
    const now = Number(card.dataset.index);
    const to = {
      ArrowLeft: now - 1, ArrowRight: now + 1, ArrowUp: now - this.columns, ArrowDown: now + this.columns,
      PageUp: now - page, PageDown: now + page, Home: 0, End: this.total - 1,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.focus(Math.min(this.total - 1, Math.max(0, to)));
  }

  /** Scroll to a card and focus it, once it is loaded. */
  focus(index) {
    const top = this.#top() + Math.floor(index / this.columns) * this.row;
    if (top < scrollY) scrollTo(0, top - this.gap);
    else if (top + this.row > scrollY + innerHeight) scrollTo(0, top + this.row - innerHeight + this.gap);
    this.wanted = index;
    const card = this.cards.get(index);
    if (card && !card.classList.contains("ghost")) {
      this.wanted = null;
      card.querySelector(".card-link").focus({ preventScroll: true });
    }
    this.#draw();
  }

  // Choosing

  #choose(video, isChosen) {
    if (isChosen) this.chosen.set(video.video_id, video);
    else this.chosen.delete(video.video_id);
    this.#showChosen();
  }

  #showChosen() {
    const ids = [...this.chosen.keys()];
    const many = ids.length > MOST_CHOSEN;
    this.bar.hidden = ids.length === 0;
    this.bar.replaceChildren(
      make("span", { role: "status" }, many ? t("{n} chosen; a search takes {most}. A folder or another fact narrows to more.", { n: ids.length, most: MOST_CHOSEN }) : t("{n} chosen", { n: ids.length })),
      make("button", { type: "button", class: "strong", disabled: many, click: () => {
        this.#clear();
        this.hooks.go({ within: ids.join(TOGETHER) });
        document.getElementById("query").focus();
      } }, t("Search only these")),
      make("button", { type: "button", click: () => this.#clear() }, t("Clear")));
  }

  #clear() {
    this.chosen.clear();
    for (const box of this.wall.querySelectorAll(".choose input")) box.checked = false;
    this.#showChosen();
  }

  // Facets and folders

  #showFacets({ data, root }, where) {
    const folder = valueOf(where.findLast((condition) => keyOf(condition) === "video.folder") ?? "=");
    this.#showPath(root, folder, where);
    this.facets.replaceChildren(...data.map((facet) => this.#facet(facet, where)));
    this.narrow.hidden = data.length === 0;
  }

  #facet(facet, where) {
    const id = `facet-${facet.key.replace(/\W/g, "-")}`;
    const button = ({ value, title: given, count, where: condition }) => {
      const title = facet.key === "language" && language !== "en" ? nameOfLanguage(value) : ["video.stream", "video.state"].includes(facet.key) ? term(given) : given;
      const isOn = where.includes(condition);
      const others = where.filter((each) => (isOn ? each !== condition : facet.key === "video.stream" || keyOf(each) !== facet.key));
      return make("li", {}, make("button", { type: "button", class: "facet", "aria-pressed": facet.key === "video.folder" ? null : String(isOn),
        click: () => this.#narrowTo(isOn ? others : [...others, condition]) },
      make("span", { class: "facet-title" }, ...title.split("/").flatMap((part, at) => (at ? ["/", make("wbr"), part] : [part]))), make("span", { class: "facet-count" }, count)));
    };
    return make("section", { "aria-labelledby": id }, make("h2", { id }, term(facet.title)),
      make("ul", {}, ...facet.values.map(button)),
      facet.more ? make("p", { class: "quiet" }, t("and {n} more", { n: facet.more })) : null);
  }

  #narrowTo(where) {
    this.hooks.go({ in: where.join("\n") });
  }

  #showPath(root, folder, where) {
    const without = where.filter((condition) => keyOf(condition) !== "video.folder");
    const names = folder && folder.startsWith(`${root}/`) ? folder.slice(root.length + 1).split("/") : [];
    const crumb = (text, to, isHere) => (isHere ? make("span", { "aria-current": "page" }, text)
      : make("button", { type: "button", class: "link", click: () => this.#narrowTo(to) }, text));
    const crumbs = names.map((name, depth) =>
      crumb(name, [...without, `video.folder=${[root, ...names.slice(0, depth + 1)].join("/")}`], depth === names.length - 1));
    this.path.hidden = root === null;
    this.path.replaceChildren(crumb(root?.split("/").at(-1) || t("All folders"), without, names.length === 0),
      ...crumbs.flatMap((each) => [make("span", { "aria-hidden": "true" }, "›"), each]));
  }

  // What is missing or damaged

  #mend(video) {
    const message = make("p", { class: "message", role: "status" });
    const [, command] = /`([^`]+)`/.exec(video.remedy) ?? [];
    const path = make("input", { id: "mend-path", required: true, maxlength: 4000, autocomplete: "off", spellcheck: "false", value: `${video.folder}/${video.name}` });
    const form = make("form", { class: "mend-form", submit: (event) => {
      event.preventDefault();
      message.textContent = t("Comparing its content…");
      sent("POST", ofVideo(video.video_id, "/relocate"), { path: path.value.trim() }).then(() => {
        dialog.close();
        this.hooks.say(t("{name} is found.", { name: video.name }));
        this.hooks.again();
      }, (error) => { message.textContent = error.message; });
    } }, make("label", {}, `${t("The file is now at")} `, path), make("button", { type: "submit", class: "strong" }, t("Use this file")));
    const dialog = make("dialog", { class: "keys mend", "aria-labelledby": "mend-title", close: () => dialog.remove() },
      make("h2", { id: "mend-title" }, `${video.title || video.name}: ${MARKS[video.state]}`),
      video.folder === null ? null : make("p", { class: "path" }, `${video.folder}/${video.name}`),
      video.damage ? make("p", {}, video.damage) : null,
      make("p", {}, ...video.remedy.split("`").map((part, at) => (at % 2 ? make("code", {}, part) : part))),
      video.state === "missing" && video.folder !== null ? form : null, message,
      make("div", { class: "actions" },
        command ? make("button", { type: "button", click: () => void copied(command).then(() => { message.textContent = t("Copied."); }, () => { message.textContent = t("The browser did not let it be copied."); }) }, t("Copy the command")) : null,
        make("button", { type: "button", click: () => dialog.close() }, t("Close"))));
    document.body.append(dialog);
    dialog.showModal();
  }
}
