/**
 * Keeps the beginning and the end of a text that has more than `limit` bytes of UTF-8,
 * with a mark between them that says how much is missing. No character is cut in two.
 */
export function cap(text: string, limit: number): string {
  const bytes = new TextEncoder().encode(text);
  if (bytes.length <= limit) return text;
  let head = limit >> 1;
  let tail = bytes.length - (limit - head);
  while (head > 0 && inside(bytes[head])) head--;
  while (tail < bytes.length && inside(bytes[tail])) tail++;
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  return `${decoder.decode(bytes.subarray(0, head))}\n[${tail - head} bytes left out]\n${decoder.decode(bytes.subarray(tail))}`;
}

/** Whether a byte continues a character that began before. */
function inside(byte: number | undefined): boolean {
  return byte !== undefined && (byte & 0xc0) === 0x80;
}
