// What the user's token allows; everything else is hidden.

import { t, term } from "./language.js";
import { ask } from "./server.js";

const lacking = new Set();

/** Whether the token has a scope: "collect", "index" or "judge". */
export const may = (scope) => !lacking.has(scope);

/** Fetch the scopes, and mark the page: `data-needs="collect"` hides an element from users without that scope. */
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
