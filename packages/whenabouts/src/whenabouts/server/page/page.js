// The page: everything shown follows from its address.

import { learnAccess, may } from "./access.js";
import { showChips } from "./chips.js";
import { faultParts, headingOf, isPassing, toldOf } from "./errors.js";
import { exampleOf, pictureIn } from "./example.js";
import { Past } from "./history.js";
import { offerLanguages, t, term } from "./language.js";
import { conditionsOf, Library, showScope, TOGETHER } from "./library.js";
import { ask, Fault, loaded } from "./server.js";
import { Player } from "./player.js";
import { previewOn, toggleLook } from "./preview.js";
import { folded, keyOf, momentCard, waiting } from "./results.js";
import { list, toggleCodes } from "./timecode.js";
import { counted, length, make, noTime, readClock, sentence, streamName } from "./words.js";

const byId = (id) => document.getElementById(id);
// Most results of a search, results per page, and closest results shown without a match.
const MOST = 100;
const PAGE = 24;
// For every place: as many per page as the server gives.
const PLACES = 50;
const CLOSEST = 3;
/** Models that the server's owner allowed, by parameter: their names in /api/stats. */
const LOOKS = { check: "checker", rerank: "reranker", rewrite: "rewriter" };
const FILTERS = ["within", "stream", "model", "min", "after", "before", "where", "all", ...Object.keys(LOOKS)];
// Parts of a question besides its words and the form's fields; `in` has the library's conditions, one per line.
const EXAMPLES = ["like", "picture", "in"];
// All parts of a question; `literal` names the rules that are off, separated by commas.
const QUESTION = ["q", ...EXAMPLES, ...FILTERS, "literal"];

/**
 * The query and the open things; `v`, `s`, `e` are the open video and moment, `vs` two compared systems, `by` is "video"
 * if results are grouped by video, `c` is the open collection ("all": the list of collections) and `i` its moment, `a` the
 * folder open for adding videos. `like` is the example moment, `picture` the key of an example picture, which the address cannot hold.
 */
let state = { q: "", like: "", picture: "", in: "", sort: "", within: "", v: "", s: null, e: null, vs: null, by: "", c: "", a: "" };
/** Pictures chosen since the page was opened, by key. */
const pictures = new Map();
/** The answer on the page: the fields of its first page, with `data` of all pages read so far. */
let shown = null;
let pending = new AbortController();
let waitsUntilAnswer = null;
/** Whether to focus the first result when it arrives: after Enter in the box. */
let wantsFocus = false;
/** Which chip to focus when the answer arrives: after one was removed. */
let wantsChip = null;

const player = new Player({
  item: () => (state.c && collections?.open?.items.find(({ id }) => id === openKey())) || null,
  saveItem: (start, end) => collections.trim(state.i, start, end),
  // The moment of a collection is known by its borders until they move.
  changed: (start, end) => go({ s: start, e: end, i: state.c ? openKey() : null }, { replace: true, quiet: true }),
  linkTo: (moment) => addressOf({ ...state, v: moment.video_id, s: moment.start, e: moment.end }),
  open: (result) => go({ s: result.start, e: result.end }),
  onlyThis: (id) => go({ within: id, v: "", s: null, e: null }),
  say,
  back: () => go({ v: "", s: null, e: null }),
  searchAnew: () => { shown = null; go({ v: "", s: null, e: null }); },
  results: () => (shown?.isSearch && !state.c ? shown.data : []),
  question: () => (state.c ? {} : state.like || state.picture
    ? { moments: (shown?.data ?? []).map(keyOf).join(",") }
    : { ...parametersOf(state), k: state.all ? "" : shown?.data.length ?? "" }),
});

const library = new Library(byId("library"), {
  go, say, again: () => void search(), openKey,
  hrefOf: (id) => addressOf({ ...state, v: id, s: null, e: null }),
});

const past = new Past(byId("past"), byId("query"), {
  linkTo: (question) => addressOf({ ...blank(), ...question }),
  go: (question) => {
    byId("query").focus();
    wantsFocus = true;
    go({ ...blank(), ...question });
  },
});
const blank = () => ({ ...Object.fromEntries(QUESTION.map((name) => [name, ""])), v: "", s: null, e: null, vs: null, c: "", a: "" });

// The address

function readAddress() {
  const given = new URLSearchParams(location.search);
  const seconds = (name) => readClock(given.get(name) ?? "");
  const read = { q: given.get("q") ?? "", v: given.get("v") ?? "", s: seconds("s"), e: seconds("e") };
  for (const name of [...EXAMPLES, ...FILTERS, "literal"]) read[name] = given.get(name) ?? "";
  read.c = given.get("c") ?? "";
  read.a = given.get("a") ?? "";
  read.sort = given.get("sort") ?? "";
  read.by = given.get("by") === "video" ? "video" : "";
  if (!(Number(read.min) > 0)) read.min = "";
  const vs = given.getAll("vs");
  read.vs = read.q.trim() && vs.length === 2 && vs[0] !== vs[1] ? vs : null;
  const strange = ["s", "e"].find((name) => given.has(name) && read[name] === null);
  if (strange) read.fault = noTime(given.get(strange));
  else if (read.s !== null && read.e !== null && read.e <= read.s) read.fault = t("The address names a moment that ends before it starts.");
  if (read.s === null || read.e === null || read.e <= read.s) read.s = read.e = null;
  return read;
}

function addressOf(target) {
  const given = new URLSearchParams();
  for (const name of [...QUESTION, "sort", "by", "c", "a", "v"]) if (target[name]) given.set(name, target[name]);
  if (target.v && target.s !== null) {
    given.set("s", target.s.toFixed(3));
    given.set("e", target.e.toFixed(3));
  }
  for (const name of target.vs ?? []) given.append("vs", name);
  const tail = given.toString();
  return location.pathname + (tail ? `?${tail}` : "");
}

/** Go to another state; `quiet` only writes the address. */
function go(changes, { replace = false, quiet = false } = {}) {
  const next = { ...state, fault: "", ...changes };
  const place = addressOf(next);
  if (place !== location.pathname + location.search) history[replace ? "replaceState" : "pushState"](null, "", place);
  if (quiet) state = next;
  else void follow(next);
}

/** Show a state: search if the query changed; open or close the player. */
async function follow(next, { focus = true } = {}) {
  const another = shown === null || questionOf(next) !== shown.question;
  const wasOpen = player.isOpen ? state : null;
  const compared = state.vs;
  state = next;
  fillForm();
  document.title = next.q ? `${next.q} – whenabouts` : "whenabouts";
  void showCollection(next, focus);
  void showAdding(next, focus);
  document.body.classList.toggle("watching", Boolean(next.v));
  if (!next.v) {
    player.close();
    if (wasOpen && focus && !another) (comparison?.linkOf(wasOpen) ?? linkOf(wasOpen.v, wasOpen.s) ?? byId("results")).focus();
  }
  if (next.vs || compared) void compare(focus && !next.v && !compared !== !next.vs);
  // A link to a moment opens its video without waiting for the answer. During a comparison nothing is searched.
  const answered = another && !next.c && !next.a && (!next.vs || next.v) ? search() : Promise.resolve();
  if (next.v) {
    const result = resultOf(next);
    void player.open({ id: next.v, start: next.s, end: next.e, result, query: (!another && shown?.words) || next.q, model: next.model, title: result?.title, fault: next.fault });
    if (focus) byId("title").focus({ preventScroll: true });
    if (focus && matchMedia("(max-width: 75rem)").matches) window.scrollTo(0, 0);
  }
  markOpen();
  // The list is narrower beside the player, so the clicked card moves.
  if (next.v && focus) linkOf(next.v, next.s)?.scrollIntoView({ block: "nearest" });
  await answered;
}

/** Collections, shown instead of results; a script that is fetched when first needed. */
let collections = null;
async function showCollection({ c, v }, focus) {
  byId("collections").hidden = !c;
  document.body.classList.toggle("collecting", Boolean(c));
  if (!c) {
    collections?.leave();
    return;
  }
  const script = await scriptFor(byId("collections"), import("./collections.js"), () => showCollection(state, true));
  if (!script || c !== state.c) return;
  collections ??= new script.Collections({
    go, say, drawn: markOpen, linkTo: (to) => addressOf({ ...state, q: "", v: "", s: null, e: null, ...to }), copy,
    blank: Object.fromEntries(QUESTION.map((name) => [name, ""])),
    search: async (question, signal) =>
      ((await ask("search", listOf({ ...blank(), ...question }), { signal })).data ?? []).map(keyOf),
  });
  await collections.show(c);
  if (focus && !v) byId("collections-title")?.focus();
}

/** A script that shows a panel; null if it cannot be fetched, which the panel then says. */
async function scriptFor(panel, script, again) {
  try {
    const module = await loaded(script);
    panel.querySelector(":scope > .fault")?.remove();
    return module;
  } catch (error) {
    panel.replaceChildren(make("div", { class: "fault", role: "alert" },
      ...faultParts(error, { [t("Try again")]: again, [t("Back to the videos")]: () => go({ c: "", a: "" }) }, { headed: true })));
    return null;
  }
}

/** Adding videos, shown instead of results; a script for servers that may read folders. */
let adding = null;
async function showAdding({ a, v }, focus) {
  byId("adding").hidden = !a;
  document.body.classList.toggle("adding", Boolean(a));
  if (!a) {
    adding?.leave();
    return;
  }
  document.title = `${t("Add videos")} – whenabouts`;
  const script = await scriptFor(byId("adding"), import("./adding.js"), () => showAdding(state, true));
  if (!script || a !== state.a) return;
  adding ??= new script.Adding({ go, say, changed, linkTo: (to) => addressOf({ ...state, q: "", v: "", s: null, e: null, ...to }) });
  await adding.show(a);
  if (focus && !v && !byId("adding").contains(document.activeElement)) byId("adding-title")?.focus();
}

/** The corpus has changed: reload lists and numbers when next shown. */
function changed() {
  shown = null;
  stats = null;
  byId("by-video").hidden = true;
}

/** Remove the open video from the corpus, after two confirmations. */
async function removeOpen() {
  const { v } = state;
  const message = byId("message");
  if (!confirm(t("Remove “{name}” from the corpus? Its file stays, and is not indexed again by itself.", { name: byId("title").textContent }))) return;
  byId("remove").disabled = true;
  message.textContent = t("Removing…");
  try {
    const { removeVideo } = await loaded(import("./adding.js"));
    await removeVideo(v);
    changed();
    say(t("The video is removed from the corpus; its file stays."));
    if (state.v === v) go({ v: "", s: null, e: null });
  } catch (error) {
    message.textContent = error.message;
  } finally {
    byId("remove").disabled = false;
  }
}

/** Shown only for a server that may add videos. */
async function offerAdding() {
  const { adds } = await statsOnce();
  byId("to-adding").hidden = byId("remove").hidden = !adds;
}

async function copy(link, button) {
  try {
    const { copyLink } = await loaded(import("./link.js"));
    await copyLink(link, button, say);
  } catch (error) {
    const place = byId("collection-message");
    if (place) place.textContent = toldOf(error);
    else showFault(error, () => copy(link, button));
  }
}

/** Copy a link to what is open: the moment, the collection, or the search. */
function copyThis() {
  if (player.isOpen) void player.copyLink();
  else if (state.picture) say(t("No link holds a picture."));
  else void copy(addressOf(state), state.c ? document.querySelector("#collections [aria-keyshortcuts=c]") : byId("copy-search"));
}

/** Save the answered question under its own words and filters. */
async function saveThis() {
  const { q, ...filters } = questionAsked();
  const name = [q.trim(), ...Object.entries(filters).map(([name, value]) => `${name}: ${value}`)].join(", ").replaceAll("\n", ", ");
  try {
    const { saveSearch } = await loaded(import("./collections.js"));
    await saveSearch(name, questionAsked(), shown.data.map(keyOf));
    byId("save-search").textContent = t("Saved");
    say(t("The search is saved; Collections lists it."));
  } catch (error) {
    showFault(error, saveThis);
  }
}

/** Compare two systems; a script that is fetched when first needed. */
let [comparison, fetching] = [null, null];
async function compare(focus) {
  const hooks = { go, linkTo: (to) => addressOf({ ...state, ...to }), parametersOf, systems, say };
  try {
    fetching ??= import("./compare.js").then((script) => script.opened(hooks));
    comparison = await fetching;
  } catch {
    showFault(new Error(t("The comparison could not be loaded. Is `whenabouts serve` still running?")), () => location.reload());
    return;
  }
  document.body.classList.toggle("comparing", Boolean(state.vs));
  comparison.show(state, focus);
  if (focus && !state.vs) byId(byId("compare").hidden ? "results" : "compare").focus();
}

const isSearch = (of) => Boolean(of.q.trim() || of.like || of.picture);

const questionOf = (of) => JSON.stringify([...QUESTION, ...(isSearch(of) ? [] : ["sort"])].map((name) => of[name] ?? ""));
/** The question that is open, without an example. */
const questionAsked = () => Object.fromEntries(["q", "in", ...FILTERS, "literal"].filter((name) => state[name]).map((name) => [name, state[name]]));
const literalOf = (of) => (of.literal ? of.literal.split(",") : []);

/** The result of the open moment: the same video, most of the time shared. */
function resultOf(of) {
  if (!shown?.isSearch || of.s === null || state.c) return null;
  let [best, most] = [null, 0];
  for (const result of shown.data) {
    if (result.video_id !== of.v) continue;
    const shared = Math.min(result.end, of.e) - Math.max(result.start, of.s);
    const share = shared / (result.end - result.start + of.e - of.s - shared);
    if (share > most) [best, most] = [result, share];
  }
  return best;
}

// Searching

function parametersOf(of) {
  return {
    query: of.q, like: of.like, picture: pictures.get(of.picture)?.data ?? "", within: of.within.split(TOGETHER).filter(Boolean), stream: of.stream, model: of.model, after: of.after, before: of.before, where: [of.where, ...conditionsOf(of.in)].filter(Boolean), all: of.all, literal: literalOf(of),
    min_confidence: of.min ? String(Number(of.min) / 100) : "",
  };
}

const looksOf = (of) => Object.fromEntries(Object.keys(LOOKS).map((name) => [name, of.all || !of.q ? "" : of[name]]));
const listOf = (of) => ({ ...parametersOf(of), ...looksOf(of), k: of.all ? "" : MOST, page_limit: of.all ? PLACES : PAGE });

async function search() {
  pending.abort();
  pending = new AbortController();
  const { signal } = pending;
  const mine = state;
  const before = shown;
  shown = { question: questionOf(mine), isSearch: isSearch(mine), data: [] };
  showWaiting();
  try {
    await (shown.isSearch ? searchMoments(mine, signal) : listVideos(mine, signal));
    if (signal.aborted) return;
    if (wantsChip !== null && shown.isSearch) ([...byId("understood").querySelectorAll("button")].at(wantsChip) ?? links()[0] ?? byId("results")).focus();
    if (wantsFocus && document.activeElement === byId("query")) (links()[0] ?? byId("results")).focus({ preventScroll: true });
  } catch (error) {
    if (error.name !== "AbortError") showFault(error);
    if (isPassing(error)) keep(before);
  } finally {
    if (!signal.aborted) [wantsFocus, wantsChip] = [false, null];
    if (!signal.aborted) byId("results").removeAttribute("aria-busy");
  }
}

async function searchMoments(mine, signal) {
  if (mine.picture && !pictures.has(mine.picture)) throw new Error(t("An address does not hold the picture. Choose it again, or leave it out."));
  const reply = await ask("search", listOf(mine), { signal, onWait: sayBusy });
  if (signal.aborted) return;
  const measured = mine.model || mine.like || mine.picture ? null : reply.calibration ?? (await statsOnce()).calibration;
  if (signal.aborted) return;
  showRates(measured);
  Object.assign(shown, reply, { data: reply.data ?? [], question: shown.question });
  showAnswer();
  if (mine.q.trim() && !mine.like && !mine.picture) past.remember(questionAsked());
  void offerComparison();
  if (state.v) bindOpen();
}

/** If the server does not answer, the earlier results stay, and the line names their query. */
function keep(before) {
  if (!before?.data.length) return;
  const { question } = shown;
  shown = { ...before, question };
  if (before.isSearch) showCards();
  else library.reveal();
  line(before.query ? t("These are still the results for “{query}”.", { query: before.query }) : t("These are the videos as they were listed before."));
}

/** Statistics of the corpus; empty if the server does not give them. */
let stats;
const statsOnce = () => (stats ??= ask("stats").catch(() => { stats = null; return {}; }));

/** The systems that can search; "" is the streams' own search. */
const systems = async () => ["", ...((await statsOnce()).models ?? [])];

async function offerComparison() {
  const all = await systems();
  byId("compare").hidden = !state.q.trim() || all.length < 2;
}

/** Compare the chosen system with another, two trained ones if there are two. */
async function openComparison() {
  const models = (await systems()).slice(1);
  const first = state.model || (models.length > 1 ? models[0] : "");
  go({ vs: [first, models.find((name) => name !== first) ?? ""] });
}

/** How often answers are wrong here, if measured with users' questions; made ones are easier. */
function showRates(reply) {
  if (reply?.questions === "made of the corpus") reply = null;
  const share = (rate) => t("{rate}\u00a0% ({low} to {high}\u00a0%)", Object.fromEntries(["rate", "low", "high"].map((name) => [name, Math.round(100 * rate[name])])));
  const [alarms, misses] = [reply?.false_alarm_rate, reply?.miss_rate];
  const parts = [];
  if (alarms?.of) parts.push(t("of unrelated queries, {share} are called a match", { share: share(alarms) }));
  if (misses?.of) parts.push(t("of queries that have an answer here, {share} are called “nothing like it”", { share: share(misses) }));
  byId("rates").hidden = parts.length === 0;
  byId("rates").textContent = t("How often that is wrong: {shares}.", { shares: parts.join("; ") });
}

/** Find the result of a moment that was opened before the answer came. */
function bindOpen() {
  const result = resultOf(state);
  markOpen();
  if (result) player.bind(result);
}

function showNotes(notes) {
  byId("notes").hidden = notes.length === 0;
  byId("notes").replaceChildren(...notes.map((note) => make("li", {}, note)));
  showReasons();
}

/** The line beside the answer. */
function line(text) {
  byId("line").textContent = text;
}

/** Offer the notes behind the line if there are any. */
function showReasons() {
  const some = [...byId("reasons").children].some((paragraph) => !paragraph.hidden && paragraph.textContent);
  const notes = byId("notes").hidden ? 0 : byId("notes").children.length;
  byId("reasons-open").hidden = !some;
  byId("reasons-open").textContent = notes ? counted(notes, "note") : t("why?");
  byId("reasons").hidden = !some || byId("reasons-open").getAttribute("aria-expanded") !== "true";
}

async function listVideos(mine, signal) {
  const reply = await library.show(mine, { signal, onWait: sayBusy });
  if (signal.aborted) return;
  shown.data = reply.data;
  byId("cards").replaceChildren();
  const listed = reply.page_info?.total_results ?? shown.data.length;
  const total = reply.total ?? listed;
  if (!total) {
    showEmpty(t("Put videos in with `whenabouts index FOLDER --corpus DIR`, then reload this page."));
  } else {
    const titles = (reply.by_words ?? []).map((name) => term(reply.stream_titles[name])).join(` ${t("and")} `);
    head(listed < total ? t("Search {part} of {n} video|Search {part} of {n} videos", { part: listed, n: total }) : t("Search {n} video|Search {n} videos", { n: total }),
      titles ? t("{streams} are searched.", { streams: sentence(titles).slice(0, -1) }) : "");
  }
  const { choices = {} } = await statsOnce();
  if (signal.aborted) return;
  showNotes(Object.values(choices));
}

/** An empty corpus: how to fill it, here or in a terminal. */
async function showEmpty(otherwise) {
  const mine = shown;
  const { adds } = await statsOnce();
  if (mine !== shown) return;
  head(t("Nothing is in this corpus yet."), adds ? t("Choose a folder of the server; a plan shows first how long it takes.") : otherwise);
  byId("add-first").hidden = !adds;
}

async function more() {
  const token = shown?.page_info?.next_page_token;
  if (!token) return;
  const { signal } = pending;
  const first = links().length;
  const before = shown.data.length;
  byId("more").disabled = true;
  try {
    const reply = await ask("search", { ...listOf(state), page_token: token }, { signal, onWait: sayBusy });
    shown.data.push(...(reply.data ?? []));
    shown.page_info = reply.page_info;
    showCards();
    say(`${counted(shown.data.length - before, "more result")}.`);
    markOpen();
    (links()[first] ?? links().at(-1))?.focus();
  } catch (error) {
    if (error.name !== "AbortError") showFault(error, more);
  } finally {
    byId("more").disabled = false;
  }
}

// Showing

/** The answer, the line beside it, and the paragraph behind the line. */
function head(answer, beside = "", beneath = "") {
  byId("answer").textContent = answer;
  line(beside);
  byId("beneath").textContent = beneath;
  byId("fault").hidden = true;
  showReasons();
  if (!state.vs) say([answer, beside, beneath].filter(Boolean).join(" "));
}

function showWaiting() {
  byId("results").setAttribute("aria-busy", "true");
  byId("results").dataset.answer = "";
  byId("save-search").textContent = t("Save search");
  for (const id of ["fault", "rates", "checked", "notes", "tail", "more", "by-video", "save-search", "copy-search", "add-first", "understood", "spelling", "titled"]) byId(id).hidden = true;
  byId("answer").textContent = shown.isSearch ? t("Searching…") : "";
  byId("beneath").textContent = "";
  line("");
  showReasons();
  if (shown.isSearch) library.hide();
  else byId("compare").hidden = true;
  // Grey cards only if the answer takes long.
  clearTimeout(waitsUntilAnswer);
  const mine = shown;
  byId("cards").replaceChildren();
  waitsUntilAnswer = setTimeout(() => {
    if (mine === shown && byId("library").hidden && byId("results").hasAttribute("aria-busy")) byId("cards").replaceChildren(...waiting(4));
  }, 150);
}

function showAnswer() {
  const { answer, doubt, data } = shown;
  byId("results").dataset.answer = answer;
  const pool = shown.search_pool ?? {};
  const searched = Number.isFinite(pool.total_count)
    ? `${counted(pool.total_count, "video")}${pool.total_duration ? ` (${length(pool.total_duration)})` : ""}` : "";
  const looked = shown.searched ? sentence(term(shown.searched.text)) : "";
  const leftOut = Object.values(shown.searched?.not_searched ?? {}).some(Boolean);
  const coverage = coverageOf(shown.searched, searched, pool.total_count);
  const without = shown.searched?.nothing_to_find ?? 0;
  const videos = without && shown.searched.videos > without
    ? t("the {part} of {n} videos that could be searched", { part: shown.searched.videos - without, n: shown.searched.videos }) : searched;
  if (pool.total_count === 0) {
    showEmpty(t("Put videos in with `whenabouts index FOLDER --corpus DIR`, then search again."));
  } else if (shown.like && data.length) {
    const told = { match: t("The first is likely to show the same video."), no_match: t("None is likely to show the same video.") }[answer] ?? sentence(term(doubt));
    head([state.q.trim(), `${state.q.trim() ? t("like") : t("Like")} ${nameOfExample()}`].filter(Boolean).join(", "), told, looked);
  } else if (answer === "match" && shown.places) {
    head(t("Said in {n} place|Said in {n} places", { n: shown.places.total }), `${t("In order of time.")} ${coverage}`, looked);
  } else if (answer === "match") {
    head(sentence(term(shown.word)).slice(0, -1), coverage, looked);
  } else if (answer === "unsure") {
    head(t("Maybe"), `${sentence(term(doubt) || t("how sure it is has not been measured"))} ${coverage}`.trim(),
      `${leftOut || !searched ? t("These moments come closest.") : t("These moments come closest in {videos}.", { videos })} ${looked}`.trim());
  } else {
    const where = filtered(state) || narrowed() ? t("what the filters leave") : videos || t("this corpus");
    const titles = Object.keys(shown.searched?.streams ?? {}).map(streamName).join(` ${t("and")} `);
    head(leftOut && titles ? t("Nothing like it in the {streams}", { streams: titles }) : t("Nothing like it"), data.length
      ? t("Nothing in {where} is likely to be right. The closest moments:", { where })
      : t("Nothing was found in {where}.", { where }), looked);
  }
  const notes = (shown.notes ?? []).filter((note) => note !== doubt);
  showNotes(notes);
  const looks = [
    shown.check?.moments && t("Looked at twice: {how}.", { how: shown.check.line }),
    shown.rerank?.moments && t("Ordered anew: {how}.", { how: shown.rerank.line }),
    shown.rewrite && t("Also searched ({model}): {queries}.", { model: shown.rewrite.model, queries: shown.rewrite.queries.join("; ") }),
  ].filter(Boolean);
  byId("checked").hidden = !looks.length;
  byId("checked").textContent = looks.join(" ");
  byId("spelling").hidden = !shown.spelling;
  byId("spelling").textContent = shown.spelling && t("Did you mean “{query}”?", { query: shown.spelling });
  const titled = Object.entries(shown.titled ?? {});
  byId("titled").hidden = !titled.length;
  byId("titled").replaceChildren(t("In the title of:"), ...titled.flatMap(([v, title]) => [" ", make("a", { href: addressOf({ ...state, v, s: null, e: null }) }, title)]));
  byId("save-search").hidden = !state.q.trim() || Boolean(state.like || state.picture);
  byId("copy-search").hidden = Boolean(state.picture);
  showChips(byId("understood"), shown.understood ?? [], literalOf(state), (literal) => {
    wantsChip = [...byId("understood").querySelectorAll("button")].indexOf(document.activeElement);
    go({ literal: literal.join(","), v: "", s: null, e: null });
  });
  showReasons();
  showCards();
}

/** How many videos an answer covers: "3 of 8 videos searched". */
function coverageOf(coverage, all, total) {
  if (!coverage) return all && t("{videos} searched", { videos: all });
  const without = coverage.nothing_to_find ?? 0;
  const videos = total ?? coverage.videos;
  return without || videos > coverage.videos ? t("{part} of {n} video searched|{part} of {n} videos searched", { part: coverage.videos - without, n: videos })
    : t("{videos} searched", { videos: all || counted(coverage.videos, "video") });
}

/** Changes for a search by example: drops the words and options that examples do not support. */
const alike = (moment) => ({ q: "", like: moment, picture: "", model: "", min: "", all: "", vs: null, v: "", s: null, e: null });

const nameOfExample = () => (state.picture ? pictures.get(state.picture)?.name ?? t("the picture") : shown.like);

/** Whether the question itself names the videos to search. */
const narrowed = () => (shown.understood ?? []).some(({ name }) => ["in", "outside", "recorded"].includes(name));

const filtered = (of) => of.in || FILTERS.some((name) => !["all", ...Object.keys(LOOKS)].includes(name) && of[name]);

/** Likely results are shown; unlikely ones need another click. */
function showCards() {
  const { answer, data } = shown;
  const isTail = (result, row) => {
    if (answer === "no_match") return row >= CLOSEST;
    return answer === "match" && result.word === "unlikely";
  };
  const hrefOf = (result) => addressOf({ ...state, vs: null, v: result.video_id, s: result.start, e: result.end });
  const linkTo = (row) => ({ ...data[row], title: data[row].title || data[row].video_id, key: keyOf(data[row]), href: hrefOf(data[row]) });
  const rows = folded(data, state.by === "video");
  const cards = rows.map(({ row, doubles, others }, place) => momentCard(data[row], {
    query: shown.words || state.q, relation: shown.understood?.find(({ name }) => name === "after" || name === "before")?.name, isPlace: Boolean(shown.places || shown.like), dim: answer === "no_match" || data[row].word === "unlikely",
    place: place + 1, doubles: doubles.map(linkTo), others: others.map(linkTo), href: hrefOf(data[row]),
    likeHref: addressOf({ ...state, ...alike(keyOf(data[row])) }),
  }));
  const tail = rows.map(({ row }) => isTail(data[row], row));
  byId("by-video").hidden = new Set(data.map((result) => result.video_id)).size === data.length && state.by !== "video";
  byId("by-video").setAttribute("aria-pressed", String(state.by === "video"));
  byId("cards").replaceChildren(...cards.filter((_, place) => !tail[place]));
  byId("tail-cards").replaceChildren(...cards.filter((_, place) => tail[place]));
  const behind = tail.filter(Boolean).length;
  byId("tail").hidden = behind === 0;
  const total = shown.page_info.total_results - data.length + behind;
  byId("tail-label").textContent = t("{n} more that are hardly ever right", { n: total });
  list(data.filter((result) => result.thumbnail_url).map((result) => result.video_id));
  showMore();
}

/** Later pages of hidden results are hidden too. */
function showMore() {
  const closed = !byId("tail").hidden && !byId("tail").open;
  byId("more").hidden = closed || !shown.page_info?.next_page_token;
  markOpen();
}

function showFault(fault, again = search) {
  if (fault.field === "within") fault = new Fault(fault.status, t("No video here is called “{name}”. Choose one of the list, or clear the filter.", { name: state.within }));
  byId("results").dataset.answer = "fault";
  if (again === search) {
    byId("cards").replaceChildren();
    line("");
    byId("answer").textContent = headingOf(fault);
    byId("beneath").textContent = "";
  }
  const isStale = fault.code === "invalid_page_token";
  byId("fault").replaceChildren(...faultParts(fault, {
    [isStale ? t("Search again") : t("Try again")]: isStale ? search : () => { byId("fault").hidden = true; return again(); },
    [t("Search what is left")]: fault.code === "model_missing" && state.stream ? () => go({ stream: "" }) : null,
    [t("Clear filters")]: fault.status === 404 && filtered(state) ? () => byId("filters-clear").click() : null,
  }));
  byId("fault").hidden = false;
}

let countdown = 0;
function sayBusy(seconds, why) {
  const until = Date.now() + seconds * 1000;
  clearInterval(countdown);
  const tell = () => {
    const left = Math.ceil((until - Date.now()) / 1000);
    if (left <= 0 || !byId("results").hasAttribute("aria-busy")) clearInterval(countdown);
    else line(`${why} ${t("Trying again in {seconds} s.", { seconds: left })}`);
  };
  tell();
  say(`${why} ${t("Trying again in {n} second.|Trying again in {n} seconds.", { n: seconds })}`);
  countdown = setInterval(tell, 250);
}

function say(text) {
  byId("live").textContent = text;
}

function fillForm() {
  byId("query").value = state.q;
  for (const name of FILTERS) byId(name).value = state[name] || (name === "min" ? "0" : "");
  for (const name of ["stream", "model", ...Object.keys(LOOKS)]) {
    if (!state[name] || byId(name).value === state[name]) continue;
    byId(name).append(make("option", { value: state[name] }, LOOKS[name] ? t("yes") : streamName(state[name])));
    byId(name).value = state[name];
  }
  if (state.where) byId("who").hidden = false;
  showScope(byId("scope"), state, go);
  showMin();
  showExample();
  const on = FILTERS.filter((name) => state[name]).length;
  byId("filters-on").textContent = on ? String(on) : "";
}

function showExample() {
  const chosen = pictures.get(state.picture);
  byId("example").hidden = !(state.like || state.picture);
  byId("example-image").hidden = !chosen;
  if (chosen) byId("example-image").src = chosen.address;
  byId("example-name").textContent = `${t("like")} ${chosen?.name ?? (state.like || t("a picture"))}`;
}

async function searchByPicture(file) {
  if (!file) return;
  try {
    const example = await exampleOf(file);
    pictures.set(example.key, example);
    go({ ...alike(""), q: byId("query").value.trim(), picture: example.key });
  } catch (error) {
    showFault(error, () => byId("picture").click());
  }
}

function searchByFile(given) {
  const file = pictureIn(given);
  if (file) void searchByPicture(file);
  else if (given.files.length) showFault(new Error(t("{name} is no picture. Take a JPEG, PNG or WebP.", { name: given.files[0].name })), () => byId("picture").click());
}

function listenToPictures() {
  byId("picture").addEventListener("change", () => {
    searchByFile(byId("picture"));
    byId("picture").value = "";
  });
  byId("spelling").addEventListener("click", () => {
    wantsFocus = true;
    go({ q: shown.spelling, v: "", s: null, e: null });
  });
  byId("example-out").addEventListener("click", () => go({ like: "", picture: "", v: "", s: null, e: null }));
  document.addEventListener("paste", (event) => void searchByPicture(pictureIn(event.clipboardData)));
  document.addEventListener("dragover", (event) => {
    if ([...event.dataTransfer.types].includes("Files")) event.preventDefault();
  });
  document.addEventListener("drop", (event) => {
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    searchByFile(event.dataTransfer);
  });
}

function showMin() {
  const least = Number(byId("min").value);
  byId("min-shown").textContent = least ? `${least} %` : t("any");
}

// Results: which is open, and going from one to the next

const CLIPS = "#collections .clip-link";
const links = () => [...document.querySelectorAll(state.c ? CLIPS : "#results .card-link:not(.double)")].filter((link) => link.offsetParent !== null || isWatchingNarrow());
const isWatchingNarrow = () => document.body.classList.contains("watching") && byId("results").offsetParent === null;

function linkOf(id, start) {
  const all = [...document.querySelectorAll("#results .card-link")];
  const result = resultOf({ v: id, s: start, e: state.e ?? (start ?? 0) + 1 });
  return all.find((link) => link.dataset.key === (result ? keyOf(result) : id)) ?? all.find((link) => link.dataset.key.startsWith(`${id}@${(start ?? 0).toFixed(3)}`));
}

function openKey() {
  if (!state.v) return null;
  if (state.c) {
    const isOpen = (item) => state.s !== null && keyOf(item) === keyOf({ video_id: state.v, start: state.s, end: state.e });
    return state.i ?? collections?.open?.items.find(isOpen)?.id ?? null;
  }
  const result = resultOf(state);
  return result ? keyOf(result) : state.v;
}

function markOpen() {
  const key = openKey();
  for (const link of document.querySelectorAll(`#results .card-link, ${CLIPS}`)) {
    if (link.dataset.key === key) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  const all = links();
  const at = all.findIndex((link) => link.dataset.key === key);
  byId("previous").disabled = at === 0 || all.length === 0;
  byId("next").disabled = all.length === 0 || at === all.length - 1;
}

/** The next or previous result: opened if the player is open, else focused. */
function step(by) {
  const all = links();
  if (!all.length) return;
  const now = player.isOpen
    ? all.findIndex((link) => link.dataset.key === openKey())
    : all.indexOf(document.activeElement?.closest?.(".card-link, .clip-link"));
  const to = now < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, now + by));
  const link = all[to];
  if (player.isOpen && to !== now) openLink(link, { replace: false });
  if (link.offsetParent !== null) link.focus();
  link.scrollIntoView({ block: "nearest" });
}

function openLink(link, options) {
  const given = new URL(link.href).searchParams;
  const seconds = (name) => (given.has(name) ? Number(given.get(name)) : null);
  go({ v: given.get("v"), s: seconds("s"), e: seconds("e"), i: link.dataset.key, model: given.get("model") ?? "" }, options);
}

// Wiring

function submit(event) {
  event?.preventDefault();
  const changes = { q: byId("query").value.trim(), v: "", s: null, e: null, c: "", a: "" };
  for (const name of FILTERS) changes[name] = byId(name).value.trim();
  if (changes.min === "0") changes.min = "";
  if (changes.where && !changes.where.includes("=")) {
    const isNamed = ({ label }) => label.toLowerCase() === changes.where.toLowerCase();
    changes.where = [...byId("people").options].find(isNamed)?.value ?? `speaker=${changes.where}`;
  }
  // The list shows titles, so one may be typed instead of an id.
  changes.within = [...byId("videos").options].find(({ label }) => label === changes.within)?.value ?? changes.within;
  if (!changes.q) changes.vs = null;
  if (changes.q !== state.q) changes.literal = "";
  past.close();
  const same = questionOf({ ...state, ...changes }) === shown?.question;
  // Enter leads to the results, where keys move on.
  wantsFocus = Boolean(event) && document.activeElement === byId("query");
  go(changes);
  if (wantsFocus && same) links()[0]?.focus();
  if (same && byId("results").dataset.answer === "fault") void search();
}

function clickLink(event) {
  const link = event.target.closest?.("a.card-link, a.like-link, .lost a");
  if (!link || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  if (link.matches(".like-link")) go(alike(new URL(link.href).searchParams.get("like")));
  else openLink(link);
}

function closeTop() {
  const menu = document.querySelector("details.menu[open]");
  if (menu) {
    menu.open = false;
    menu.querySelector("summary").focus();
  } else if (!byId("why-panel").hidden && player.isOpen) {
    byId("why-panel").hidden = true;
    byId("why").focus();
  } else if (player.isOpen) {
    go({ v: "", s: null, e: null });
  } else if (state.vs) {
    go({ vs: null });
  } else {
    return false;
  }
  return true;
}

function groupByVideo() {
  go({ by: state.by ? "" : "video" }, { replace: true, quiet: true });
  showCards();
  markOpen();
}

const KEYS = {
  "/": () => { byId("query").focus(); byId("query").select(); },
  "?": () => byId("keys").showModal(),
  c: copyThis,
  u: () => byId("understood").hidden ? false : byId("understood").querySelector("button").focus(),
  j: () => step(1),
  k: () => step(-1),
  g: () => byId("by-video").hidden ? false : groupByVideo(),
  t: toggleCodes,
  Escape: closeTop,
};
const PLAYER_KEYS = {
  " ": () => player.toggle(),
  l: () => player.toggleLoop(),
  i: () => player.mark("start"),
  o: () => player.mark("end"),
  "[": () => player.mark("start"),
  "]": () => player.mark("end"),
  ",": () => player.frame(-1),
  ".": () => player.frame(1),
  "<": () => player.faster(-1),
  ">": () => player.faster(1),
  p: () => player.chapter(-1),
  n: () => player.chapter(1),
  f: () => byId("cues").hidden ? false : byId("cue-find").focus(),
  b: () => may("collect") ? void player.collect() : false,
  x: () => void player.cut(),
  w: () => void player.why(),
  e: () => { byId("export").open = true; byId("export").querySelector("summary").focus(); },
};

function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || document.querySelector("dialog[open]")) return;
  const at = event.target;
  const types = at.matches?.("input:not([type=range], [type=radio]), select, textarea");
  if (event.key === "Escape" && at === byId("query")) { past.close(); return; }
  if (event.key === "ArrowDown" && at === byId("query") && !at.value && past.open({ focus: true })) { event.preventDefault(); return; }
  if (event.key === "ArrowDown" && at === byId("query") && links().length) {
    event.preventDefault();
    links()[0].focus();
    return;
  }
  if (types && event.key !== "Escape") return;
  if (event.key === " " && at.matches?.("button, summary, input")) return;
  if (event.key === " " && !player.isOpen && at.matches?.(".card-link")) {
    event.preventDefault();
    toggleLook(at);
    return;
  }
  const inList = at === document.body || byId("results").contains(at);
  const arrows = inList ? { ArrowDown: KEYS.j, ArrowUp: KEYS.k } : {};
  const act = KEYS[event.key] ?? arrows[event.key] ?? (player.isOpen ? PLAYER_KEYS[event.key] : undefined);
  if (!act || act() === false) return;
  event.preventDefault();
}

async function fillFilters() {
  // Optional: without these the fields can still be typed into.
  try {
    const [videos, stats, people] = await Promise.all([ask("videos", { page_limit: 50 }), statsOnce(), ask("people")]);
    byId("people").replaceChildren(...people.data.map(({ name, where }) => make("option", { value: where, label: name })));
    byId("who").hidden = !people.data.length && !state.where;
    byId("videos").replaceChildren(...videos.data.map((video) =>
      make("option", { value: video.video_id }, video.title || video.video_id)));
    const searched = Object.keys(stats.streams).filter((name) => !stats.streams[name].narrows_by);
    const choices = { stream: searched, model: stats.models };
    for (const [id, names] of Object.entries(choices)) {
      byId(id).append(...names.filter((name) => name !== state[id]).map((name) => make("option", { value: name }, streamName(name))));
    }
    byId("models").hidden = !stats.models.length;
    for (const [name, role] of Object.entries(LOOKS)) {
      if (stats[role] && !state[name]) byId(name).append(make("option", { value: "true" }, stats[role]));
      byId(`${name}s`).hidden = !stats[role];
    }
  } catch { /* the search itself shows the error */ }
}

function listen() {
  byId("ask").addEventListener("submit", submit);
  byId("filters").addEventListener("toggle", () => byId("filters").open && !byId("videos").options.length && void fillFilters());
  byId("filters-clear").addEventListener("click", () => {
    for (const name of FILTERS) byId(name).value = name === "min" ? "0" : "";
    submit();
  });
  for (const name of FILTERS) byId(name).addEventListener("change", () => submit());
  byId("min").addEventListener("input", showMin);
  byId("more").addEventListener("click", () => void more());
  byId("tail").addEventListener("toggle", showMore);
  byId("compare").addEventListener("click", () => void openComparison());
  byId("by-video").addEventListener("click", groupByVideo);
  byId("save-search").addEventListener("click", () => void saveThis());
  byId("copy-search").addEventListener("click", () => void copy(addressOf({ ...state, v: "", s: null, e: null }), byId("copy-search")));
  byId("to-collections").addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    go({ c: "all", a: "", v: "", s: null, e: null });
  });
  for (const id of ["to-adding", "add-first"]) {
    byId(id).addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      go({ a: "all", c: "", v: "", s: null, e: null });
    });
  }
  byId("remove").addEventListener("click", () => void removeOpen());
  byId("reasons-open").addEventListener("click", () => {
    const isOpen = byId("reasons-open").getAttribute("aria-expanded") === "true";
    byId("reasons-open").setAttribute("aria-expanded", String(!isOpen));
    showReasons();
  });
  previewOn(byId("results"));
  byId("close").addEventListener("click", () => go({ v: "", s: null, e: null }));
  byId("previous").addEventListener("click", () => step(-1));
  byId("next").addEventListener("click", () => step(1));
  offerLanguages(byId("language"));
  byId("keys-open").addEventListener("click", () => byId("keys").showModal());
  document.addEventListener("click", clickLink);
  document.addEventListener("click", (event) => {
    const menu = document.querySelector("details.menu[open]");
    if (menu && !menu.contains(event.target)) menu.open = false;
  });
  document.addEventListener("keydown", key);
  listenToPictures();
  window.addEventListener("popstate", () => void follow(readAddress()));
  const network = () => { byId("offline").hidden = navigator.onLine !== false; };
  window.addEventListener("online", network);
  window.addEventListener("offline", network);
  network();
}

listen();
void learnAccess();
if (!["q", "like", "v", "c", "a"].some((name) => readAddress()[name])) byId("query").focus({ preventScroll: true });
void follow(readAddress(), { focus: false }).then(offerAdding);
