/** Search and actions by Ctrl+K: every page, sandbox and template, and what can be done to them, without a mouse. */
import type { Sandbox } from "bothy";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { bothy, type Login, may } from "./server";
import { go, Trouble, useRead, useTrouble } from "./ui";

interface Item { kind: string; name: string; more?: string; act: () => unknown; danger?: boolean }

const shown = 30;

const page = (to: string, kind: string, name: string, more?: string): Item => ({ kind, name, more, act: () => go(to) });

/** What can be done to a sandbox; of those that are not on the page, only once something was typed. */
function actionsOf(s: Sandbox, name: string): Item[] {
  const { id, state } = s.info, here = `sandboxes/${id}`;
  const then = (verb: string, work: () => Promise<unknown>, to = here): Item => ({ kind: "Action", name: `${verb} ${name}`, act: async () => (await work(), go(to)) });
  return [
    page(`${here}/terminal`, "Page", `Terminal of ${name}`), page(`${here}/files`, "Page", `Files of ${name}`), page(`${here}/network`, "Page", `Network of ${name}`),
    state === "paused" ? then("Resume", () => s.resume()) : then("Pause", () => s.pause()),
    then("Snapshot", () => s.snapshot(), "snapshots"),
    { kind: "Action", name: `Fork ${name}`, act: async () => go(`sandboxes/${(await s.fork(1))[0]!.id}`) },
    { kind: "Action", danger: true, name: `Terminate ${name}`, act: async () => confirm(`Terminate ${name}?`) && (await s.terminate(), go("sandboxes")) },
  ];
}

function itemsOf(login: Login, rooms: string[], at: string[], sandboxes: Sandbox[], templates: string[], typed: boolean): Item[] {
  const write = may(login, "sandboxes:write");
  const nameOf = (s: Sandbox) => s.info.name ?? s.id;
  const here = at[0] === "sandboxes" ? sandboxes.find((s) => s.id === at[1]) : undefined;
  const acted = write ? [...(here ? [here] : []), ...(typed ? sandboxes.filter((s) => s !== here) : [])] : [];
  return [
    ...(here && write ? actionsOf(here, nameOf(here)) : []),
    ...sandboxes.map((s) => page(`sandboxes/${s.id}`, "Sandbox", nameOf(s), [s.info.name && s.id, s.info.state, s.info.template].filter(Boolean).join(" · "))),
    ...rooms.map((r) => page(r, "Page", r ? r[0]!.toUpperCase() + r.slice(1) : "Home")),
    ...(write ? templates.map((template): Item => ({ kind: "Action", name: `New sandbox from ${template}`, act: async () => go(`sandboxes/${(await bothy.sandboxes.create({ template })).id}`) })) : []),
    ...acted.filter((s) => s !== here).flatMap((s) => actionsOf(s, nameOf(s))),
  ];
}

/** Those with all the words, those that begin with the first of them before others. */
function matching(items: Item[], typed: string): Item[] {
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  const rank = (i: Item) => (i.name.toLowerCase().startsWith(words[0] ?? "") ? 0 : 1);
  return items.filter((i) => words.every((w) => `${i.kind} ${i.name} ${i.more ?? ""}`.toLowerCase().includes(w))).map((i, n): [Item, number] => [i, n])
    .sort(([a, m], [b, n]) => rank(a) - rank(b) || m - n).slice(0, shown).map(([i]) => i);
}

function Search({ login, rooms, at, close }: { login: Login; rooms: string[]; at: string[]; close: () => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [typed, setTyped] = useState("");
  const [chosen, choose] = useState(0);
  const [busy, setBusy] = useState(false);
  const { value: sandboxes = [], trouble } = useRead(async () => (await bothy.sandboxes.list({ live: true, limit: 1000 })).items, "");
  const { value: templates = [] } = useRead(async () => (may(login, "templates:read") ? (await bothy.templates.list()).map((t) => t.name) : []), "");
  const [failed, attempt] = useTrouble();
  const found = useMemo(() => matching(itemsOf(login, rooms, at, sandboxes, templates, typed.trim() !== ""), typed), [sandboxes, templates, typed]);
  useLayoutEffect(() => dialog.current!.showModal(), []); // before the next key
  useEffect(() => document.getElementById(`found-${chosen}`)?.scrollIntoView({ block: "nearest" }), [chosen]);
  const take = async (item?: Item) => {
    if (!item || busy) return;
    setBusy(true);
    await attempt(async () => (await item.act(), close()));
    setBusy(false);
  };
  const pressed = (e: KeyboardEvent) => {
    const to = { ArrowDown: chosen + 1, ArrowUp: chosen - 1 }[e.key];
    if (to !== undefined) choose((to + found.length) % Math.max(1, found.length));
    else if (e.key === "Enter") void take(found[chosen]);
    else return;
    e.preventDefault();
  };
  return (
    <dialog ref={dialog} class="palette" aria-label="Search and actions" onCancel={(e) => (e.preventDefault(), close())} onClick={(e) => e.target === dialog.current && close()}>
      <input role="combobox" aria-label="Search" aria-expanded="true" aria-controls="found" aria-autocomplete="list" aria-activedescendant={found.length ? `found-${chosen}` : undefined} autofocus autocomplete="off" spellcheck={false}
        placeholder="A sandbox, a page, a template or an action" value={typed} onInput={(e) => (setTyped(e.currentTarget.value), choose(0))} onKeyDown={pressed} />
      <Trouble text={failed || trouble} />
      <ul id="found" role="listbox" aria-label="Found" aria-busy={busy}>{found.map((item, i) => (
        <li key={`${item.kind} ${item.name} ${item.more}`} id={`found-${i}`} role="option" aria-selected={i === chosen} class={item.danger ? "danger" : undefined} onMouseMove={() => choose(i)} onClick={() => void take(item)}>
          <span>{item.name} {item.more && <small>{item.more}</small>}</span><small>{item.kind}</small>
        </li>
      ))}</ul>
      {found.length === 0 && <p class="soft" role="status">Nothing has these words.</p>}
    </dialog>
  );
}

/** The button that opens the search, and its keys. A shell keeps Ctrl+K for itself. */
export function Palette({ login, rooms, at }: { login: Login; rooms: string[]; at: string[] }) {
  const [open, setOpen] = useState(false);
  useEffect(() => {
    const pressed = (e: KeyboardEvent) => {
      if (e.key.toLowerCase() !== "k" || !(e.metaKey || e.ctrlKey) || e.altKey || e.shiftKey) return;
      if (e.ctrlKey && (e.target as HTMLElement).closest?.(".xterm")) return;
      e.preventDefault();
      setOpen((was) => !was);
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
  return (
    <>
      <button type="button" class="seek" onClick={() => setOpen(true)}>Search <kbd>Ctrl K</kbd></button>
      {open && <Search login={login} rooms={rooms} at={at} close={() => setOpen(false)} />}
    </>
  );
}
