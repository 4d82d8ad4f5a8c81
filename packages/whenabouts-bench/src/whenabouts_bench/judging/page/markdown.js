// The guideline as elements: headings, paragraphs, lists, tables, and **bold**, *slanted* and `code` words of
// Markdown. Nothing parses HTML.

import { make } from "./words.js";

const ROW = /^\s*\|.*\|\s*$/;
const RULE = /^[\s|:-]+$/;
const MARKED = /(\*\*[^*]+\*\*|`[^`]+`|\*[^*\s][^*]*\*)/;
const TAGS = [["**", "strong"], ["`", "code"], ["*", "em"]];
/** [mark, tag] of a part of a text that is marked. */
const markOf = (part) => TAGS.find(([mark]) => MARKED.test(part) && part.startsWith(mark)) ?? ["", null];
const unmarked = (part) => part.slice(markOf(part)[0].length, part.length - markOf(part)[0].length);
const ITEM = /^\s*(?:[-*]|\d+[.)])\s+/;

/** The elements of a text. */
export function elements(text) {
  return blocksOf(text).map((lines) => {
    const heading = /^(#{1,4})\s+(.*)$/.exec(lines[0]);
    if (heading) return make(`h${Math.min(3, heading[1].length + 1)}`, {}, ...words(heading[2]));
    if (ROW.test(lines[0])) return tableOf(lines);
    if (ITEM.test(lines[0])) return make("ul", {}, ...itemsOf(lines).map((item) => make("li", {}, ...words(item))));
    return make("p", {}, ...words(lines.join(" ")));
  });
}

/** Grade -> what the guideline's table says of it, for rows that begin with a grade. */
export function meaningsOf(text) {
  const meanings = {};
  for (const line of text.split("\n").filter((each) => ROW.test(each))) {
    const [grade, ...rest] = cellsOf(line);
    if (/^[0-4]$/.test(grade) && rest.length) meanings[grade] = rest.join(" ").split(MARKED).map(unmarked).join("");
  }
  return meanings;
}

/** The first sentence of a meaning, for a button. */
export const shortOf = (meaning) => /^.*?[.!?:;](?=\s|$)/.exec(meaning)?.[0].replace(/[.:;]$/, "") ?? meaning;

function blocksOf(text) {
  const blocks = [];
  let block = [];
  const close = () => {
    if (block.length) blocks.push(block);
    block = [];
  };
  for (const line of text.replaceAll("\r", "").split("\n")) {
    const starts = /^#{1,4}\s/.test(line) || (block.length && ROW.test(line) !== ROW.test(block[0]));
    if (!line.trim() || starts) close();
    if (line.trim()) block.push(line);
    if (/^#{1,4}\s/.test(line)) close();
  }
  close();
  return blocks;
}

function itemsOf(lines) {
  const items = [];
  for (const line of lines) {
    if (ITEM.test(line)) items.push(line.replace(ITEM, ""));
    else items[items.length - 1] += ` ${line.trim()}`;
  }
  return items;
}

const cellsOf = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());

function tableOf(lines) {
  const [head = [], ...body] = lines.filter((line) => !RULE.test(line)).map(cellsOf);
  const row = (cells, tag) => make("tr", {}, ...cells.map((cell) => make(tag, {}, ...words(cell))));
  return make("table", {}, make("thead", {}, row(head, "th")), make("tbody", {}, ...body.map((cells) => row(cells, "td"))));
}

/** Text with its marked parts, without the marks. */
function words(text) {
  return text.split(MARKED).filter((part) => part !== "").map((part) => {
    const [, tag] = markOf(part);
    return tag ? make(tag, {}, unmarked(part)) : part;
  });
}
