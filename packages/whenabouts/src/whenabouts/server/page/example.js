// A picture to search by: chosen, dropped or pasted, and scaled down before it is sent.

import { t } from "./language.js";

const MOST_SIDE = 768;
const MOST_BYTES = 6 << 20;

/** The first picture among files or pasted items, or null. */
export const pictureIn = (transfer) => [...(transfer?.files ?? [])].find((file) => file.type.startsWith("image/")) ?? null;

/** A picture file to send (base64) and to show (data address), with its name. */
export async function exampleOf(file) {
  const address = await smallOf(file);
  const data = address.slice(address.indexOf(",") + 1);
  if (data.length * 0.75 > MOST_BYTES) throw new Error(t("{name} is larger than 6 MB. Choose a smaller picture.", { name: file.name }));
  return { name: file.name || t("the pasted picture"), key: digestOf(data), data, address };
}

/** Upright and small, as JPEG; a file that this browser cannot read is sent as it is, because the server may. */
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

/** A key for a picture in the page's address, also without `crypto.subtle` (plain http). */
function digestOf(text) {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  return (hash >>> 0).toString(16).padStart(8, "0");
}
