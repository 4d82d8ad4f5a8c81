// The page of `whenabouts judge`: one moment after the other, graded with a key.

import { GuidelineDialog } from "./guideline.js";
import { language, learn, offerLanguages, t } from "./language.js";
import { shortOf } from "./markdown.js";
import { MomentView } from "./moment.js";
import { invites, showAgreement, showDisputed } from "./lead.js";
import { keep, kept, newId, Sender } from "./sender.js";
import { Fault, fetched } from "./server.js";
import { make } from "./words.js";

if (language !== "en") await import(`./judge.${language}.js`).then(learn, () => { /* then it is English */ });

const byId = (id) => document.getElementById(id);
const WORDS = {
  4: t("A perfect answer"), 3: t("Good, with one small fault"), 2: t("A part of it"), 1: t("Something of it, not the main thing"), 0: t("Nothing of it"),
};
// A key that was still meant for the moment before does not grade the next one.
const SETTLE_MILLISECONDS = 250;
const STEP_SECONDS = 0.1;
const LOOK_MILLISECONDS = 15_000;

class Page {
  constructor(me) {
    this.me = me;
    this.busy = false;
    this.task = null;
    this.waiting = null;
    this.view = new MomentView({
      unplayable: (text) => this.#unplayable(text),
      preparing: (text) => { byId("message").textContent = text; },
      moved: (borders) => this.#keepBorders(borders),
    });
    this.guideline = new GuidelineDialog(me, (meanings) => this.#grades(meanings));
    const key = `whenabouts-judge ${me.fingerprint} ${me.annotator}`;
    this.bordersKey = `${key} borders`;
    this.sender = new Sender(key, { waiting: (text) => tell("offline", text) });
    byId("set-name").textContent = me.name;
    byId("who").textContent = me.annotator ?? t("who leads");
    this.#grades({});
    this.#listen();
  }

  async start() {
    await this.guideline.load();
    if (this.me.annotator === null) {
      await this.#lead();
      setInterval(() => this.#lead().catch(() => { /* the next look may do */ }), LOOK_MILLISECONDS);
      return;
    }
    const { kept } = this.sender;
    if (kept) await this.#do(() => this.sender.send(kept.path, kept.body));
    if (!this.task && byId("done").hidden) await this.next();
    this.guideline.openOnce();
  }

  // What comes next

  next(skipped = false) {
    const parameters = new URLSearchParams({ annotator: this.me.annotator, ...(skipped && { skipped }) });
    return this.#do(async () => (await fetched(`api/task?${parameters}`)).json());
  }

  grade(grade) {
    const { task } = this;
    if (!this.#canGrade || performance.now() - this.since < SETTLE_MILLISECONDS) return;
    say(t("Graded {grade}.", { grade }));
    const borders = task.is_exam ? {} : this.view.moved;
    this.#send("answers", { task_id: task.task_id, grade, ...borders });
  }

  skip() {
    if (this.task && !byId("skip").hidden) this.#send("skips", { task_id: this.task.task_id });
  }

  undo() {
    if (!this.waiting && this.me.annotator !== null) this.#send("undo", {});
  }

  #send(path, what) {
    return this.#do(() => this.sender.send(path, { annotator: this.me.annotator, id: newId(), ...what }));
  }

  /** One request at a time; what it answers is shown. */
  async #do(ask) {
    if (this.busy) return;
    this.#setBusy(true);
    tell("fault", null);
    byId("message").textContent = "";
    try {
      this.#answered(await ask());
    } catch (fault) {
      if (!(fault instanceof Fault)) throw fault;
      this.#refused(fault);
    } finally {
      this.#setBusy(false);
    }
  }

  #setBusy(busy) {
    this.busy = busy;
    byId("judging").setAttribute("aria-busy", String(busy));
    this.#enable();
  }

  get #canGrade() {
    return this.task !== null && !this.busy && this.waiting === null && !this.unseen;
  }

  #enable() {
    for (const button of byId("grades").querySelectorAll("button")) button.disabled = !this.#canGrade;
  }

  #refused(fault) {
    if (["nothing_to_undo", "in_exam", "invalid"].includes(fault.code)) {
      byId("message").textContent = fault.message;
      return;
    }
    byId("fault-text").textContent = fault.status === 401
      ? t("This link is not valid any more. Ask for a new one; what you answered last is kept in this browser until then.")
      : fault.message;
    byId("fault").hidden = false;
  }

  #answered(answer) {
    const next = answer.next ?? answer;
    if (!answer.feedback || answer.feedback.right) {
      this.#show(next);
      // The next moment may show what was wrong the last time: one feedback at a time.
      if (answer.feedback && !next.task?.feedback) byId("message").textContent = rightOf(answer.feedback);
      return;
    }
    this.waiting = next;
    this.#feedback(answer.feedback, true);
    byId("feedback-on").focus();
  }

  /** From a wrong answer in the exam to the next task. */
  goOn() {
    if (this.waiting) this.#show(this.waiting);
  }

  // What is shown

  #show({ task, progress, guideline }) {
    this.waiting = null;
    this.task = task;
    this.unseen = false;
    this.#enable();
    this.#progress(progress, task);
    this.guideline.changedTo(guideline);
    byId("judging").hidden = task === null;
    byId("done").hidden = task !== null;
    if (task === null) {
      this.#done(progress);
      return;
    }
    byId("query").textContent = task.query;
    byId("unplayable").hidden = true;
    byId("screen").hidden = false;
    byId("skip").hidden = task.is_exam;
    byId("undo").hidden = task.is_exam;
    byId("phase").hidden = !task.is_exam;
    this.#feedback(task.is_exam ? task.feedback : null, false);
    for (const button of byId("grades").querySelectorAll("button")) {
      const given = task.answer !== null && String(task.answer.grade) === button.dataset.grade;
      button.toggleAttribute("data-given", given);
    }
    this.view.show(task, this.#keptBorders(task));
    this.since = performance.now();
    byId("query").focus({ preventScroll: true });
    scrollTo(0, 0);
    say(`${byId("progress-text").textContent}. ${task.query}`);
  }

  /** Borders that were moved and not graded yet outlive the page. */
  #keepBorders(borders) {
    keep(this.bordersKey, "start" in borders ? { task_id: this.task.task_id, ...borders } : null);
  }

  #keptBorders(task) {
    const borders = kept(this.bordersKey);
    return borders?.task_id === task.task_id && !task.is_exam ? borders : null;
  }

  #progress({ judged, left, skipped, exam_right, exam_tasks, passed }, task) {
    const inExam = exam_tasks > 0 && !passed;
    const [done, of] = inExam ? [exam_right, exam_tasks] : [judged, judged + left + skipped];
    const isAgain = task?.answer?.grade != null;
    const text = inExam
      ? t("Exam: {n} of {all} right", { n: done, all: of })
      : `${t("{n} of {all}", { n: done, all: of })}${skipped ? `, ${t("{n} skipped", { n: skipped })}` : ""}`;
    byId("so-far").hidden = false;
    byId("progress").max = Math.max(1, of);
    byId("progress").value = done;
    byId("progress-text").textContent = text;
    byId("phase").textContent = t("Exam: these moments have been judged before. You are told how you did.");
    document.title = `${isAgain ? t("Again") : text} · ${t("Judge")}`;
  }

  #feedback(feedback, waits) {
    byId("feedback").hidden = feedback === null;
    byId("feedback-on").hidden = !waits;
    byId("grades").hidden = waits;
    if (feedback === null) return;
    const again = waits ? t("It comes again.") : t("Judge it again.");
    byId("feedback-text").textContent = `${t("You gave {grade}, the reference is {reference}.", feedback)} ${again}`;
    byId("feedback-why").textContent = feedback.explanation;
    say(`${byId("feedback-text").textContent} ${feedback.explanation}`);
  }

  #done({ judged, left, skipped }) {
    this.view.drop();
    byId("done-title").textContent = left || skipped ? t("Nothing more for now") : t("All done. Thank you!");
    const rest = [
      t("You have judged {n}.", { n: judged }),
      left ? t("Others are looking at the last {n}; some may come back to you.", { n: left }) : "",
      skipped ? t("You skipped {n}, whose video was missing or could not be played.", { n: skipped }) : "",
    ];
    byId("done-text").textContent = rest.filter(Boolean).join(" ");
    byId("see-skipped").hidden = !skipped;
    byId("undo-last").hidden = !judged && !skipped;
    byId("done-title").focus();
  }

  #unplayable(text) {
    byId("screen").hidden = true;
    byId("unplayable").hidden = false;
    byId("unplayable-text").textContent = this.task.is_exam
      ? `${text} ${t("Tell who leads: the exam cannot go on without it.")}`
      : `${text} ${t("You can skip it and see it later.")}`;
    this.unseen = true;
    this.#enable();
    say(byId("unplayable-text").textContent);
  }

  #grades(meanings) {
    byId("grades").replaceChildren(...[0, 1, 2, 3, 4].map((grade) => {
      const meaning = meanings[grade] ?? WORDS[grade];
      const button = make("button", { type: "button", "data-grade": grade, title: meaning, "aria-keyshortcuts": grade, click: () => this.grade(grade) },
        make("kbd", {}, String(grade)), make("span", { class: "meaning", dir: "auto" }, shortOf(meaning)));
      return make("li", {}, button);
    }));
  }

  /** For who started the server: how far all are. */
  async #lead() {
    const overview = await (await fetched("api/annotators")).json();
    const { annotators, settled, tasks, missing } = overview;
    byId("lead").hidden = false;
    showAgreement(overview);
    showDisputed(overview);
    const waits = settled < tasks && annotators.length > 0 && annotators.every(({ left }) => left === 0);
    byId("lead-text").textContent = `${t("{n} of {all} moments need nobody any more.", { n: settled, all: tasks })}${waits
      ? ` ${t("The other {n} wait for what was skipped, or for more people: name one below.", { n: tasks - settled })}` : ""}`;
    byId("lead-rows").replaceChildren(...annotators.map((row) => make("tr", {},
      make("th", { scope: "row", dir: "auto" }, row.annotator), make("td", {}, String(row.judged)), make("td", {}, String(row.left)),
      make("td", {}, String(row.skipped)),
      make("td", {}, row.exam_tasks ? `${t("{n} of {all}", { n: row.exam_right, all: row.exam_tasks })}${row.passed ? `, ${t("passed")}` : ""}` : t("none")))));
    byId("lead-missing").textContent = missing.length ? t("Videos that are not there: {names}.", { names: missing.join(", ") }) : "";
  }

  // Keys and buttons

  #listen() {
    const click = (id, act) => byId(id).addEventListener("click", act);
    click("skip", () => this.skip());
    click("undo", () => this.undo());
    click("undo-last", () => this.undo());
    click("look-again", () => this.next());
    click("see-skipped", () => this.next(true));
    click("feedback-on", () => this.goOn());
    click("fault-again", () => location.reload());
    click("guideline-open", () => this.guideline.open());
    offerLanguages(byId("language"));
    click("keys-open", () => byId("keys").showModal());
    invites(() => this.#lead());
    // A button that was clicked keeps no focus: the space bar would press it again.
    addEventListener("click", (event) => {
      if (event.detail > 0) event.target.closest?.("main button, header button")?.blur();
    });
    addEventListener("keydown", (event) => this.#key(event));
  }

  #key(event) {
    if (document.querySelector("dialog[open]") || event.target.closest?.("input, textarea, select")) return;
    const control = event.ctrlKey || event.metaKey;
    if (control && event.key.toLowerCase() === "z" && !event.shiftKey) {
      event.preventDefault();
      this.undo();
      return;
    }
    if (control || event.altKey) return;
    const act = this.#action(event);
    if (!act) return;
    event.preventDefault();
    act();
  }

  #action(event) {
    const { view } = this;
    // Who leads has no moment to grade or to undo.
    if (this.me.annotator === null && !["g", "?"].includes(event.key.toLowerCase())) return undefined;
    const onButton = event.target.closest?.("button, a, summary");
    if (/^[0-4]$/.test(event.key)) return () => { if (!event.repeat) this.grade(Number(event.key)); };
    if (event.key === " " && !onButton) return () => view.toggle();
    if (event.key === "Enter" && this.waiting && !onButton) return () => this.goOn();
    const side = event.shiftKey ? "end" : "start";
    return {
      ArrowLeft: () => view.border(side, { by: -STEP_SECONDS }),
      ArrowRight: () => view.border(side, { by: STEP_SECONDS }),
      "[": () => view.border("start"),
      "]": () => view.border("end"),
      c: () => view.toggleContext(),
      m: () => view.toggleSound(),
      u: () => { if (!event.repeat) this.undo(); },
      g: () => this.guideline.open(),
      "?": () => byId("keys").showModal(),
    }[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  }
}

const rightOf = ({ grade, reference }) => t("Right: you gave {grade}, the reference is {reference}.", { grade, reference });

function tell(id, text) {
  byId(id).hidden = text === null;
  if (text !== null && id !== "fault") byId(id).textContent = text;
}

function say(text) {
  byId("live").textContent = text;
}

async function begin() {
  try {
    const page = new Page(await (await fetched("api/me")).json());
    await page.start();
  } catch (fault) {
    if (!(fault instanceof Fault)) throw fault;
    byId("fault-text").textContent = fault.message;
    byId("fault").hidden = false;
    byId("fault-again").onclick = () => location.reload();
  }
}

begin();
