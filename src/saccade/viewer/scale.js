// The scale of colors and line widths, 0 to 1 by default, and the notes above a figure.

import { extent } from "/page/color.js";

const MEASURES = { weight: "attention weight", value_norm: "weight × value norm" };

function plain(value) {
  return String(Number(value.toPrecision(3)));
}

// the scale of a map: `mapExtent` is the extent of all its heads, `values` are the numbers that are drawn
export function rangeOf(map, measure, scale, mapExtent, values) {
  const { signed, top: largest } = mapExtent;
  const whole = measure === "weight" && largest <= 1.002 && !signed; // the scale of weights and gates ends at 1, whatever the largest value is
  const fixed = whole ? "0 to 1" : `to ${plain(largest)}, the largest of this layer`;
  const quantity = map.kind === "gate" ? "gate activation" : map.kind === "channel" ? "channel weight" : MEASURES[measure];
  if (scale === "own") {
    const { top } = extent(values);
    return { signed, top, fixed, whole, legend: `${quantity}; the scale ends at ${plain(top)}, the largest value shown` };
  }
  return { signed, top: whole ? 1 : largest, fixed, whole, legend: whole ? `${quantity}, from 0 to 1` : `${quantity}; the scale ends at ${plain(largest)}, the largest of this layer` };
}

// the values without special tokens if they are hidden, and the indices of the remaining rows and columns
export function withoutSpecial(values, query, key, hide) {
  const kept = ({ tokens, special_tokens: special }) => tokens.map((_, i) => i).filter((i) => !hide || !special.includes(i));
  const [rows, columns] = [kept(query), kept(key)];
  if (rows.length === query.tokens.length && columns.length === key.tokens.length) return { values, rows, columns };
  const remaining = new Float32Array(rows.length * columns.length);
  rows.forEach((i, r) => columns.forEach((j, c) => (remaining[r * columns.length + c] = values[i * key.tokens.length + j])));
  return { values: remaining, rows, columns };
}

const percent = (share) => `${Math.round(100 * share)}%`;

// notes that are needed to interpret a figure: pooling, windows and special tokens
export function notesOf(result, map, { measure, hide, view, head }) {
  const [query, key] = [result.axes[map.query_axis], result.axes[map.key_axis]];
  const notes = [];
  if (map.is_pooled) notes.push("Pooled, because the text is long: each point is the sum over its keys, averaged over its queries.");
  if (result.window !== null && query.kind !== "cells") notes.push(`Only rows from token ${result.window} on are shown.`);
  const distinct = [...new Set(key.special_tokens.map((i) => key.tokens[i]))];
  const names = distinct.slice(0, 4).join(", ") + (distinct.length > 4 ? ", …" : "");
  if (view && key.special_tokens.length && head?.special_token_fraction !== undefined && head.special_token_fraction !== null) {
    const passedOn = head.special_token_value_fraction === null ? "" : ` and ${percent(head.special_token_value_fraction)} of its weight × value norm`;
    notes.push(`${hide ? `Hidden: ${names}, which have` : `Special tokens (${names}) have`} ${percent(head.special_token_fraction)} of this head's attention weight${passedOn}.`);
  }
  if (measure === "value_norm") notes.push("The value norm is the norm of the value vector before the output projection.");
  return notes;
}
