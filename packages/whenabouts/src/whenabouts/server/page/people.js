// Name, merge or forget a person, if the server allows it.

import { t } from "./language.js";
import { ask, fetched } from "./server.js";
import { make } from "./words.js";

const byId = (id) => document.getElementById(id);
let person = null;
let changed = () => {};

/** Open the dialog for `name`; `done()` is called after each change. */
export async function askWho(name, done) {
  changed = done;
  show(name);
  byId("person").showModal();
  try {
    const { data } = await ask("people");
    const names = [...new Set(data.map((other) => other.name))].filter((other) => other !== person);
    byId("person-names").replaceChildren(...names.map((other) => make("option", { value: other })));
  } catch { /* a convenience: the name can still be typed */ }
}

function show(name) {
  person = name;
  byId("person-title").textContent = name;
  byId("person-name").value = "";
  byId("person-merge").hidden = true;
  tell("");
}

function tell(text, isFault = false) {
  const message = byId("person-message");
  message.textContent = text;
  message.classList.toggle("bad", isFault);
}

/** Post a change; true if it was made. */
async function change(action, body) {
  try {
    const response = await fetched(`api/people/${action}`, undefined, JSON.stringify(body));
    const { done } = await response.json();
    changed();
    tell(`${done}.`);
    return true;
  } catch (fault) {
    byId("person-merge").hidden = fault.code !== "name_taken";
    tell(fault.code === "name_taken" ? t("{name} is somebody already. Are the two one person?", { name: body.name }) : fault.message, true);
    return false;
  }
}

async function save(event) {
  event.preventDefault();
  const name = byId("person-name").value.trim();
  if (name && name !== person && (await change("name", { person, name }))) renamed(name);
}

async function merge() {
  const name = byId("person-name").value.trim();
  if (await change("merge", { person: name, other: person })) renamed(name);
}

/** The person has a new name; update the dialog. */
function renamed(name) {
  const said = byId("person-message").textContent;
  show(name);
  tell(said);
}

async function undo() {
  if (await change("undo", {})) byId("person").close();
}

async function forget() {
  if (!confirm(t("Erase every clip and vector of {name}? This cannot be undone.", { name: person }))) return;
  if (await change("forget", { person })) byId("person").close();
}

byId("person-form").addEventListener("submit", (event) => void save(event));
byId("person-merge").addEventListener("click", () => void merge());
byId("person-undo").addEventListener("click", () => void undo());
byId("person-forget").addEventListener("click", () => void forget());
byId("person-close").addEventListener("click", () => byId("person").close());
