// What the token of whoever looks may do: what it may not is hidden.

import { t, term } from "./language.js";
import { ask } from "./server.js";

const lacking = new Set();

/** Whether the token has a scope: "collect", "index" or "judge". */
export const may = (scope) => !lacking.has(scope);

/** Ask the server, and mark the page: `data-needs="collect"` hides an element from those who may not collect. */
export async function learnAccess() {
  try {
    const { name, scopes } = await ask("access");
    for (const scope of ["collect", "index", "judge"]) {
      if (scopes.includes(scope)) continue;
      lacking.add(scope);
      document.body.classList.add(`no-${scope}`);
    }
    const guest = document.getElementById("guest");
    guest.hidden = !name;
    guest.textContent = name;
    guest.title = t("This link is {name}'s, and lets you {scopes}.", { name, scopes: scopes.map((scope) => term(scope)).join(", ") });
  } catch { /* without an answer nothing is hidden: the server refuses what may not be */ }
}
