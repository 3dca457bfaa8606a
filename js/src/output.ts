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
