/**
 * What a visitor has typed and not yet saved, and the cells of a notebook: kept for this tab of the browser, over its
 * pages and a reload, and until the visitor logs out.
 */
const prefix = "draft:";

/** Keeps a draft; undefined forgets it. What the browser has no room for is not kept, and false is returned. */
export function keepDraft(name: string, value: unknown): boolean {
  try {
    if (value === undefined) sessionStorage.removeItem(prefix + name);
    else sessionStorage.setItem(prefix + name, JSON.stringify(value));
    return true;
  } catch {
    sessionStorage.removeItem(prefix + name); // an old one would be mistaken for this
    return false;
  }
}

export function draft<T>(name: string): T | undefined {
  const text = sessionStorage.getItem(prefix + name);
  return text === null ? undefined : (JSON.parse(text) as T);
}

/** Forgets all drafts. */
export function forgetDrafts(): void {
  for (const name of Object.keys(sessionStorage)) if (name.startsWith(prefix)) sessionStorage.removeItem(name);
}
