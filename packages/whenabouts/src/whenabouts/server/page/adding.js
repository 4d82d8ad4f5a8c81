// Adding videos: choose allowed folders, plan, index and watch them; the job queue; removing a video.

import { language, number, t, term } from "./language.js";
import { ask, sent } from "./server.js";
import { styled } from "./styles.js";
import { barOf, changesOf, failedOf, linesOf, paceOf, showWatched } from "./watched.js";
import { counted, length, make, sentence } from "./words.js";

const byId = (id) => document.getElementById(id);
const [SOON, WATCHED, LATER] = [1_000, 2_000, 5_000];
const MOVING = new Set(["planning", "waiting", "running"]);
const STATES = {
  planning: t("Looking at the files…"), planned: t("Planned; nothing is indexed yet"), waiting: t("Waits for its turn"), running: t("Runs"),
  paused: t("Paused"), stopped: t("Stopped; what was finished is kept"), interrupted: t("Interrupted"), failed: t("Failed"), done: t("Done"),
};
const WISHES = { pause: t("Pausing: finishing what it is at…"), stop: t("Stopping: finishing what it is at…") };
const BUTTONS = { start: t("Start"), pause: t("Pause"), continue: t("Go on"), stop: t("Stop") };
const OFFERED = {
  planning: ["stop"], planned: ["start"], waiting: ["pause", "stop"], running: ["pause", "stop"], paused: ["continue", "stop"],
  interrupted: ["continue", "stop"], failed: ["continue"], stopped: [], done: [],
};

/** 1234567 -> "1.2 MB". */
export function size(bytes) {
  const units = [t("bytes"), "kB", "MB", "GB", "TB"];
  let place = 0;
  while (bytes >= 999.5 && place < units.length - 1) {
    bytes /= 1000;
    place += 1;
  }
  return `${number(bytes, place && bytes < 10 ? 1 : 0)} ${units[place]}`;
}

/** Remove a video from the corpus; resolves when its job is done, throws Fault if it fails. */
export async function removeVideo(id) {
  let job = await sent("POST", "jobs/remove", { videos: [id] });
  while (MOVING.has(job.state)) {
    await new Promise((resolve) => { setTimeout(resolve, 500); });
    job = await ask(`jobs/${job.id}`);
  }
  if (job.state !== "done") throw new Error(job.message || STATES[job.state]);
}

export class Adding {
  /** `hooks`: go(changes), linkTo(state), say(text), changed(). */
  constructor(hooks) {
    this.hooks = hooks;
    this.root = byId("adding");
    void styled("adding");
  }

  /** The page with a folder open: "all" is the list of allowed folders, or the only one. */
  async show(place) {
    if (!this.root.childElementCount) this.#draw();
    this.place = place;
    await Promise.all([this.#folder(), this.timer === undefined ? this.#poll() : null]);
  }

  leave() {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.root.replaceChildren();
  }

  #draw() {
    this.cards = new Map();
    this.states = new Map();
    this.root.replaceChildren(
      make("h1", { class: "answer", tabindex: -1, id: "adding-title" }, t("Add videos")),
      make("p", { class: "message bad", role: "alert", id: "adding-trouble" }),
      make("div", { class: "adding-parts" },
        make("section", { class: "adding-part", "aria-labelledby": "folder-title" },
          make("h2", { id: "folder-title" }, t("From folders of the server")),
          make("nav", { class: "crumbs", id: "crumbs", "aria-label": t("Folder") }),
          make("label", { class: "switch", id: "watch-line", hidden: true },
            make("input", { type: "checkbox", role: "switch", id: "watch", change: () => void this.#watch(this.open.place, byId("watch").checked) }),
            t("Watch this folder: what is new, changed, moved or deleted follows by itself")),
          make("ul", { class: "entries", id: "entries", "aria-label": t("Folders and files"), change: () => this.#count() }),
          make("p", { class: "quiet", id: "entries-note" }),
          make("div", { class: "filter-fields", id: "offer" }),
          make("p", {}, make("button", { type: "button", class: "strong", id: "plan", disabled: true, click: () => void this.#plan() }, t("Plan"))),
          make("p", { class: "message", role: "status", id: "folder-message" })),
        make("section", { class: "adding-part", "aria-labelledby": "jobs-title" },
          make("h2", { id: "jobs-title" }, t("Jobs")),
          make("p", { class: "quiet", id: "jobs-none" }, t("None yet. A plan shows first what a job would do, and how long it takes.")),
          make("ol", { class: "jobs", id: "jobs" }),
          make("h2", { id: "watched-title", hidden: true }, t("Watched folders")),
          make("ul", { class: "jobs", id: "watched" }),
          make("details", { id: "failures", hidden: true }, make("summary", { id: "failures-label" }), make("ul", { class: "failed", id: "failed" }),
            make("button", { type: "button", click: () => void this.#retry() }, t("Try them again"))))),
    );
    void this.#offer();
    void this.#failures();
  }

  // Folders

  async #folder() {
    const wanted = this.place;
    const message = byId("folder-message");
    try {
      let open = await ask("folders", { place: wanted === "all" ? "" : wanted });
      if (wanted === "all" && open.data.length === 1) open = await ask("folders", { place: open.data[0].place });
      if (wanted !== this.place) return;
      this.open = open;
      message.textContent = "";
    } catch (error) {
      if (wanted !== this.place) return;
      message.textContent = error.message;
      this.open = { place: "", data: [], left_out: 0, watched: false };
    }
    if (!message.isConnected) return;
    this.#crumbs();
    const { place, data, left_out: left, watched } = this.open;
    byId("watch-line").hidden = !place;
    byId("watch").checked = watched;
    byId("entries").replaceChildren(...data.map((entry) => this.#entry(entry)));
    byId("entries-note").textContent = left ? t("{n} more are not listed; the whole folder takes them, too.", { n: left })
      : data.length ? "" : t("There are no videos, sound files or transcripts here.");
    this.#count();
  }

  #crumbs() {
    const parts = this.open.place ? this.open.place.split("/") : [];
    const links = parts.map((name, at) => [name, parts.slice(0, at + 1).join("/")]);
    byId("crumbs").replaceChildren(...[[t("Allowed folders"), "all"], ...links].flatMap(([name, a], at) => [
      at ? make("span", { "aria-hidden": "true" }, "›") : null,
      at === links.length ? make("span", { "aria-current": "page" }, name) : this.#link(a, name),
    ].filter(Boolean)));
  }

  #link(a, name) {
    return make("a", { href: this.hooks.linkTo({ a }), click: (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      this.hooks.go({ a });
    } }, name);
  }

  #entry({ name, place, kind, bytes }) {
    if (kind === "outside") return make("li", { class: "entry quiet" }, name, make("span", {}, t("a link that leads outside; not allowed")));
    const box = make("input", { type: "checkbox", value: place, "aria-label": t("Choose {name}", { name }) });
    return kind === "folder"
      ? make("li", { class: "entry" }, make("label", { class: "tick" }, box), this.#link(place, `${name}/`))
      : make("li", { class: "entry" }, make("label", { class: "tick wide" }, box, name), make("span", { class: "quiet" }, size(bytes)));
  }

  #chosen() {
    return [...byId("entries").querySelectorAll("input:checked")].map((box) => box.value);
  }

  #count() {
    const chosen = this.#chosen().length;
    byId("plan").disabled = !chosen && !this.open.place;
    byId("plan").textContent = chosen ? t("Plan what is chosen ({n})", { n: chosen }) : this.open.place ? t("Plan this whole folder") : t("Choose a folder");
  }

  async #offer() {
    try {
      const offer = await ask("jobs/offer");
      const field = (id, text, models) => models.length ? make("label", {}, text,
        make("select", { id }, make("option", { value: "" }, t("no")), ...models.map(({ name, purpose }) => make("option", { value: name }, `${name}: ${purpose}`)))) : null;
      byId("offer").replaceChildren(...[
        field("transcribe", t("Recognise speech where there are no subtitles"), offer.transcribe), field("pictures", t("Search what pictures show"), offer.pictures),
      ].filter(Boolean));
      this.free = offer.free_bytes;
    } catch { /* without it, jobs do as the corpus does already */ }
  }

  async #plan() {
    const chosen = this.#chosen();
    const body = { places: chosen.length ? chosen : [this.open.place] };
    for (const id of ["transcribe", "pictures"]) if (byId(id)?.value) body[id] = byId(id).value;
    byId("plan").disabled = true;
    const job = await this.#do(() => sent("POST", "jobs", body));
    if (byId("plan")) this.#count();
    if (job) this.cards.get(job.id)?.card.scrollIntoView({ block: "nearest" });
  }

  async #watch(place, watched) {
    const done = await this.#do(() => sent("POST", "watched", { place, watched }));
    if (place === this.open.place && byId("watch")) byId("watch").checked = done ? watched : !watched;
  }

  // The queue

  #retry() {
    return this.#do(() => sent("POST", "jobs/retry"));
  }

  /** Change something, then refresh the queue. Returns the answer, or undefined after showing the error. */
  async #do(work) {
    let done;
    try {
      done = await work();
      byId("folder-message")?.replaceChildren();
    } catch (error) {
      byId("folder-message")?.replaceChildren(error.message);
      this.hooks.say(error.message);
    }
    await this.#poll();
    return done;
  }

  /** A job's button may be pressed again when the answer is there. */
  async #press({ currentTarget: button }, method, job, body) {
    button.disabled = true;
    await this.#do(() => sent(method, `jobs/${job.id}`, body));
    button.disabled = false;
  }

  async #poll() {
    clearTimeout(this.timer);
    const round = (this.round = (this.round ?? 0) + 1);
    let wait = LATER;
    try {
      const queue = await ask("jobs");
      if (round !== this.round || !byId("jobs")) return;
      this.#queue(queue);
      byId("adding-trouble").textContent = queue.trouble;
      if (queue.watched.length) wait = WATCHED;
      if (queue.data.some((job) => MOVING.has(job.state)) || queue.watched.some(({ progress }) => progress.total)) wait = SOON;
    } catch (error) {
      if (round !== this.round || !byId("jobs")) return;
      byId("adding-trouble").textContent = error.message;
    }
    this.timer = setTimeout(() => void (document.hidden ? this.#later() : this.#poll()), wait);
  }

  /** Nobody is looking: poll again when somebody is. */
  #later() {
    document.addEventListener("visibilitychange", () => byId("jobs") && void this.#poll(), { once: true });
  }

  #queue({ data, watched }) {
    byId("jobs-none").hidden = data.length > 0;
    const kept = new Map();
    for (const job of data) {
      const text = JSON.stringify(job);
      const known = this.cards.get(job.id);
      kept.set(job.id, known?.text === text ? known : { text, card: this.#card(job, known?.card) });
    }
    for (const [id, { card }] of this.cards) if (!kept.has(id)) card.remove();
    this.cards = kept;
    const cards = [...kept.values()].map(({ card }) => card);
    cards.forEach((card, at) => { if (byId("jobs").children[at] !== card) byId("jobs").insertBefore(card, byId("jobs").children[at] ?? null); });
    this.#tell(data);
    this.#watched(watched);
  }

  /** Report finished jobs, and reload the lists of videos. */
  #tell(data) {
    for (const job of data) {
      const before = this.states.get(job.id);
      this.states.set(job.id, job.state);
      if (before === undefined || before === job.state) continue;
      this.hooks.say(`${titleOf(job)}: ${STATES[job.state]}. ${job.message}`);
      if (!MOVING.has(job.state) && job.state !== "planned") {
        this.hooks.changed();
        void this.#failures();
      }
    }
  }

  /** Replace a card; the focus stays on the button that had it. */
  #card(job, before) {
    const focused = before?.contains(document.activeElement) ? document.activeElement.dataset.do : undefined;
    const wish = (what, text) => make("button", { type: "button", "data-do": what, class: what === "start" ? "strong" : null, disabled: Boolean(job.wish),
      click: (event) => void this.#press(event, "POST", job, { do: what }) }, text);
    const buttons = OFFERED[job.state].map((what) => wish(what, BUTTONS[what]));
    if (!["waiting", "running", "planning"].includes(job.state)) {
      buttons.push(make("button", { type: "button", "data-do": "forget", click: (event) => void this.#press(event, "DELETE", job) },
        job.state === "planned" ? t("Drop it") : t("Off the list")));
    }
    const again = job.failed.some((each) => each.again);
    if (again) buttons.unshift(make("button", { type: "button", "data-do": "retry", click: () => void this.#retry() }, t("Try failed files again")));
    const card = make("li", { class: `job ${job.state}`, "data-id": job.id },
      make("h3", {}, titleOf(job)),
      make("p", { class: "job-state" }, WISHES[job.wish] ?? STATES[job.state]),
      job.message ? make("p", { class: "bad" }, sentence(job.message)) : null,
      job.state === "running" && Object.keys(job.progress).length ? progressOf(job.progress) : null,
      job.state === "planned" ? this.#planOf(job.plan) : null,
      job.state === "done" ? make("p", { class: "quiet" }, outcomeOf(job)) : null,
      job.failed.length ? failedOf(job.failed, job.outcome.failed_in_all) : null,
      buttons.length ? make("div", { class: "actions" }, ...buttons) : null);
    before?.replaceWith(card);
    if (focused) (card.querySelector(`[data-do="${focused}"]`) ?? card.querySelector("button"))?.focus();
    return card;
  }

  #planOf(plan) {
    const rows = [
      [t("Files"), [t("{n} to index of {all}", { n: plan.new, all: plan.files }), plan.unchanged && t("{n} unchanged", { n: plan.unchanged }), plan.failed_before && t("{n} failed before", { n: plan.failed_before }),
        plan.removed_before && t("{n} were removed and stay out", { n: plan.removed_before }), plan.renamed && t("{n} renamed", { n: plan.renamed }),
        plan.described && t("{n} with new metadata", { n: plan.described }), plan.copies && t("{n} copy of another|{n} copies of others", { n: plan.copies })].filter(Boolean).join(", ")],
      [t("Recordings"), plan.hours >= 1 ? `${number(plan.hours, 1)} h` : length(plan.hours * 3600)],
      [t("Time"), t("about {much}", { much: length(Math.max(1, plan.estimated_seconds)) })],
      [t("Disk"), [t("about {much}", { much: size(plan.estimated_bytes) }), this.free ? t("of {free} that are free", { free: size(this.free) }) : ""].join(" ").trim()],
      [t("Searched"), plan.streams.map((title) => term(title)).join(", ") || t("nothing")],
    ];
    const missing = plan.missing.map(({ adds, command }) => make("li", {}, `${t("{what}: not searched, the model is not here.", { what: sentence(term(adds)).slice(0, -1) })} `, make("code", {}, command)));
    const more = [...plan.problems, ...plan.notes];
    return make("div", { class: "plan" },
      make("dl", {}, ...rows.map(([name, text]) => make("div", {}, make("dt", {}, name), make("dd", {}, text)))),
      missing.length ? make("ul", { class: "lacks" }, ...missing) : null,
      more.length ? make("details", {}, make("summary", {}, counted(more.length, "note")), make("ul", { class: "failed" }, ...more.map((text) => make("li", {}, text)))) : null);
  }

  #watched(watched) {
    byId("watched-title").hidden = !watched.length;
    if (JSON.stringify(watched) === this.watchedText) return;
    this.watchedText = JSON.stringify(watched);
    showWatched(byId("watched"), watched, {
      end: (place) => void this.#watch(place, false), retry: () => void this.#retry(),
    });
    const ends = JSON.stringify(watched.map(({ last }) => last.at));
    if (this.watchedEnds !== undefined && this.watchedEnds !== ends) {
      this.hooks.changed();
      void this.#failures();
    }
    this.watchedEnds = ends;
  }

  async #failures() {
    try {
      const { data, total } = await ask("jobs/failed");
      if (!byId("failures")) return;
      byId("failures").hidden = !total;
      byId("failures-label").textContent = t("{n} file of the corpus could not be read|{n} files of the corpus could not be read", { n: total });
      byId("failed").replaceChildren(...linesOf(data));
    } catch { /* the queue says what is wrong */ }
  }
}

function titleOf({ kind, places, videos }) {
  if (kind === "remove") return t("Remove {n} video|Remove {n} videos", { n: videos.length });
  if (kind === "retry") return t("Try failed files again");
  return places.length > 3 ? t("Index {places} and {n} more", { places: places.slice(0, 2).join(", "), n: places.length - 2 }) : t("Index {places}", { places: places.join(", ") });
}

function progressOf(progress) {
  const { files_done: done, files_total: total, name, step } = progress;
  const files = step || (total ? t("{part} of {n} file|{part} of {n} files", { part: done, n: total }) : "");
  const line = [files, ...paceOf(progress), name].filter(Boolean).join(" · ");
  return make("div", { class: "progress" }, barOf(progress, t("How far it is")), make("p", { class: "quiet" }, line));
}

function outcomeOf({ kind, outcome }) {
  if (kind === "remove") return t("{n} video removed; the files stay.|{n} videos removed; the files stay.", { n: (outcome.removed ?? []).length });
  return [t("{what} in {time}.", { what: sentence(changesOf(outcome)).slice(0, -1), time: length(Math.max(1, outcome.seconds ?? 1)) }),
    outcome.damaged ? t("{n} damaged, taken as far as they can be read.", { n: outcome.damaged }) : ""].join(" ").trim();
}
