// A picture to search by: chosen, dropped or pasted, made small here before it is sent.

import { t } from "./language.js";

const MOST_SIDE = 768;
const MOST_BYTES = 6 << 20;

/** The first picture among files or what was pasted; null where there is none. */
export const pictureIn = (transfer) => [...(transfer?.files ?? [])].find((file) => file.type.startsWith("image/")) ?? null;

/** What is sent (base64) and shown (a data address) of a picture file, and its name. */
export async function exampleOf(file) {
  const address = await smallOf(file);
  const data = address.slice(address.indexOf(",") + 1);
  if (data.length * 0.75 > MOST_BYTES) throw new Error(t("{name} is larger than 6 MB. Choose a smaller picture.", { name: file.name }));
  return { name: file.name || t("the pasted picture"), key: digestOf(data), data, address };
}

/** Upright and small, as JPEG; a file that this browser cannot read goes as it is, for the server may. */
async function smallOf(file) {
  try {
    const bitmap = await createImageBitmap(file, { imageOrientation: "from-image" });
    const scale = Math.min(1, MOST_SIDE / Math.max(bitmap.width, bitmap.height));
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [bitmap.width, bitmap.height].map((side) => Math.max(1, Math.round(side * scale)));
    canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    bitmap.close();
    return canvas.toDataURL("image/jpeg", 0.92);
  } catch {
    return addressOf(file);
  }
}

const addressOf = (file) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.addEventListener("load", () => resolve(reader.result));
  reader.addEventListener("error", () => reject(new Error(t("{name} cannot be read.", { name: file.name }))));
  reader.readAsDataURL(file);
});

/** Tells pictures apart in the address of the page, where `crypto.subtle` is missing (plain http) too. */
function digestOf(text) {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  return (hash >>> 0).toString(16).padStart(8, "0");
}
