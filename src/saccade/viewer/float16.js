// Half-precision numbers, which JavaScript has no array for everywhere yet: all 65,536 of them in a table.

const TABLE = new Float32Array(65536);
for (let bits = 0; bits < 65536; bits++) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) TABLE[bits] = sign * fraction * 2 ** -24;
  else if (exponent === 31) TABLE[bits] = fraction ? NaN : sign * Infinity;
  else TABLE[bits] = sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

export function fromHalf(buffer) {
  const raw = new Uint16Array(buffer);
  const out = new Float32Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = TABLE[raw[i]];
  return out;
}
