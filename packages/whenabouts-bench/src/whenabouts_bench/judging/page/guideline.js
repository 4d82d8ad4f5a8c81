// The guideline: read by all, changed by who started the server.

import { t } from "./language.js";
import { elements, meaningsOf } from "./markdown.js";
import { Fault, fetched } from "./server.js";

const byId = (id) => document.getElementById(id);

export class GuidelineDialog {
  /** `shown(meanings)` is called with what each grade means whenever there is a new text. */
  constructor(me, shown) {
    this.shown = shown;
    this.leads = me.leads;
    this.key = `whenabouts-guideline ${me.fingerprint} ${me.annotator}`;
    this.version = "";
    byId("guideline-close").addEventListener("click", () => byId("guideline").close());
    byId("guideline-change").addEventListener("click", () => this.#edit(true));
    byId("guideline-save").addEventListener("click", () => this.#save());
    byId("guideline").addEventListener("cancel", (event) => {
      if (this.edits && byId("guideline-edit").value !== this.text) event.preventDefault();  // Esc loses no words
    });
    byId("guideline").addEventListener("keydown", (event) => {
      if (event.key !== "g" || event.target.id === "guideline-edit") return;
      event.stopPropagation();  // the page would open it again
      byId("guideline").close();
    });
  }

  async load() {
    this.#take(await (await fetched("api/guideline")).json());
  }

  open() {
    this.#edit(false);
    byId("guideline").showModal();
    byId("guideline-text").scrollTop = 0;
    byId("news").hidden = true;
    this.#noteRead();
  }

  /** Open it for whoever has never seen it. */
  openOnce() {
    if (localStorage.getItem(this.key) === null) this.open();
    else this.#tellNews();
  }

  /** The server's version, with every task: a new one is fetched and told. */
  async changedTo(version) {
    if (version === this.version) return;
    try {
      await this.load();
    } catch (fault) {
      if (!(fault instanceof Fault)) throw fault;
      return;  // it is asked again with the next task
    }
    this.#tellNews();
  }

  #tellNews() {
    const isNew = localStorage.getItem(this.key) !== this.version;
    byId("news").textContent = t("The guideline has changed: G shows it.");
    byId("news").hidden = !isNew;
  }

  #noteRead() {
    try {
      localStorage.setItem(this.key, this.version);
    } catch { /* it is shown again the next time */ }
  }

  #take({ text, version }) {
    this.text = text;
    this.version = version;
    byId("guideline-text").replaceChildren(...elements(text));
    this.shown(meaningsOf(text));
  }

  #edit(edits) {
    this.edits = edits;
    byId("guideline-close").textContent = edits ? t("Cancel") : t("Close");
    byId("guideline-form").hidden = byId("guideline-save").hidden = !edits;
    byId("guideline-text").hidden = edits;
    byId("guideline-change").hidden = edits || !this.leads;
    byId("guideline-message").textContent = "";
    if (!edits) return;
    byId("guideline-edit").value = this.text;
    byId("guideline-edit").setSelectionRange(0, 0);
    byId("guideline-edit").focus();
  }

  async #save() {
    const body = JSON.stringify({ text: byId("guideline-edit").value, version: this.version });
    try {
      this.#take(await (await fetched("api/guideline", undefined, body)).json());
      this.#noteRead();
      this.#edit(false);
    } catch (fault) {
      if (!(fault instanceof Fault)) throw fault;
      byId("guideline-message").textContent = fault.message;
    }
  }
}
