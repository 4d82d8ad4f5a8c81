// Watched folders: the progress of each, the result of its last change, and failed files.

import { language, t } from "./language.js";
import { counted, make, sentence } from "./words.js";

export const changesOf = (of) => [of.added && t("{n} added", { n: of.added }), of.updated && t("{n} updated", { n: of.updated }), of.renamed && t("{n} renamed", { n: of.renamed }),
  of.pruned && t("{n} taken out", { n: of.pruned }), of.unchanged && t("{n} unchanged", { n: of.unchanged })].filter(Boolean).join(", ") || t("nothing new");

/** Files with the reason of their failure, one per line. */
export const linesOf = (failed) => failed.map(({ name, why }) => make("li", {}, why.includes(name) ? why : `${name}: ${why}`));

/** Failed files with reasons; `total` if not all are listed. */
export function failedOf(failed, total = failed.length) {
  return make("details", { open: true }, make("summary", {}, t("{n} file failed|{n} files failed", { n: total })), make("ul", { class: "failed" }, ...linesOf(failed)));
}

/** The progress of a run: percent, speed, time left. */
export const paceOf = ({ fraction, rate, left }) =>
  [fraction ? `${Math.floor(100 * fraction)} %` : "", rate, left && t("{time} left", { time: left.replace(/ left$/, "") })];

/** An indeterminate bar until the progress is known. */
export const barOf = ({ fraction }, name) => make("progress", { max: 1, "aria-label": name, ...(fraction > 0 ? { value: fraction } : {}) });

/** The list of watched folders; `hooks`: end(place) to stop watching, retry() for all failed files. */
export function showWatched(root, watched, hooks) {
  const focused = document.activeElement.closest?.("#watched button");
  const place = focused?.closest("li").dataset.place;
  const open = new Set([...root.querySelectorAll("details")].filter((each) => !each.open).map((each) => each.closest("li").dataset.place));
  root.replaceChildren(...watched.map((each) => card(each, hooks)));
  for (const line of root.children) {
    if (open.has(line.dataset.place)) line.querySelector("details")?.removeAttribute("open");
    if (line.dataset.place === place) (line.querySelector(`[data-do="${focused.dataset.do}"]`) ?? line.querySelector("[data-do]")).focus();
  }
}

function card({ place, there, last, progress, failed, failed_in_all: failures }, hooks) {
  const isBusy = progress.total > 0 || progress.copying_in_all > 0;
  const button = (what, text, act) => make("button", { type: "button", "data-do": what, click: act }, text);
  const line = make("li", { class: `job${isBusy ? " running" : ""}` },
    make("h3", {}, place),
    isBusy ? progressOf(progress) : make("p", { class: last.message ? "bad" : "quiet" }, toldOf(there, last)),
    failed.length ? failedOf(failed, failures) : null,
    make("div", { class: "actions" },
      failed.some((each) => each.again) ? button("retry", t("Try failed files again"), hooks.retry) : null,
      button("end", t("Watch no more"), () => hooks.end(place))));
  line.dataset.place = place;
  return line;
}

function toldOf(there, last) {
  if (!there) return t("It is not there now; nothing is taken out.");
  if (last.message) return sentence(last.message);
  return last.at ? t("Last change {when}: {what}", { when: new Date(1000 * last.at).toLocaleString(language), what: changesOf(last) }) : t("Followed from now on.");
}

function progressOf(progress) {
  const { copying, copying_in_all: copies, waiting, reading, reading_in_all: read, done, total, step } = progress;
  const named = (names, all) => (all > names.length ? t("{names} and {n} more", { names: names.join(", "), n: all - names.length }) : names.join(", "));
  const rows = [
    copies && [t("Still copied"), named(copying, copies)], total && [t("Waiting"), counted(waiting, "file")],
    read && [t("Being read"), named(reading, read)], total && [t("Done"), t("{part} of {n} file|{part} of {n} files", { part: done, n: total })],
  ].filter(Boolean);
  const pace = [step && sentence(step).slice(0, -1), ...paceOf(progress)].filter(Boolean).join(" · ");
  return make("div", { class: "progress plan" }, barOf(progress, t("How far the folder is")), pace ? make("p", { class: "quiet" }, pace) : null,
    make("dl", {}, ...rows.map(([name, text]) => make("div", {}, make("dt", {}, name), make("dd", {}, text)))));
}
