/** One page of a list. */
export interface Page<T> {
  items: T[];
  /** Pass it as `cursor` for the next page; undefined on the last. */
  nextCursor?: string;
}

/**
 * A list that comes in pages. `await` it for one page, or loop over it with
 * `for await` for everything.
 */
export class PageList<T> implements PromiseLike<Page<T>>, AsyncIterable<T> {
  readonly #fetch: (cursor?: string) => Promise<Page<T>>;
  readonly #start: string | undefined;

  /** @internal */
  constructor(fetch: (cursor?: string) => Promise<Page<T>>, start?: string) {
    this.#fetch = fetch;
    this.#start = start;
  }

  /** Asks for the first page. This is what `await` calls. */
  then<A = Page<T>, B = never>(
    onFulfilled?: ((page: Page<T>) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.#fetch(this.#start).then(onFulfilled, onRejected);
  }

  /** Yields every item, asking for pages as they are needed. */
  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    let cursor = this.#start;
    do {
      const page = await this.#fetch(cursor);
      yield* page.items;
      cursor = page.nextCursor;
    } while (cursor);
  }

  /** Returns all items of all pages. */
  async all(): Promise<T[]> {
    const items: T[] = [];
    for await (const item of this) items.push(item);
    return items;
  }
}
