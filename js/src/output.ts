/**
 * Bytes of a command's output on their way to text.
 *
 * @module
 * @internal
 */

/** Returns the bytes of base64 text. */
export function fromBase64(text: string): Uint8Array {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** Returns base64 text for bytes. */
export function toBase64(bytes: Uint8Array): string {
  let binary = "";
  for (let i = 0; i < bytes.length; i += 0x8000) binary += String.fromCharCode(...bytes.subarray(i, i + 0x8000));
  return btoa(binary);
}

/** Decodes the two streams of a command, each with its own memory for a character that was cut in two. */
export class Decoder {
  readonly #decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };

  /** Returns the bytes of a piece of output as it came over the wire. */
  static bytes(data: string, encoding: string | undefined): Uint8Array {
    return encoding === "base64" ? fromBase64(data) : new TextEncoder().encode(data);
  }

  /** Returns the text of the next bytes of a stream. */
  text(stream: "stdout" | "stderr", bytes: Uint8Array): string {
    return this.#decoders[stream].decode(bytes, { stream: true });
  }
}

/** Text that keeps its beginning and its end when it grows over its limit. */
export class BoundedText {
  readonly #half: number;
  #head = "";
  #tail = "";
  /** True when the middle has been dropped. */
  truncated = false;

  constructor(limit = 10 << 20) {
    this.#half = limit >> 1;
  }

  /** Appends a piece. */
  add(piece: string): void {
    const room = this.#half - this.#head.length;
    if (room > 0) {
      this.#head += piece.slice(0, room);
      piece = piece.slice(room);
    }
    this.#tail += piece;
    if (this.#tail.length > 2 * this.#half) this.#trim();
  }

  /** Returns what was kept. */
  text(): string {
    if (this.#tail.length > this.#half) this.#trim();
    return this.#head + this.#tail;
  }

  #trim(): void {
    this.#tail = this.#tail.slice(-this.#half);
    this.truncated = true;
  }
}

/** Bytes that keep their beginning and their end when they grow over their limit. */
export class BoundedBytes {
  readonly #half: number;
  readonly #head: Uint8Array[] = [];
  readonly #tail: Uint8Array[] = [];
  #headSize = 0;
  #tailSize = 0;
  /** True when the middle has been dropped. */
  truncated = false;

  constructor(limit = 10 << 20) {
    this.#half = limit >> 1;
  }

  /** Appends a piece. */
  add(piece: Uint8Array): void {
    const room = Math.min(this.#half - this.#headSize, piece.length);
    if (room > 0) {
      this.#head.push(piece.subarray(0, room));
      this.#headSize += room;
      piece = piece.subarray(room);
    }
    if (piece.length === 0) return;
    this.#tail.push(piece);
    this.#tailSize += piece.length;
    while (this.#tailSize > this.#half) this.#drop(this.#tailSize - this.#half);
  }

  #drop(count: number): void {
    const first = this.#tail.shift() as Uint8Array;
    const gone = Math.min(count, first.length);
    if (gone < first.length) this.#tail.unshift(first.subarray(gone));
    this.#tailSize -= gone;
    this.truncated = true;
  }

  /** Returns what was kept. */
  bytes(): Uint8Array {
    const all = new Uint8Array(this.#headSize + this.#tailSize);
    let at = 0;
    for (const piece of [...this.#head, ...this.#tail]) {
      all.set(piece, at);
      at += piece.length;
    }
    return all;
  }
}

/** Returns bytes as text, and in base64 where they are no text. */
export function textOf(bytes: Uint8Array): { text: string; base64?: string } {
  try {
    return { text: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes) };
  } catch {
    return { text: new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes), base64: toBase64(bytes) };
  }
}
