/** What does the same in this package as a REST call that a hint of the server names. */
const words: [method: string, path: RegExp, words: string][] = [
  ["GET", /^\/v1\/sandboxes$/, "Sandbox.list()"],
  ["POST", /^\/v1\/sandboxes$/, "Sandbox.create()"],
  ["GET", /^\/v1\/sandboxes\/([^/]+)$/, 'Sandbox.get("$1")'],
  ["PATCH", /^\/v1\/sandboxes\/[^/]+$/, "sandbox.update()"],
  ["DELETE", /^\/v1\/sandboxes\/[^/]+$/, "sandbox.terminate()"],
  ["POST", /^\/v1\/sandboxes\/([^/]+)\/resume$/, 'Sandbox.resume("$1")'],
  ["POST", /^\/v1\/sandboxes\/([^/]+)\/restart$/, "sandbox.restart()"],
  ["POST", /^\/v1\/sandboxes\/[^/]+\/pause$/, "sandbox.pause()"],
  ["POST", /^\/v1\/sandboxes\/[^/]+\/links$/, "sandbox.createLink()"],
  ["GET", /^\/v1\/sandboxes\/[^/]+\/links$/, "sandbox.links()"],
  ["PUT", /^\/v1\/sandboxes\/[^/]+\/files$/, "sandbox.files.write()"],
  ["GET", /^\/v1\/sandboxes\/[^/]+\/processes\/([^/]+)\/output$/, "sandbox.process($1).output()"],
  ["GET", /^\/v1\/snapshots$/, "client.snapshots.list()"],
  ["GET", /^\/v1\/snapshots\/([^/]+)$/, 'client.snapshots.get("$1")'],
];

/**
 * Returns a hint in the words of this package. A call without a counterpart stays.
 *
 * @internal
 */
export function inJavaScript(hint: string): string {
  return hint.replace(/(GET|POST|PUT|PATCH|DELETE) (\/v1\/[^\s,)]*[^\s,.)])/g, (call, method: string, path: string) => {
    const found = words.find(([m, pattern]) => m === method && pattern.test(path));
    return found ? path.replace(found[1], found[2]).replace('"{id}"', "id").replace("{pid}", "pid") : call;
  });
}
