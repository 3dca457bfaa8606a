/**
 * The one place where JSON of the wire (snake_case, times as text) and objects
 * of this package (camelCase, times as Date) are turned into each other.
 *
 * @module
 * @internal
 */

/** The keys whose values belong to the user and are passed through untouched. */
const opaque = new Set(["metadata", "env", "args", "data", "results", "packages", "labels", "host_labels"]);

const isTime = (key: string): boolean => key === "at" || key === "time" || key.endsWith("_at") || key.endsWith("_since");
const timestamp = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/;

function toSnake(key: string): string {
  return key.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

function toCamel(key: string): string {
  return key.replace(/(?<=[a-z0-9])_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}

function isPlain(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype;
}

/** Returns the form that goes over the wire. Undefined values are left out. */
export function toWire(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(toWire);
  if (value instanceof Date) return value.toISOString();
  if (!isPlain(value)) return value;
  const out: Record<string, unknown> = {};
  for (const [key, item] of Object.entries(value)) {
    if (item === undefined) continue;
    const name = toSnake(key);
    out[name] = opaque.has(name) ? item : toWire(item);
  }
  return out;
}

function fromWireField(key: string, value: unknown): unknown {
  if (opaque.has(key)) return value;
  if (typeof value === "string" && isTime(key) && timestamp.test(value)) return new Date(value);
  return fromWire(value);
}

/** Returns the form that users see. */
export function fromWire<T = unknown>(value: unknown): T {
  if (Array.isArray(value)) return value.map((item) => fromWire(item)) as T;
  if (!isPlain(value)) return value as T;
  const out: Record<string, unknown> = {};
  for (const [key, item] of Object.entries(value)) out[toCamel(key)] = fromWireField(key, item);
  return out as T;
}

/** What may stand in a query string. */
export type QueryValue = string | number | boolean | Date | readonly string[] | Record<string, string> | undefined;

function appendQuery(params: URLSearchParams, key: string, value: QueryValue): void {
  if (value === undefined) return;
  if (value instanceof Date) params.append(key, value.toISOString());
  else if (Array.isArray(value)) for (const item of value) params.append(key, String(item));
  else if (typeof value === "object") for (const [name, item] of Object.entries(value)) params.append(`${key}.${name}`, item);
  else params.append(key, String(value));
}

/** Returns a query string with its question mark, or "" when nothing is set. */
export function toQuery(query: Record<string, QueryValue> = {}): string {
  const params = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) appendQuery(params, toSnake(key), value);
  const text = params.toString();
  return text && `?${text}`;
}
