/** Environments of Claude Managed Agents that the server works for, and their sessions. */
import type { AgentAttachment } from "bothy";
import { useRef } from "preact/hooks";
import { bothy } from "./server";
import { A, Button, Command, Empty, Time, Trouble, useRead, useTrouble } from "./ui";

const colour: Record<AgentAttachment["state"], string> = { waiting: "", working: "yes", failing: "no" };

function Sessions({ of }: { of: AgentAttachment }) {
  if (of.sessions.length === 0) return <>none</>;
  return <ul class="told">{of.sessions.map((s) => <li key={s.id}><code>{s.id}</code> {s.working ? "works" : "waits"}{s.sandboxId && <> in <A to={`sandboxes/${s.sandboxId}`}>{s.sandboxId}</A></>} {s.lastError && <span class="no">{s.lastError}</span>}</li>)}</ul>;
}

export function AgentsPage() {
  const { value, trouble, again } = useRead(() => bothy.agents.list(), "", 5);
  const [failed, attempt] = useTrouble();
  const form = useRef<HTMLFormElement>(null);
  const attach = () => attempt(async () => {
    const f = new FormData(form.current!);
    const text = (name: string) => String(f.get(name)).trim() || undefined;
    const template = text("template"), most = text("most");
    await bothy.agents.attach({ environment: text("environment") ?? "", key: text("key") ?? "", url: text("url"), sandbox: template ? { template } : undefined, maxSessions: most ? Number(most) : undefined });
    form.current!.reset();
    await again();
  });
  const detach = (a: AgentAttachment) => attempt(async () => {
    if (!confirm(`Stop working for ${a.environment}? Its key is deleted, and the sandboxes of its sessions are paused.`)) return;
    await bothy.agents.detach(a.id);
    await again();
  });
  return (
    <main><div class="bar"><h1>Managed agents {value && <small>{value.length}</small>}</h1></div>
      <Trouble text={failed || trouble} />
      <form ref={form} class="create" onSubmit={(e) => (e.preventDefault(), void attach())}>
        <label>Environment <input name="environment" placeholder="env_01ABC" required /></label>
        <label>Environment key <input name="key" type="password" autocomplete="off" required /></label>
        <label>Service <input name="url" type="url" placeholder="https://api.anthropic.com" /></label>
        <label>Template of its sandboxes <input name="template" placeholder="python-3.12" /></label>
        <label>Sessions at once <input name="most" type="number" min={1} placeholder="10" /></label>
        <div class="whole"><Button kind="main" work={attach}>Attach environment</Button></div>
      </form>
      {value?.length === 0 && <Empty><p>No environment is attached. The server works for the self-hosted environments of Claude Managed Agents: each session gets a sandbox of its own.</p><p>Attach one above, or, with all its choices, with <Command>bothy agents attach --environment env_01ABC</Command></p></Empty>}
      {value && value.length > 0 && (
        <table><thead><tr><th>Environment</th><th>State</th><th>Template</th><th>Sessions</th><th class="number">At once</th><th>Attached</th><th><span class="hidden">Act</span></th></tr></thead>
          <tbody>{value.map((a) => <tr key={a.id}><td><b>{a.environment}</b> <small>{new URL(a.url).host}</small></td><td class={colour[a.state]}>{a.state}{a.lastError && `: ${a.lastError}`}</td><td>{a.sandbox.template ?? "the default"}</td><td><Sessions of={a} /></td><td class="number">{a.maxSessions}</td><td><Time at={a.createdAt} /> ago</td>
            <td><Button kind="quiet danger" work={() => detach(a)}>Detach</Button></td></tr>)}</tbody></table>
      )}
    </main>
  );
}
