// Which numbers a picture is drawn with, and what its colors and widths stand for: 0 to 1 unless somebody asks for another scale.

import { extent } from "/page/color.js";

const SAID = { weight: "attention weight", value_norm: "weight × value norm" };

function plain(value) {
  return String(Number(value.toPrecision(3)));
}

// the scale of one map: `every` is the extent of all its heads, `shown` are the numbers that are drawn
export function rangeOf(one, measure, scale, every, shown) {
  const { signed, top: largest } = every;
  const whole = measure === "weight" && largest <= 1.002 && !signed; // shares and gates end at 1, whatever the largest is
  const fixed = whole ? "0 to 1" : `to ${plain(largest)}, the largest of this layer`;
  const what = one.kind === "gate" ? "how far the gate is open" : one.kind === "channel" ? "share of the channel that passes" : SAID[measure];
  if (scale === "own") {
    const { top } = extent(shown);
    return { signed, top, fixed, whole, said: `${what}; the scale ends at ${plain(top)}, the largest that is shown` };
  }
  return { signed, top: whole ? 1 : largest, fixed, whole, said: whole ? `${what}, from 0 to 1` : `${what}; the scale ends at ${plain(largest)}, the largest of this layer` };
}

// rows and columns that are left when special tokens are hidden, and the numbers of what is left
export function withoutSpecial(values, query, key, hide) {
  const kept = ({ tokens, special_tokens: special }) => tokens.map((_, i) => i).filter((i) => !hide || !special.includes(i));
  const [rows, columns] = [kept(query), kept(key)];
  if (rows.length === query.tokens.length && columns.length === key.tokens.length) return { values, rows, columns };
  const out = new Float32Array(rows.length * columns.length);
  rows.forEach((i, r) => columns.forEach((j, c) => (out[r * columns.length + c] = values[i * key.tokens.length + j])));
  return { values: out, rows, columns };
}

const percent = (share) => `${Math.round(100 * share)} %`;

// what has to be said beside a picture, so that nobody takes it for more than it is
export function notesOf(found, one, { measure, hide, view, head }) {
  const [query, key] = [found.axes[one.query_axis], found.axes[one.key_axis]];
  const notes = [];
  if (one.is_pooled) notes.push("Pooled: the text is too long for a cell each, so a point is the mean over its rows of the sum over its tokens.");
  if (found.window !== null && query.kind !== "cells") notes.push(`Rows from token ${found.window} on; the others are left out.`);
  const every = [...new Set(key.special_tokens.map((i) => key.tokens[i]))];
  const names = every.slice(0, 4).join(", ") + (every.length > 4 ? ", …" : "");
  if (view && key.special_tokens.length && head?.special_token_fraction !== undefined && head.special_token_fraction !== null) {
    const passed = head.special_token_value_fraction === null ? "" : `, and ${percent(head.special_token_value_fraction)} of what is passed on (weight × value norm)`;
    notes.push(`${hide ? `Hidden: ${names}, which have` : `Special tokens (${names}) have`} ${percent(head.special_token_fraction)} of this head's weight${passed}.`);
  }
  if (measure === "value_norm") notes.push("The norm is that of the value vector before the output projection.");
  return notes;
}
