// Decoding of 16-bit floats with a table of all 65,536 values, because not every browser has Float16Array.

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
  const values = new Float32Array(raw.length);
  for (let i = 0; i < raw.length; i++) values[i] = TABLE[raw[i]];
  return values;
}
