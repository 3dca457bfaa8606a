/** What of a sandbox can be changed while it lives. */
import type { OnHostLoss, OnTimeout, Sandbox, UpdateParams } from "bothy";
import { useRef, useState } from "preact/hooks";
import { pairs, secrets } from "./list";
import { bothy } from "./server";
import { Button, Trouble, useTrouble } from "./ui";

/** The fields as they stand, as text. Secrets are not among them: their values never come back. */
const present = (s: Sandbox["info"]): Record<string, string> => ({
  name: s.name ?? "", timeout: "", onTimeout: s.onTimeout, idle: String(s.idleSeconds ?? 0), checkpoint: String(s.checkpointSeconds ?? 0),
  loss: s.onHostLoss, budget: String(s.budget ?? 0), labels: Object.entries(s.metadata ?? {}).map(([k, v]) => `${k}=${v}`).join("\n"), secrets: "",
});

const whole = (name: string, text: string) => {
  const n = Number(text);
  if (!text || !Number.isInteger(n) || n < 0) throw new Error(`${name}: “${text}” is not a whole number of seconds.`);
  return n;
};

export function Settings({ sandbox, again }: { sandbox: Sandbox; again: () => Promise<void> }) {
  const [was, setWas] = useState(() => present(sandbox.info));
  const [saved, setSaved] = useState(0);
  const [trouble, attempt] = useTrouble();
  const form = useRef<HTMLFormElement>(null);
  const save = () => attempt(async () => {
    const f = new FormData(form.current!);
    const now = Object.fromEntries(Object.keys(was).map((k) => [k, String(f.get(k) ?? "").trim()]));
    const changed = (k: string) => now[k] !== was[k]!.trim();
    const params: UpdateParams = {};
    if (changed("name")) params.name = now.name;
    if (changed("timeout")) params.timeoutSeconds = whole("Time-out", now.timeout!);
    if (changed("onTimeout")) params.onTimeout = now.onTimeout as OnTimeout;
    if (changed("idle")) params.idleSeconds = whole("Idle", now.idle!);
    if (changed("checkpoint")) params.checkpointSeconds = whole("Checkpoints", now.checkpoint!);
    if (changed("loss")) params.onHostLoss = now.loss as OnHostLoss;
    if (changed("budget")) params.budget = Number(now.budget);
    if (changed("labels")) params.metadata = pairs(now.labels!, "label");
    if (now.secrets) params.secrets = secrets(now.secrets);
    if (Object.keys(params).length > 0) await sandbox.update(params);
    await again();
    setWas(present((await bothy.sandboxes.get(sandbox.id)).info));
    setSaved((n) => n + 1);
  });
  const field = (name: string, label: string, type = "text") => <label>{label}<input name={name} type={type} min={0} step="any" defaultValue={was[name]} /></label>;
  return (
    <form key={saved} ref={form} class="create" onSubmit={(e) => (e.preventDefault(), void save())}>
      <div class="whole"><Trouble text={trouble} />{saved > 0 && !trouble && <p role="status" class="note">Saved.</p>}</div>
      {field("name", "Name")}
      {field("timeout", "New time-out from now, seconds", "number")}
      <label>When the time is up<select name="onTimeout" defaultValue={was.onTimeout}><option value="terminate">terminate</option><option value="pause">pause</option></select></label>
      {field("idle", "Pause or end when idle for, seconds", "number")}
      {field("checkpoint", "Checkpoint every, seconds", "number")}
      <label>When its host is lost<select name="loss" defaultValue={was.loss}><option value="pause">pause at its last snapshot</option><option value="resume">resume on another host</option><option value="fail">end</option></select></label>
      {field("budget", "Budget of it and its forks, 0 for none", "number")}
      <label>Labels, name=value<textarea name="labels" rows={3} defaultValue={was.labels} /></label>
      <label>All its secrets anew, NAME=VALUE HOST,HOST<textarea name="secrets" rows={3} autocomplete="off" spellcheck={false} /></label>
      <div class="whole"><Button kind="main" work={save}>Save</Button></div>
    </form>
  );
}
