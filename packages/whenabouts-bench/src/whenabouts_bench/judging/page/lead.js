// What only who leads sees: how annotators agree, where they do not, and a link for one more.

import { t } from "./language.js";
import { Fault, fetched } from "./server.js";
import { make, span } from "./words.js";

const byId = (id) => document.getElementById(id);
// Rows that did not change stay, and with them the focus on a link in them.
const shown = new Map();

function fill(id, data, rowOf) {
  const text = JSON.stringify(data);
  if (shown.get(id) === text) return;
  shown.set(id, text);
  byId(id).replaceChildren(...data.map(rowOf));
}

/** A row per pair of annotators. */
export function showAgreement({ agreement }) {
  byId("agreement").hidden = agreement.length === 0;
  fill("agreement-rows", agreement, ({ first, second, tasks, same, kappa }) => make("tr", {},
    make("th", { scope: "row", dir: "auto" }, `${first}, ${second}`), make("td", {}, String(tasks)),
    make("td", {}, `${Math.round(100 * same)} %`), make("td", {}, kappa === null ? t("not defined") : kappa.toFixed(2))));
}

/** A row per task without consensus, with a link to its moment. */
export function showDisputed({ disputed, disputes }) {
  byId("disputed").hidden = disputes === 0;
  byId("disputed-text").textContent = disputes > disputed.length ? t("The first {n} of {all}.", { n: disputed.length, all: disputes }) : "";
  fill("disputed-rows", disputed, ({ task_id, query, start, end, grades, missing }) => make("tr", {},
    make("th", { scope: "row", dir: "auto" }, query),
    make("td", {}, make("a", { href: `api/tasks/${encodeURIComponent(task_id)}/clip`, target: "_blank", rel: "noopener" }, span(start, end))),
    make("td", { dir: "auto" }, grades.map(([name, grade]) => `${name} ${grade}`).join(", ")),
    make("td", {}, missing ? t("{n} more", { n: missing }) : t("nothing: it is discarded"))));
}

/** A name becomes a link to send; `changed` shows everybody anew. */
export function invites(changed) {
  byId("invite").addEventListener("submit", async (event) => {
    event.preventDefault();
    const message = byId("invite-message");
    try {
      const body = JSON.stringify({ name: byId("invite-name").value.trim() });
      const { annotator, token } = await (await fetched("api/annotators", undefined, body)).json();
      const link = new URL(`?token=${token}`, new URL("./", location.href)).href;
      message.replaceChildren(`${t("The link of {name}:", { name: annotator })} `, make("a", { href: link }, link));
      byId("invite-name").value = "";
      await changed();
    } catch (fault) {
      if (!(fault instanceof Fault)) throw fault;
      message.textContent = fault.message;
    }
  });
}
